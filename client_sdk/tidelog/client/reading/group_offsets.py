"""Commits and lookups of the user's side of a group: who waits for which, and what came of it.

Owns the numbers of requests and the answers until somebody takes them. It must never run a callback
but when the user's side says that he may be called. It waits for nobody.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidelog.client.arguments.functions import refuse_awaitable
from tidelog.client.arguments.options import ConsumerOptions
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.group.messages import (
    CommitDone,
    CommitWanted,
    GroupMessage,
    GroupPartition,
    LookupWanted,
    OffsetsFound,
    OffsetToCommit,
)
from tidelog.client.reading.group_options import commit_error
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, TopicId

_log = logging.getLogger("tidelog.client")
MS: Final = 1_000_000

OnCommitted = Callable[[dict[TopicPartition, OffsetAndMetadata], TidelogError | None], object]
Failures = dict[TopicPartition, TidelogError]


class GroupOffsets:
    """One per consumer with a group; the user's thread or task calls it."""

    def __init__(
        self,
        group: str,
        options: ConsumerOptions,
        core: ConsumerCore,
        post: Callable[[GroupMessage], None],
    ) -> None:
        self.ids: dict[TopicPartition, bytes] = {}
        """As the coordinator told them."""
        self.committed: dict[TopicPartition, int] = {}
        """As far as this consumer knows."""
        self.starts: deque[OffsetsFound] = deque()
        """Answers to lookups that nobody waits for: where partitions begin."""
        self.lost_undone: set[TopicPartition] = set()
        """Gone, with records that were delivered and belong to no transaction that counts."""
        self._group = group
        self._options = options
        self._core = core
        self._post = post
        self._results: deque[CommitDone | OffsetsFound] = deque()
        self._commits: dict[int, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._callbacks: dict[int, OnCommitted] = {}
        self._due_callbacks: deque[Callable[[], object]] = deque()
        self._outcomes: dict[int, Failures] = {}
        self._awaited: dict[int, None] = {}
        self._found: dict[int, OffsetsFound] = {}
        self._numbers = 0

    def receive(self, news: CommitDone | OffsetsFound) -> None:
        """Kept until the next `settle`."""
        self._results.append(news)

    def settle(self) -> None:
        """Take in what came; changes nothing of what is read."""
        while self._results:
            news = self._results.popleft()
            match news:
                case CommitDone():
                    self._on_committed(news)
                case OffsetsFound():
                    if news.number in self._awaited:
                        self._keep_found(news)
                    else:
                        self.starts.append(news)

    def forget(self, name: TopicPartition) -> None:
        """The partition is not read any more."""
        self.ids.pop(name, None)
        self.committed.pop(name, None)

    def id_of(self, name: TopicPartition) -> bytes:
        """Empty: not known yet."""
        known = self.ids.get(name)
        if known is not None:
            return known
        topic = self._core.metadata.topics.get(name.topic)
        return b"" if topic is None else topic.topic_id

    # Commits.

    def commit_delivered(self, *, is_awaited: bool = False) -> int | None:
        """What was delivered and is not committed yet, in the background."""
        if not self._options.enable_auto_commit:
            return None
        deadline_ns = time.monotonic_ns() + self._options.default_api_timeout_ms * MS
        return self.commit_changed(
            self.positions(self._core.partitions), deadline_ns, is_awaited=is_awaited
        )

    def commit_later(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        deadline_ns: int,
        callback: OnCommitted | None = None,
        *,
        is_awaited: bool = False,
    ) -> int | None:
        """Store them, or all positions; the number by which `outcome` tells; None: nothing to do.

        Every partition's topic must be known.
        """
        wanted = self.positions(self._core.partitions) if offsets is None else dict(offsets)
        if not wanted:
            if callback is not None:
                self._due_callbacks.append(lambda: callback({}, None))
            return None
        number = self._send_commit(wanted, deadline_ns)
        if callback is not None:
            self._callbacks[number] = callback
        if is_awaited:
            self._awaited[number] = None
        return number

    def is_answered(self, number: int) -> bool:
        """Whether `outcome` has something to tell."""
        return number in self._outcomes

    def outcome(self, number: int) -> Failures | None:
        """What became of an awaited commit; None: not known yet."""
        if number not in self._outcomes:
            return None
        self._awaited.pop(number, None)
        return self._outcomes.pop(number)

    def give_up(self, number: int) -> None:
        """Nobody waits for it any more."""
        self._awaited.pop(number, None)
        self._outcomes.pop(number, None)
        self._found.pop(number, None)

    def run_callbacks(self) -> None:
        """Of commit_async(), for those that were answered."""
        while self._due_callbacks:
            told = self._due_callbacks.popleft()()
            refuse_awaitable(told, "callback", "tell what became of commit_async()")

    def commit_changed(
        self,
        positions: dict[TopicPartition, OffsetAndMetadata],
        deadline_ns: int,
        *,
        is_awaited: bool = False,
    ) -> int | None:
        """Those that are not committed yet; None: there are none. Of a topic that is not known
        yet nothing was read: a place that was sought there is not committed by the way."""
        changed = {
            name: at
            for name, at in positions.items()
            if self.committed.get(name) != at.offset and self.id_of(name)
        }
        if not changed:
            return None
        number = self._send_commit(changed, deadline_ns)
        if is_awaited:
            self._awaited[number] = None
        return number

    def _send_commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], deadline_ns: int
    ) -> int:
        self._numbers += 1
        number = self._numbers
        self._commits[number] = offsets
        wanted = tuple(
            OffsetToCommit(
                topic_partition=name,
                topic_id=TopicId(self.id_of(name)),
                committed_offset=Offset(at.offset),
                leader_epoch=LeaderEpoch(at.leader_epoch),
                metadata=at.metadata,
            )
            for name, at in offsets.items()
        )
        self._post(CommitWanted(number=number, offsets=wanted, deadline_ns=deadline_ns))
        return number

    def _on_committed(self, news: CommitDone) -> None:
        offsets = self._commits.pop(news.number, {})
        failures = dict(news.failures)
        for name, at in offsets.items():
            if name not in failures and name in self._core.partitions:
                self.committed[name] = at.offset
        callback = self._callbacks.pop(news.number, None)
        if callback is not None:
            error = commit_error(self._group, failures) if failures else None
            self._due_callbacks.append(lambda: callback(offsets, error))
        if news.number in self._awaited:
            self._outcomes[news.number] = failures
        elif failures and callback is None:
            _log.warning("auto-commit: %s", commit_error(self._group, failures))

    def positions(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of those that have one."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for name in names:
            state = self._core.partitions[name]
            if state.position is not None:
                epoch = state.epochs.before(state.position)
                found[name] = OffsetAndMetadata(state.position, "", epoch)
        return found

    # Transactions, which commit by a producer what was delivered.

    def undone(self) -> dict[TopicPartition, int]:
        """Where begins what was delivered since the last transaction that counts."""
        found = self._core.partitions.items()
        return {name: at for name, state in found if (at := state.handed_from) is not None}

    def settle_undone(self, committed: Mapping[TopicPartition, int]) -> None:
        """A transaction that counts has committed these."""
        self.lost_undone.clear()
        for name, offset in committed.items():
            state = self._core.partitions.get(name)
            if state is not None:
                self.committed[name] = offset
                state.handed_from = None if state.position == offset else offset

    def note_leaving(self, names: Iterable[TopicPartition]) -> None:
        """These are about to be read by others: what was delivered of them is not this member's
        to commit any more."""
        undone = self.undone()
        self.lost_undone |= undone.keys() & set(names)

    # Lookups of the user's.

    def look_up(self, partitions: Mapping[TopicPartition, bytes], deadline_ns: int | None) -> int:
        """What was committed; `found` tells. Without a deadline: where to begin, `starts` tells."""
        self._numbers += 1
        number = self._numbers
        if deadline_ns is not None:
            self._awaited[number] = None
        wanted = tuple(
            GroupPartition(topic_partition=name, topic_id=TopicId(topic_id))
            for name, topic_id in partitions.items()
        )
        self._post(
            LookupWanted(
                number=number,
                partitions=wanted,
                deadline_ns=deadline_ns,
                is_start=deadline_ns is None,
            )
        )
        return number

    def found(self, number: int) -> OffsetsFound | None:
        """The answer to `look_up`, once it is whole."""
        news = self._found.get(number)
        if news is None or not news.is_last:
            return None
        self.give_up(number)
        return news

    def _keep_found(self, news: OffsetsFound) -> None:
        before = self._found.get(news.number)
        offsets = news.offsets if before is None else (*before.offsets, *news.offsets)
        self._found[news.number] = OffsetsFound(
            number=news.number, offsets=offsets, error=news.error, is_last=news.is_last
        )
