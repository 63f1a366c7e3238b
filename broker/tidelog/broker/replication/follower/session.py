"""One stream as the follower keeps it: what it names, what it takes in, what it confirms. Pure.

Owns the incremental session of one lane to one leader. It must never take in an answer of another
session or behind a gap, batches of a partition that was named again since, or the watermark of a
log that may have parted from the leader's; nor give up records on the word of a start that no
leader has decided (`log_start`). Stop 7 of a record's walk.

Theory of operation. A stream begins with a full start: every partition that can say where it stands
is named. From then on a request tells what changed: partitions named again (they stand in `removed`
as well), positions, the highest answer that is written. Answers are taken in as they come; batches
are handed on at once, several answers ahead of what is written:

    expected_offset ≥ log end ≥ told position;   an answer counts from `named_at` on

A log that the leader has accepted is a prefix of the leader's, and so is it with all that comes
behind: only of such a log the leader's watermark counts.

Who is not in sync says again where it stands at each new partition epoch: the leader lets nobody in
by what was said before, as it may have been of a log that is gone. A stream that breaks loses a
suffix in both directions: the next one begins with a full start.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from tidelog.broker.directory.core.messages import CommitTo, TrimHead
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.follower.answer import take_news
from tidelog.broker.replication.follower.partition import FollowedPartition, FollowerEffect, Phase
from tidelog.broker.replication.shared.log_start import is_decided
from tidelog.broker.replication.shared.messages import (
    NO_EPOCH,
    FetchAnswer,
    FetchAsk,
    Followed,
    FollowerPosition,
    PartitionNews,
    ReplicationLimits,
    is_same_leadership,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey

NAMES_MAX: Final = 1_000
"""Partitions named in one request: the leader looks at each, and others wait meanwhile."""
CONFIRM_LAG_MAX: Final = 2
"""So many written answers may be unconfirmed while there is nothing else to tell: below the
leader's bound, or both would wait."""


class FollowerView(Protocol):
    """What a session may know of this broker's partitions."""

    def log(self, key: PartitionKey) -> PartitionLog | None:
        """None: it is not held here, or has stopped."""
        ...

    def is_settled(self, key: PartitionKey) -> bool:
        """Whether all that was asked of the log is done, be it by another session: only then its
        end is known."""
        ...

    def is_flush_sync(self, key: PartitionKey) -> bool:
        """Whether the leader waits for what is flushed here, not for what is written."""
        ...

    def is_in_sync(self, key: PartitionKey) -> bool:
        """Whether this broker is in the in-sync set, as far as it has heard."""
        ...


