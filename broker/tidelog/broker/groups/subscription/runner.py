"""Runs one subscription: between its client, the group's coordinator, and the partitions' leaders.

Owns the tasks of one stream. Whatever happens is told to the core, in one task's turn; what the
core wants is done here. One read is under way at each leader, for all of its partitions. It must
never send anything that the core has not said, nor keep a read after what it is for has changed.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Final, Protocol, assert_never

import msgspec

from tidelog.broker.groups.coordinator.leader_offsets import Found
from tidelog.broker.groups.coordinator.watermarks import OwnOffsets
from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.messages import (
    Bounds,
    ChangeReads,
    Effect,
    EndStream,
    FindPositions,
    Position,
    SendAcknowledged,
    SendAssignment,
    SendCommit,
    SendHeartbeat,
    SendRecords,
)
from tidelog.broker.groups.subscription.core.partition import size_of
from tidelog.broker.groups.subscription.core.subscription import Subscription
from tidelog.ports import Clock, TaskScope
from tidelog.wire.batch import DecodedRecord
from tidelog.wire.calls.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
    StoredOffset,
)
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import NO_OFFSET, BrokerId, Offset, PartitionKey, TopicId

NS_PER_MS: Final = 1_000_000
ForClient = SendRecords | SendAssignment | SendAcknowledged
Send = Callable[[ForClient], Awaitable[None]]


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What a read brought of one partition."""

    key: PartitionKey
    error: TidelogError | None = None
    records: list[DecodedRecord] = []
    next_offset: Offset = NO_OFFSET
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET


class GroupPort(Protocol):
    """The way to a group's coordinator; typed errors of it and of the way."""

    async def heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        """One heartbeat."""
        ...

    async def commit(self, request: CommitOffsets) -> CommitAnswer:
        """One commit."""
        ...

    async def fetch_offsets(self, request: FetchOffsets) -> FetchOffsetsAnswer:
        """What is committed."""
        ...


class ReadPort(Protocol):
    """The way to partitions."""

    def leader(self, key: PartitionKey) -> BrokerId | None:
        """Who leads it; None: nobody at the moment."""
        ...

    async def offsets(self, keys: Sequence[PartitionKey]) -> Found:
        """Between which offsets they hold records."""
        ...

    async def read(
        self, broker_id: BrokerId, wanted: Mapping[PartitionKey, int], isolation: IsolationLevel
    ) -> list[Read]:
        """What there is from these offsets on; waits for the first record, empty without any."""
        ...


