"""The user's side of a group member, on either driver: what is read, committed, told to whom.

Owns the news that wait for the next poll, the partitions between "assigned" and "begun", and what
auto-commit may commit: what earlier polls have delivered. It must never commit a record that the
user may still be busy with, nor say that a partition was let go while it can still be delivered.
It waits for nobody: who waits belongs to the drivers.

A rebalance costs the partitions that stay nothing: what is taken away is held back and committed
while the others go on being delivered, and is let go once the commit is answered.
"""

import logging
import queue
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from typing import Any, Final

import msgspec

from tidelog.client.arguments.options import ConsumerOptions
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.partition import PartitionState
from tidelog.client.engine.group.messages import (
    Assign,
    CommitDone,
    CommittedOffset,
    GroupMessage,
    GroupNews,
    HasLeft,
    Lost,
    OffsetsFound,
    Reconciled,
    Revoke,
    Subscribed,
)
from tidelog.client.engine.group.settings import GroupSettings
from tidelog.client.reading.group_offsets import Failures, GroupOffsets
from tidelog.client.reading.group_options import commit_error
from tidelog.client.types.records import ConsumerGroupMetadata, TopicPartition
from tidelog.wire.calls.groups import Subscription
from tidelog.wire.errors import TidelogError

_log = logging.getLogger("tidelog.client")
MS: Final = 1_000_000
LEASE_LOOK_S: Final = 0.1
"""How often a consumer that may not deliver looks whether it may again."""

Told = Callable[[], Awaitable[None] | None]


class UserHooks(msgspec.Struct, frozen=True, kw_only=True):
    """What the consumer does with what the user is in the middle of."""

    note_position: Callable[[], None]
    """What he took becomes the position."""
    put_back_chunk_of: Callable[[Collection[TopicPartition]], None]
    """What he did not take of these is not given to him."""
    forget_chunk: Callable[[], None]
    """What is read was changed."""


class Standing(msgspec.Struct, frozen=True):
    """How the member stands, as its core knows: told whole, never changed in place."""

    lease_until_ns: int | None = None
    """Nothing is delivered after it; None: not a member."""
    member_epoch: int = 0
    is_idle: bool = False


OUTSIDE: Final = Standing()