class FollowerSession:
    """`follow` and `unfollow` by the metadata; `next_request`, `on_answer` along the stream."""

    def __init__(self, view: FollowerView, limits: ReplicationLimits) -> None:
        assert limits.unconfirmed_answers_max > CONFIRM_LAG_MAX, "else leader and follower wait"
        self.view = view
        self.limits = limits
        self.partitions: dict[PartitionKey, FollowedPartition] = {}
        self.session_id = 0
        self.session_sequence = 0
        """Of the last request; 0: a full start is due."""
        self.last_answer = 0
        self.max_bytes = limits.answer_bytes_max
        """Of an answer, from the next request on."""
        self.confirmed_answer = 0
        """Of all answers up to it everything is written."""
        self._told_confirmed = 0
        self._unwritten: deque[list[int]] = deque()
        """Answers from the first unconfirmed one on: number, and appends that are not written."""
        self._wanted: dict[PartitionKey, None] = {}
        self._refused: dict[PartitionKey, None] = {}
        self._moved: dict[PartitionKey, None] = {}
        self._removed: dict[PartitionKey, None] = {}

    # -- what is followed --------------------------------------------------------------------------

    def follow(self, key: PartitionKey, followed: Followed) -> None:
        """Pull the partition from now on, or under another epoch."""
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = FollowedPartition(key, followed)
        elif partition.phase is Phase.NAMED and is_same_leadership(partition.followed, followed):
            partition.followed = followed
            if self._is_to_repeat(partition):
                self._moved[key] = None
            return
        partition.followed = followed
        partition.retry_ms = 0
        if partition.phase is not Phase.BUSY:
            partition.phase = Phase.WANTED
        self._wanted[key] = None

    def unfollow(self, key: PartitionKey) -> None:
        """Pull it no more."""
        partition = self.partitions.pop(key, None)
        if partition is not None and partition.was_named:
            self._removed[key] = None
        self._wanted.pop(key, None)
        self._refused.pop(key, None)
        self._moved.pop(key, None)

    def on_moved(self, key: PartitionKey) -> None:
        """Log end or flushed offset of the log have moved."""
        if key in self.partitions:
            self._moved[key] = None

    def on_advanced(self, key: PartitionKey) -> list[FollowerEffect]:
        """The watermark of the log has moved."""
        partition = self.partitions.get(key)
        return [] if partition is None else self._trim(partition)

    # -- requests ----------------------------------------------------------------------------------

    def reset(self) -> None:
        """The stream broke, or something was lost on it: everything is named again."""
        self.session_sequence = self.last_answer = 0
        self.confirmed_answer = self._told_confirmed = 0
        self._unwritten.clear()
        self._removed.clear()
        self._moved.clear()
        for partition in self.partitions.values():
            partition.was_named = False
            if partition.phase is Phase.NAMED:
                partition.phase = Phase.WANTED
            if partition.phase is Phase.WANTED:
                self._wanted[partition.key] = None

    @property
    def is_start_due(self) -> bool:
        """Whether `start` comes next."""
        return self.session_sequence == 0

    def start(self, session_id: int) -> FetchAsk:
        """The full start of a new session."""
        assert self.is_start_due, "a session starts once"
        assert session_id > self.session_id, f"session {session_id} comes after {self.session_id}"
        self.session_id = session_id
        self.session_sequence = 1
        return FetchAsk(
            session_id=session_id,
            session_sequence=1,
            positions=tuple(self._name_wanted()),
            max_bytes=self.max_bytes,
        )

    def next_request(self, now_ms: int, *, may_confirm: bool = True) -> FetchAsk | None:
        """What the leader is to know; None: nothing has changed that it waits for."""
        assert not self.is_start_due, "a session begins with a full start"
        self._want_again(now_ms)
        confirmed = self.confirmed_answer if may_confirm else self._told_confirmed
        is_due = (
            bool(self._removed)
            or any(self._can_be_named(key) for key in self._wanted)
            or confirmed - self._told_confirmed >= CONFIRM_LAG_MAX
            or any(self._is_awaited(key) for key in self._moved)
        )
        if not is_due:
            return None
        self.session_sequence += 1
        named = self._name_wanted()
        positions = self._progress()
        for position in named:
            # Named again: it stands in `removed` as well.
            self._removed[position.key] = None
        return self._ask(confirmed, (*named, *positions))

    def probe(self) -> FetchAsk:
        """Ask whether the leader still hears: it answers a request that says nothing."""
        assert not self.is_start_due, "a session begins with a full start"
        self.session_sequence += 1
        return self._ask(self._told_confirmed, ())

    def next_retry_ms(self) -> int | None:
        """When a refused partition is to be named again."""
        refused = [self.partitions[key].retry_at_ms for key in self._refused]
        return min(refused, default=None)

    # -- answers -----------------------------------------------------------------------------------

    def on_answer(self, answer: FetchAnswer, now_ms: int) -> list[FollowerEffect]:
        """Take an answer in; one that does not follow the last one leads to a full start."""
        if answer.session_id != self.session_id or self.is_start_due:
            return []
        if answer.is_full_start_wanted or answer.answer_sequence != self.last_answer + 1:
            self.reset()
            return []
        self.last_answer = answer.answer_sequence
        token = (self.session_id, answer.answer_sequence)
        effects: list[FollowerEffect] = []
        appends = 0
        for news in answer.partitions:
            partition = self.partitions.get(news.key)
            if (
                partition is None
                or partition.phase is not Phase.NAMED
                or answer.session_sequence < partition.named_at
            ):
                continue
            appends += take_news(self, partition, news, token, now_ms, effects)
        self._unwritten.append([answer.answer_sequence, appends])
        self._confirm()
        return effects

    def on_appended(
        self, key: PartitionKey, token: tuple[int, int], error: TidelogError | None, now_ms: int
    ) -> None:
        """Batches of an answer are written, or were refused."""
        if token[0] == self.session_id:
            for unwritten in self._unwritten:
                if unwritten[0] == token[1]:
                    unwritten[1] -= 1
                    break
            self._confirm()
        partition = self.partitions.get(key)
        if partition is None or partition.phase is not Phase.NAMED:
            return
        if error is None:
            partition.retry_ms = 0
        else:
            self.refuse(partition, now_ms)

    def on_changed(self, key: PartitionKey, error: TidelogError | None, now_ms: int) -> None:
        """The log was cut or emptied, or could not be."""
        partition = self.partitions.get(key)
        if partition is None or partition.phase is not Phase.BUSY:
            return
        if error is not None:
            self.refuse(partition, now_ms)
            return
        self.want(partition)

    def on_trimmed(self, key: PartitionKey) -> None:
        """The log was trimmed, or could not be."""
        partition = self.partitions.get(key)
        if partition is not None:
            partition.is_trimming = False

    # -- used by `follower.answer` -----------------------------------------------------------------

    def refuse(self, partition: FollowedPartition, now_ms: int) -> None:
        """Name it again after a while."""
        partition.refuse(now_ms, self.limits.retry_ms, self.limits.retry_ms_max)
        self._refused[partition.key] = None

    def take_numbers(
        self, partition: FollowedPartition, news: PartitionNews, effects: list[FollowerEffect]
    ) -> None:
        """Hand on what the leader's numbers say."""
        start = (news.log_start_offset, news.log_start_epoch)
        if start > (partition.leader_start_offset, partition.leader_start_epoch):
            partition.leader_start_offset, partition.leader_start_epoch = start
            effects += self._trim(partition)
        if news.high_watermark > partition.high_watermark:
            partition.high_watermark = news.high_watermark
            effects.append(
                CommitTo(
                    key=partition.key,
                    leader_epoch=partition.followed.leader_epoch,
                    offset=news.high_watermark,
                )
            )

    def want(self, partition: FollowedPartition) -> None:
        """Name it again with the next request."""
        partition.phase = Phase.WANTED
        self._wanted[partition.key] = None

    # -- parts -------------------------------------------------------------------------------------

    def _trim(self, partition: FollowedPartition) -> list[FollowerEffect]:
        """Trim to the leader's start, if a leader has decided it, once all below it is known to be
        committed here as well."""
        log = self.view.log(partition.key)
        offset, epoch = partition.leader_start_offset, partition.leader_start_epoch
        if log is None or partition.phase is not Phase.NAMED or partition.is_trimming:
            return []
        # The same start may tell who moved it, of which this log does not know it.
        is_new = (offset, epoch) > (log.log_start_offset, log.log_start_epoch)
        is_unmarked = offset > log.log_start_offset or log.log_start_epoch == NO_EPOCH
        if not (is_new and is_unmarked and 0 < offset <= log.high_watermark):
            return []
        if not is_decided(epoch, partition.followed.leader_epoch):
            return []
        partition.is_trimming = True
        return [TrimHead(key=partition.key, offset=offset, start_epoch=epoch)]

    def _confirm(self) -> None:
        while self._unwritten and not self._unwritten[0][1]:
            self.confirmed_answer = self._unwritten.popleft()[0]

    def _want_again(self, now_ms: int) -> None:
        for key in list(self._refused):
            partition = self.partitions[key]
            if partition.phase is not Phase.REFUSED:
                del self._refused[key]
            elif partition.retry_at_ms <= now_ms:
                del self._refused[key]
                self.want(partition)

    def _can_be_named(self, key: PartitionKey) -> bool:
        """Whether the next request may say where it stands."""
        is_wanted = self.partitions[key].phase is Phase.WANTED
        return is_wanted and self.view.is_settled(key) and self.view.log(key) is not None

    def _name_wanted(self) -> list[FollowerPosition]:
        """Name what can be named, but not too much at once; the rest stays wanted."""
        positions: list[FollowerPosition] = []
        wanted, self._wanted = self._wanted, {}
        for key in wanted:
            if len(positions) >= NAMES_MAX:
                self._wanted[key] = None
                continue
            partition = self.partitions[key]
            log = self.view.log(key)
            if partition.phase is not Phase.WANTED:
                continue
            if log is None or not self.view.is_settled(key):
                self._wanted[key] = None
                continue
            positions.append(partition.name(log, self.session_sequence))
            self._moved.pop(key, None)
        return positions

    def _progress(self) -> Iterable[FollowerPosition]:
        moved, self._moved = self._moved, {}
        for key in moved:
            partition = self.partitions[key]
            log = self.view.log(key)
            if log is None or partition.phase is not Phase.NAMED:
                continue
            position = partition.position(log)
            ends = (position.log_end_offset, position.flushed_offset)
            if ends != partition.told or self._is_to_repeat(partition):
                partition.tell(position)
                yield position

    def _is_awaited(self, key: PartitionKey) -> bool:
        """Whether the leader waits for this position: what is only written is told along with the
        next request, where what counts is the flush behind it."""
        partition = self.partitions[key]
        log = self.view.log(key)
        if log is None or partition.phase is not Phase.NAMED:
            return False
        if self._is_to_repeat(partition):
            return True
        told_end, told_flushed = partition.told
        if min(log.flushed_offset, log.log_end_offset) != told_flushed:
            return True
        return log.log_end_offset != told_end and not self.view.is_flush_sync(key)

    def _is_to_repeat(self, partition: FollowedPartition) -> bool:
        """Whether the leader lets it in only once it has said again where it stands."""
        is_told = partition.told_partition_epoch == partition.followed.partition_epoch
        return not (is_told or self.view.is_in_sync(partition.key))

    def _ask(self, confirmed: int, positions: tuple[FollowerPosition, ...]) -> FetchAsk:
        removed, self._removed = self._removed, {}
        self._told_confirmed = confirmed
        return FetchAsk(
            session_id=self.session_id,
            session_sequence=self.session_sequence,
            positions=positions,
            removed=tuple(removed),
            confirmed_answer=confirmed,
            max_bytes=self.max_bytes,
        )