class SubscriptionRunner:
    """`run` until the stream ends; `acknowledge` and `grant` as the client says so."""

    def __init__(
        self,
        subscription: Subscription,
        group: GroupPort,
        reads: ReadPort,
        clock: Clock,
        send: Send,
    ) -> None:
        self._core = subscription
        self._group = group
        self._reads = reads
        self._clock = clock
        self._send = send
        self._outbox: deque[ForClient] = deque()
        self._outbox_bytes = 0
        """Records that the client has not taken yet: beyond a bound nothing more is read."""
        self._outbox_answers = 0
        """Answers that the client has not taken yet, with the failures in them; bounded as well."""
        self._has_mail = asyncio.Event()
        self._is_sending = False
        self._has_progressed = asyncio.Event()
        """Something was sent, or a commit was answered: `finish` looks again."""
        self._have_reads_changed = asyncio.Event()
        self._reading: dict[BrokerId, tuple[asyncio.Task[None], dict[PartitionKey, int]]] = {}
        self._due: list[Effect] = []
        """Said before the tasks run."""
        self._scope: TaskScope | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def core(self) -> Subscription:
        """To be looked at."""
        return self._core

    async def run(self) -> None:
        """Until cancelled; raises the error for which the stream has to end."""
        async with TaskScope() as scope:
            self._scope = scope
            scope.start(self._deliver(), name="subscription answers")
            scope.start(self._follow_reads(), name="subscription reads")
            due, self._due = self._due, []
            try:
                self._perform(due)
                self.tick(self._now_ms())
                await self._ended
            finally:
                # The host still tells it of time and topics until whoever opened the stream has
                # taken it off: what begins in a closed scope would end the task of all streams.
                self._scope = None

    def tick(self, now_ms: int) -> None:
        """Monotonic time has passed."""
        if self._scope is not None and now_ms >= self._core.next_deadline_ms():
            self._perform(self._core.tick(now_ms))

    def acknowledge(self, positions: Sequence[Position], correlation_id: int) -> None:
        """The client has done with records."""
        # Looked at when it sends the next one, not when answers come: many may come at once, of
        # commits or of a lost membership, to a client that reads as it should.
        if self._outbox_answers >= limits.ANSWERS_WAITING_MAX:
            self._perform(self._core.on_answers_left())
            return
        self._perform(self._core.on_acknowledge(positions, correlation_id, self._now_ms()))

    def grant(self, records: int) -> None:
        """The client takes more."""
        self._perform(self._core.on_credit(records, self._now_ms()))

    async def finish(self) -> None:
        """The client has ended its sending: until all that it acknowledged is stored and told, or
        FINISH_MS are over; then it comes again to whoever reads next."""
        self._perform(self._core.finish())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.FINISH_MS / 1_000):
                while self._outbox or self._is_sending or not self._core.is_settled:
                    self._has_progressed.clear()
                    await self._has_progressed.wait()

    def show(self, partitions: Mapping[PartitionKey, str]) -> None:
        """Without a group: all partitions of its topics."""
        self._perform(self._core.on_topics(partitions, self._now_ms()))

    def forget(self, living: Container[TopicId]) -> None:
        """All topics but these were deleted."""
        self._perform(self._core.on_deleted(living, self._now_ms()))

    # -- effects ---------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        scope = self._scope
        if scope is None:
            self._due += effects
            return
        for effect in effects:
            match effect:
                case SendHeartbeat():
                    scope.start(self._heartbeat(effect.request), name="subscription heartbeat")
                case SendCommit():
                    scope.start(self._commit(effect.request), name="subscription commit")
                case FindPositions():
                    scope.start(self._find(effect), name="subscription positions")
                case SendRecords() | SendAssignment() | SendAcknowledged():
                    self._outbox.append(effect)
                    self._outbox_bytes += _size_of(effect)
                    self._outbox_answers += _answers_in(effect)
                    self._has_mail.set()
                case ChangeReads():
                    self._have_reads_changed.set()
                case EndStream():
                    if not self._ended.done():
                        self._ended.set_exception(effect.error)
                case _:
                    assert_never(effect)

    async def _heartbeat(self, request: Heartbeat) -> None:
        outcome: HeartbeatAnswer | TidelogError
        try:
            outcome = await self._group.heartbeat(request)
        except TidelogError as error:
            outcome = error
        self._perform(self._core.on_heartbeat(request, outcome, self._now_ms()))

    async def _commit(self, request: CommitOffsets) -> None:
        outcome: CommitAnswer | TidelogError
        try:
            outcome = await self._group.commit(request)
        except TidelogError as error:
            outcome = error
        self._perform(self._core.on_committed(request, outcome, self._now_ms()))
        self._has_progressed.set()

    async def _find(self, effect: FindPositions) -> None:
        found: Mapping[PartitionKey, Bounds | TidelogError] | TidelogError
        try:
            committed: dict[PartitionKey, int | TidelogError] = dict.fromkeys(effect.keys, -1)
            if effect.request is not None:
                answer = await self._group.fetch_offsets(effect.request)
                committed |= {key: _committed_offset(stored) for key, stored in answer.offsets}
            held = await self._reads.offsets(effect.keys)
            found = {key: _bounds(committed[key], held[key]) for key in effect.keys}
        except TidelogError as error:
            found = error
        self._perform(self._core.on_positions(effect.keys, found, self._now_ms()))

    async def _deliver(self) -> None:
        while True:
            while self._outbox:
                told = self._outbox.popleft()
                self._is_sending = True
                await self._send(told)
                self._is_sending = False
                self._has_progressed.set()
                self._outbox_bytes -= _size_of(told)
                self._outbox_answers -= _answers_in(told)
                self._have_reads_changed.set()
            self._has_mail.clear()
            await self._has_mail.wait()

    # -- reads -----------------------------------------------------------------------------------

    async def _follow_reads(self) -> None:
        """One read at each leader; those that are for something else by now are given up.

        One that may not begin now goes on if it is under way. Else the leader that answers first,
        this very broker most of all, would be the only one that is read: each of its answers can
        use up the credit, before another leader's answer is here.
        """
        assert self._scope is not None, "it is run in a scope"
        while True:
            self._have_reads_changed.clear()
            readable: dict[BrokerId, dict[PartitionKey, int]] = {}
            is_leaderless = False
            for key, offset in self._core.readable().items():
                leader = self._reads.leader(key)
                if leader is None:
                    is_leaderless = True
                else:
                    readable.setdefault(leader, {})[key] = offset
            for broker_id, (task, offsets) in list(self._reading.items()):
                if readable.get(broker_id) != offsets:
                    del self._reading[broker_id]
                    task.cancel()
            may_read = self._core.may_read and self._outbox_bytes < limits.BUFFER_BYTES_MAX
            for broker_id, offsets in readable.items():
                if may_read and broker_id not in self._reading:
                    task = self._scope.start(
                        self._read(broker_id, offsets), name="subscription read"
                    )
                    self._reading[broker_id] = (task, offsets)
            if may_read and is_leaderless:
                await self._clock.sleep(limits.RETRY_MS)
            else:
                await self._have_reads_changed.wait()

    async def _read(self, broker_id: BrokerId, wanted: dict[PartitionKey, int]) -> None:
        is_refused = False
        try:
            answers = await self._reads.read(broker_id, wanted, self._core.isolation)
        except TidelogError as failure:
            answers = [Read(key=key, error=failure) for key in wanted]
        for answer in answers:
            offset, error = wanted[answer.key], answer.error
            effects: list[Effect] = []
            if error is None:
                effects = self._core.on_records(
                    answer.key,
                    offset,
                    answer.records,
                    answer.next_offset,
                    answer.high_watermark,
                    answer.last_stable_offset,
                    self._now_ms(),
                )
            elif error.retriable:
                is_refused = True
            else:
                effects = self._core.on_read_failed(answer.key, offset, error, self._now_ms())
            self._perform(effects)
        if is_refused:
            await self._clock.sleep(limits.RETRY_MS)
        under_way = self._reading.get(broker_id)
        if under_way is not None and under_way[1] is wanted:
            del self._reading[broker_id]
        self._have_reads_changed.set()

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS


def _size_of(told: ForClient) -> int:
    return sum(map(size_of, told.records)) if isinstance(told, SendRecords) else 0


def _answers_in(told: ForClient) -> int:
    return 1 + len(told.failures) if isinstance(told, SendAcknowledged) else 0


def _committed_offset(stored: StoredOffset | TidelogError | None) -> int | TidelogError:
    if isinstance(stored, TidelogError):
        return stored
    return -1 if stored is None else stored.committed_offset


def _bounds(
    committed_offset: int | TidelogError, held: OwnOffsets | TidelogError
) -> Bounds | TidelogError:
    if isinstance(committed_offset, TidelogError):
        return committed_offset
    if isinstance(held, TidelogError):
        return held
    return Bounds(
        committed_offset=Offset(committed_offset),
        log_start_offset=held.log_start_offset,
        high_watermark=held.high_watermark,
        last_stable_offset=held.last_stable_offset,
    )