class GroupSide:
    """One per consumer with a group; the user's thread or task calls it, but for `receive`.

    Whoever runs the core, perhaps on another thread, shares no state with it: the core's news come
    through an inbox that this side empties, its standing and the time of the last poll are values
    that one of the two replaces and the other reads.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        settings: GroupSettings,
        core: ConsumerCore,
        post: Callable[[GroupMessage], None],
        user: UserHooks,
    ) -> None:
        self.settings = settings
        self.subscription = Subscription()
        self.listener: Any = None
        self.polled_at_ns: int | None = None
        """Told to whoever runs the core: when the last poll ended; None: inside one."""
        self.standing = OUTSIDE
        """Told by whoever runs the core."""
        self.offsets = GroupOffsets(settings.group, options, core, post)
        self.errors: deque[TidelogError] = deque()
        self._options = options
        self._core = core
        self._post = post
        self._user = user
        self._inbox: queue.SimpleQueue[GroupNews] = queue.SimpleQueue()
        """All that goes from one thread to the other."""
        self._moves: deque[Revoke | Assign | Lost] = deque()
        self._to_begin: dict[TopicPartition, None] = {}
        """Held until it is known where they begin."""
        self._lookup: int | None = None
        self._revoking: tuple[Revoke, int | None] | None = None
        """With the number of the commit that is waited for."""
        self._commit_at_ns = 0

    # From who runs the core, on any thread.

    def receive(self, news: GroupNews) -> None:
        """Kept for the user's next call."""
        self._inbox.put(news)

    def _take_news(self) -> None:
        """Sort what has come; a loss makes void what was told before it."""
        while not self._inbox.empty():
            news = self._inbox.get_nowait()
            match news:
                case Lost():
                    self._moves.clear()
                    self._moves.append(news)
                case Revoke() | Assign():
                    self._moves.append(news)
                case CommitDone() | OffsetsFound():
                    self.offsets.receive(news)
                case HasLeft():
                    # Whoever says farewell waits at the loop itself.
                    pass

    # What is read.

    @property
    def is_member(self) -> bool:
        """Whether the coordinator says what is read; otherwise the user does, by assign()."""
        return not self.subscription.is_empty

    @property
    def has_moves(self) -> bool:
        """Whether partitions come or go: somebody should attend."""
        self._take_news()
        return bool(self._moves)

    def may_deliver(self, now_ns: int) -> bool:
        """Whether what is assigned is certainly nobody else's at this moment."""
        if not self.is_member:
            return True
        until_ns = self.standing.lease_until_ns
        return until_ns is not None and now_ns < until_ns

    def subscribe(self, subscription: Subscription, listener: object) -> None:
        """Be a member; the coordinator is told with the next heartbeat."""
        if not self.is_member:
            self._drop(tuple(self._core.partitions))
        self.listener = listener
        self.subscription = subscription
        self._core.be_member(subscription.topics, time.monotonic_ns())
        self._post(Subscribed(subscription=subscription))

    def end_membership(self) -> set[TopicPartition]:
        """The user reads nothing, or chooses himself: what was delivered is committed, then the
        member leaves. Tells which partitions it had.
        """
        if not self.is_member:
            return set()
        self._user.note_position()
        self.offsets.commit_delivered()
        had = set(self._core.partitions)
        self._take_news()
        self._moves.clear()
        self._revoking = self._lookup = None
        self.subscription = Subscription()
        self._core.is_member = False
        self._post(Subscribed(subscription=self.subscription))
        self._drop(tuple(self._core.partitions))
        return had

    def assign(self, wanted: Iterable[TopicPartition], now_ns: int) -> None:
        """The user's own choice: it begins where the group has committed."""
        before, kept = set(self._core.partitions), list(wanted)
        self.offsets.note_leaving(before.difference(kept))
        self._core.assign(kept, now_ns)
        gone = before - self._core.partitions.keys()
        for name in gone:
            self._forget(name)
        self._hold_new([name for name in self._core.partitions if name not in before])

    def _hold_new(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            self._core.hold(name)
            self._to_begin[name] = None

    def _drop(self, names: Iterable[TopicPartition]) -> None:
        gone = set(names)
        kept = [name for name in self._core.partitions if name not in gone]
        self._user.note_position()
        self.offsets.note_leaving(gone)
        self._core.assign(kept, time.monotonic_ns())
        for name in gone:
            self._forget(name)
        self._user.forget_chunk()

    def _forget(self, name: TopicPartition) -> None:
        self._to_begin.pop(name, None)
        self.offsets.forget(name)

    # Inside a poll.

    def attend(self, now_ns: int) -> Generator[Told, None, None]:
        """Take up the news; what is yielded is to be called (and awaited) before going on.

        Also commits what is due. Called before anything is delivered: whatever was delivered until
        now the user has done with.
        """
        self._user.note_position()
        self.settle()
        self.offsets.run_callbacks()
        revoking = self._revoking
        if revoking is not None and (revoking[1] is None or self.offsets.is_answered(revoking[1])):
            yield from self._finish_revoke()
        while (news := self._next_move()) is not None:
            match news:
                case Revoke():
                    yield from self._begin_revoke(news)
                case Assign():
                    yield from self._take_up(news, now_ns)
                case Lost():
                    yield from self._lose(news)
        self._begin_lookups()
        if self._options.enable_auto_commit and now_ns >= self._commit_at_ns:
            self._commit_at_ns = now_ns + self._options.auto_commit_interval_ms * MS
            self.offsets.commit_delivered()

    def _next_move(self) -> Revoke | Assign | Lost | None:
        """One after the other; only a loss does not wait for what is being taken away."""
        self._take_news()
        if self._moves and (self._revoking is None or isinstance(self._moves[0], Lost)):
            return self._moves.popleft()
        return None

    def commit_due_s(self, now_ns: int) -> float:
        """When auto-commit is due, from now."""
        if not self._options.enable_auto_commit:
            return 3600.0
        return max(0.0, (self._commit_at_ns - now_ns) / 1e9)

    def _begin_revoke(self, news: Revoke) -> Generator[Told, None, None]:
        names = [each.topic_partition for each in news.partitions]
        held = [name for name in names if name in self._core.partitions]
        self._user.put_back_chunk_of(held)
        for name in held:
            # A lookup that is answered now would release it.
            self._to_begin.pop(name, None)
            self._core.hold(name)
        number = None
        if self._options.enable_auto_commit:
            number = self.offsets.commit_changed(
                self.offsets.positions(held), self._revoke_deadline_ns(), is_awaited=True
            )
        self._revoking = news, number
        self._user.forget_chunk()
        if number is None:
            yield from self._finish_revoke()

    def _finish_revoke(self) -> Generator[Told, None, None]:
        assert self._revoking is not None, "nothing is being taken away"
        news, number = self._revoking
        names = {each.topic_partition for each in news.partitions}
        if number is not None:
            failures = self.offsets.outcome(number)
            if failures:
                _log.warning("%s", commit_error(self.settings.group, failures))
        told = self.listener
        try:
            if told is not None:
                yield lambda: told.on_partitions_revoked(names)
        finally:
            # Also if the listener was interrupted: it has been told.
            self._end_revoke(news, names)

    def _end_revoke(self, news: Revoke, names: set[TopicPartition]) -> None:
        if self._revoking is None or self._revoking[0] is not news:
            # The listener has unsubscribed.
            return
        self._revoking = None
        self._drop(names)
        self._post(Reconciled(number=news.number))

    def _take_up(self, news: Assign, now_ns: int) -> Generator[Told, None, None]:
        names = [each.topic_partition for each in news.partitions]
        self._user.note_position()
        self._core.assign([*self._core.partitions, *names], now_ns)
        for each in news.partitions:
            self._core.trust_group(each.topic_partition, each.topic_id, now_ns)
        self.offsets.ids.update((each.topic_partition, each.topic_id) for each in news.partitions)
        self._hold_new(names)
        self._user.forget_chunk()
        self._post(Reconciled(number=news.number))
        told = self.listener
        if told is not None:
            yield lambda: told.on_partitions_assigned(set(names))

    def _lose(self, news: Lost) -> Generator[Told, None, None]:
        names = set(self._core.partitions)
        if self._revoking is not None and self._revoking[1] is not None:
            self.offsets.give_up(self._revoking[1])
        self._revoking = None
        for name in names:
            self._core.hold(name)
        told = self.listener
        try:
            if told is not None and names:
                lost = getattr(told, "on_partitions_lost", told.on_partitions_revoked)
                yield lambda: lost(names)
        finally:
            self._drop(names)
            self._lookup = None
            self._post(Reconciled(number=news.number))
            if news.is_refused:
                self.errors.append(news.error)

    # Where to begin.

    def settle(self) -> None:
        """Take in what came of commits and lookups; changes nothing but where to begin."""
        self._take_news()
        self.offsets.settle()
        while self.offsets.starts:
            news = self.offsets.starts.popleft()
            if news.number == self._lookup:
                self._on_starts(news)
        self._begin_lookups()

    def _begin_lookups(self) -> None:
        if self._lookup is not None:
            return
        known = {
            name: topic_id for name in self._to_begin if (topic_id := self.offsets.id_of(name))
        }
        if known:
            self._lookup = self.offsets.look_up(known, None)

    def _on_starts(self, news: OffsetsFound) -> None:
        if news.is_last or news.error is not None:
            self._lookup = None
        if news.error is not None:
            self.errors.append(news.error)
        for each in news.offsets:
            name = each.topic_partition
            if name not in self._to_begin:
                continue
            if each.error is not None:
                self.errors.append(each.error)
                continue
            if self.offsets.id_of(name) != each.topic_id:
                # The topic was made again meanwhile: an offset of its namesake is not its own.
                continue
            del self._to_begin[name]
            state = self._core.partitions.get(name)
            if state is not None and state.is_held:
                self._begin(state, each)
        self._user.forget_chunk()

    def _begin(self, state: PartitionState, found: CommittedOffset) -> None:
        state.is_held = False
        if found.committed_offset < 0:
            return
        name = state.topic_partition
        self.offsets.committed[name] = found.committed_offset
        self._core.trust_group(name, found.topic_id, time.monotonic_ns())
        self._core.seek(name, found.committed_offset, found.leader_epoch)

    def outcome(self, number: int) -> Failures | None:
        """What became of a commit that is waited for; None: not known yet."""
        self.settle()
        return self.offsets.outcome(number)

    def found(self, number: int) -> OffsetsFound | None:
        """What was looked up; None: not known yet."""
        self.settle()
        return self.offsets.found(number)

    # The rest.

    def metadata(self) -> ConsumerGroupMetadata:
        """For whom a transaction commits offsets, and for people."""
        return ConsumerGroupMetadata(
            group_id=self.settings.group,
            member_epoch=self.standing.member_epoch,
            member_id=self.settings.member_id if self.is_member else "",
            group_instance_id=self._options.group_instance_id,
        )

    def take_error(self) -> TidelogError | None:
        """What the user must see, once."""
        return self.errors.popleft() if self.errors else None

    def _revoke_deadline_ns(self) -> int:
        """Well before the coordinator removes who does not give up what it should."""
        limit_ms = min(
            self._options.default_api_timeout_ms, self._options.max_poll_interval_ms // 2
        )
        return time.monotonic_ns() + limit_ms * MS
