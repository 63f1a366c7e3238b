"""The SDK's core of transactions with a small sender of records, over the cores' network.

Performs the effects of the core as the SDK's drivers do. The sender keeps several batches of a
partition on their way at once, under the sequences of the transaction's identity.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from tidelog.broker.transactions.state import answers, states
from tidelog.broker.transactions.state.messages import (
    DecidePrepared,
    EndTransaction,
    InitTransactionalProducer,
    PrepareTransaction,
)
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.transactions import wire
from tidelog.chaos.sim.transactions.broker import GROUPS, coordinator_log, shown
from tidelog.chaos.sim.transactions.client import (
    Folded,
    PreparedToken,
    Read,
    Records,
    Standing,
)
from tidelog.chaos.sim.world.process import SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.group.messages import OffsetToCommit
from tidelog.client.engine.transaction.core import TransactionCore
from tidelog.client.engine.transaction.messages import (
    Answered,
    BeginWanted,
    CallDone,
    Coordinated,
    CoordinatorFailed,
    CoordinatorFound,
    DecideWanted,
    DropRecords,
    EndWanted,
    FindCoordinator,
    Flush,
    Flushed,
    InitializeWanted,
    Member,
    OffsetsWanted,
    PrepareWanted,
    RecordsAdded,
    RecordsFailed,
    SendDecide,
    SendEnd,
    SendInitialize,
    SendOffsets,
    SendPrepare,
    TellCallWaits,
    Token,
    TransactionEffect,
    TransactionMessage,
    UseIdentity,
)
from tidelog.client.engine.transaction.phases import (
    Decision,
    Fenced,
    Identity,
    MustAbort,
    New,
    Open,
    Prepared,
    Ready,
    Undecided,
)
from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionId, TopicId

BACKOFF_MS: Final = (10, 200)
NS_PER_MS: Final = 1_000_000
SEND_RETRY_NS: Final = (2_000_000, 60_000_000)
_NO_TOPIC: Final = TopicId(bytes(16))
_STANDINGS: Final[dict[type, Standing]] = {
    New: Standing.NEW,
    Ready: Standing.READY,
    Open: Standing.OPEN,
    MustAbort: Standing.MUST_ABORT,
    Undecided: Standing.UNDECIDED,
    Fenced: Standing.FENCED,
    Prepared: Standing.PREPARED,
}


class _Batch:
    """One record on its way."""

    def __init__(
        self,
        identity: Identity,
        partition: str,
        sequence: int,
        value: str,
        done: "asyncio.Future[int]",
    ) -> None:
        self.identity = identity
        self.partition = partition
        self.sequence = sequence
        self.value = value
        self.done = done


class CoreClient:
    """Implements `TransactionalClient`."""

    def __init__(
        self,
        world: World,
        ports: SimulatedPorts,
        transactional_id: str,
        *,
        timeout_ms: int,
        call_ms: int,
        user_ms: int,
        brokers: tuple[str, ...],
        coordinators: int,
    ) -> None:
        self._world = world
        self._ports = ports
        self._random: SeededRandom = ports.random
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._call_ms = call_ms
        self._user_ms = user_ms
        self._brokers = brokers
        self._coordinators = coordinators
        first_ms, most_ms = BACKOFF_MS
        self.core = TransactionCore(
            transactional_id,
            Backoff(initial_ms=first_ms, max_ms=most_ms, salt=ports.random.below(1_000)),
        )
        self._identity: Identity | None = None
        self._sequences: dict[str, int] = {}
        self._unfinished: dict[_Batch, None] = {}
        self._flushing: set[_Batch] | None = None
        self._calls: dict[int, asyncio.Future[Token | None]] = {}
        self._last_call = 0
        self._news = asyncio.Event()
        self._places: dict[str, str] = {}
        self._generation = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_closed = False
        self._start(self._keep_time())

    # -- the user's calls ----------------------------------------------------------------------

    @property
    def standing(self) -> Standing:
        """Where it stands."""
        return _STANDINGS.get(type(self.core.phase), Standing.BUSY)

    async def initialize(self) -> None:
        """Take the transactional id over."""
        await self._call(InitializeWanted)

    async def begin(self) -> None:
        """A transaction begins."""
        await self._call(BeginWanted)

    async def commit(self) -> None:
        """All of it counts."""
        await self._call(EndWanted, decision=Decision.COMMIT)

    async def abort(self) -> None:
        """None of it counts."""
        await self._call(EndWanted, decision=Decision.ABORT)

    async def prepare(self) -> PreparedToken:
        """Whoever has the token decides."""
        return PreparedToken(await self._call(PrepareWanted))

    async def decide(self, token: PreparedToken, *, is_commit: bool) -> None:
        """Decides a prepared transaction."""
        await self._call(
            DecideWanted,
            token=token.token,
            decision=Decision.COMMIT if is_commit else Decision.ABORT,
        )

    async def send_offsets(self, group: str, folded: Folded) -> None:
        """The offsets of a group are part of the transaction."""
        offset = OffsetToCommit(
            topic_id=_NO_TOPIC,
            topic_partition=TopicPartition(group, PartitionId(0)),
            committed_offset=Offset(folded.position),
            metadata=str(folded.state),
        )
        await self._call(
            OffsetsWanted,
            member=Member(group=group, member_id=self._id, member_epoch=self._generation),
            offsets=(offset,),
        )

    async def send(self, partition: str, value: str) -> "asyncio.Future[int]":
        """A record leaves; its offset, once it is stored."""
        done: asyncio.Future[int] = self._world.loop.create_future()
        done.add_done_callback(_retrieve)
        if not isinstance(self.core.phase, Open) or self._identity is None:
            done.set_exception(_refused("no transaction is open"))
            return done
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        batch = _Batch(self._identity, partition, sequence, value, done)
        self._unfinished[batch] = None
        self._step(RecordsAdded())
        self._start(self._deliver(batch))
        return done

    async def close(self) -> None:
        """Nothing more is asked of it."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)

    async def _call(self, kind: Any, **arguments: object) -> Token | None:
        self._last_call += 1
        future: asyncio.Future[Token | None] = self._world.loop.create_future()
        self._calls[self._last_call] = future
        deadline_ns = self._now_ns() + self._user_ms * NS_PER_MS
        self._step(kind(call=self._last_call, deadline_ns=deadline_ns, **arguments))
        return await future

    # -- the core ------------------------------------------------------------------------------

    def _now_ns(self) -> int:
        return self._ports.clock.monotonic_ns()

    def _step(self, message: TransactionMessage) -> None:
        self._perform(self.core.step(message, self._now_ns()))

    async def _keep_time(self) -> None:
        while not self._is_closed:
            due_ns = self.core.next_deadline_ns()
            self._news.clear()
            if due_ns is None:
                await self._news.wait()
                continue
            if due_ns > self._now_ns():
                await sleep_ns(self._world.loop, min(due_ns - self._now_ns(), 20 * NS_PER_MS))
            self._perform(self.core.tick(self._now_ns()))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="client")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _perform(self, effects: list[TransactionEffect]) -> None:
        self._news.set()
        for effect in effects:
            match effect:
                case FindCoordinator():
                    self._start(self._find_coordinator(effect.of))
                case UseIdentity():
                    self._identity, self._sequences = effect.identity, {}
                case Flush():
                    self._flushing = set(self._unfinished)
                    self._look_flushed()
                case DropRecords():
                    self._drop(effect.error)
                case TellCallWaits():
                    pass  # Nobody reads a log here.
                case CallDone():
                    future = self._calls.pop(effect.call)
                    if future.done():
                        continue
                    if effect.error is not None:
                        future.set_exception(effect.error)
                    else:
                        future.set_result(effect.token)
                case _:
                    self._start(self._ask(effect))

    async def _find_coordinator(self, of: Coordinated) -> None:
        log = GROUPS if of.is_group else coordinator_log(of.name, self._coordinators)
        try:
            address = await self._look_up(log)
        except TidelogError as error:
            self._step(CoordinatorFailed(of=of, error=error))
        else:
            self._step(CoordinatorFound(of=of, address=address))

    async def _look_up(self, log: str) -> str:
        broker = self._brokers[self._random.below(len(self._brokers))]
        place = await wire.call(self._ports, broker, wire.Find(log=log), timeout_ms=self._call_ms)
        address: str = place.address
        return address

    async def _ask(
        self, effect: SendInitialize | SendOffsets | SendEnd | SendPrepare | SendDecide
    ) -> None:
        try:
            answer = await wire.call(
                self._ports, effect.address, self._request(effect), timeout_ms=self._call_ms
            )
        except TidelogError as error:
            is_doubtful = error.code in wire.DOUBTFUL
            self._step(Answered(number=effect.number, error=error, is_doubtful=is_doubtful))
            return
        identity = None
        if isinstance(answer, answers.InitAnswer | answers.EndAnswer):
            identity = Identity(answer.identity.producer_id, answer.identity.producer_epoch)
        self._step(Answered(number=effect.number, identity=identity))

    def _request(
        self, effect: SendInitialize | SendOffsets | SendEnd | SendPrepare | SendDecide
    ) -> object:
        match effect:
            case SendInitialize():
                expected = None if effect.expected is None else _told(effect.expected)
                return InitTransactionalProducer(
                    transactional_id=self._id,
                    transaction_timeout_ms=self._timeout_ms,
                    expected=expected,
                )
            case SendOffsets():
                (offset,) = effect.offsets
                return wire.SendOffsets(
                    group=effect.member.group,
                    generation=effect.member.member_epoch,
                    transactional_id=self._id,
                    identity=_told(effect.identity),
                    position=offset.committed_offset,
                    state=int(offset.metadata),
                )
            case SendEnd():
                return EndTransaction(
                    transactional_id=self._id,
                    identity=_told(effect.identity),
                    decision=_DECISIONS[effect.decision],
                )
            case SendPrepare():
                return PrepareTransaction(
                    transactional_id=self._id,
                    identity=_told(effect.identity),
                    principal="somebody",
                )
            case SendDecide():
                return DecidePrepared(
                    transactional_id=effect.token.transactional_id,
                    identity=_told(effect.token.identity),
                    decision=_DECISIONS[effect.decision],
                )

    # -- records -------------------------------------------------------------------------------

    async def _deliver(self, batch: _Batch) -> None:
        """Sends it until it is stored, refused for good, or dropped."""
        request = wire.Produce(
            partition=batch.partition,
            transactional_id=self._id,
            identity=_told(batch.identity),
            sequence=batch.sequence,
            value=batch.value,
        )
        while batch in self._unfinished:
            try:
                answer = await self._ask_leader(batch.partition, request)
            except TidelogError as error:
                if not (error.retriable or error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE):
                    self._fail(batch, error)
                    return
                await sleep_ns(self._world.loop, self._random.between(*SEND_RETRY_NS))
                continue
            self._finish(batch, answer.offset)

    async def _ask_leader(self, partition: str, request: object) -> Any:
        try:
            if partition not in self._places:
                self._places[partition] = await self._look_up(partition)
            return await wire.call(
                self._ports, self._places[partition], request, timeout_ms=self._call_ms
            )
        except TidelogError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._places.pop(partition, None)
            raise

    def _finish(self, batch: _Batch, offset: int) -> None:
        if batch in self._unfinished:
            del self._unfinished[batch]
            batch.done.set_result(offset)
            self._look_flushed()

    def _fail(self, batch: _Batch, error: TidelogError) -> None:
        if batch in self._unfinished:
            del self._unfinished[batch]
            batch.done.set_exception(error)
            if batch.identity == self._identity:
                self._step(RecordsFailed(error))
            self._look_flushed()

    def _drop(self, error: TidelogError) -> None:
        for batch in list(self._unfinished):
            del self._unfinished[batch]
            batch.done.set_exception(error)
        self._flushing = None

    def _look_flushed(self) -> None:
        if self._flushing is not None and not self._flushing & self._unfinished.keys():
            self._flushing = None
            self._step(Flushed())

    # -- reading -------------------------------------------------------------------------------

    async def read(self, positions: Mapping[str, int], *, records_max: int, to_end: bool) -> Read:
        """Polls each partition from its position."""
        records: dict[str, Records] = {}
        after: dict[str, int] = dict(positions)
        ends: dict[str, int] = {}
        if to_end:
            for name in positions:
                ask = wire.Fetch(partition=name, offset=0, records_max=0)
                ends[name] = max((await self._ask_leader(name, ask)).stable, positions[name])
        for name, position in positions.items():
            found: Records = []
            end = ends.get(name)
            while end is None or position < end:
                wanted = records_max if end is None else min(records_max, end - position)
                ask = wire.Fetch(partition=name, offset=position, records_max=wanted)
                fetched = await self._ask_leader(name, ask)
                found += shown(fetched)
                position = fetched.next_offset
                if end is None or not fetched.records:
                    break
            records[name], after[name] = found, position
            if end is not None and position < end:
                raise _refused(f"{name} could not be read to its end")
        return Read(records, after, ends)

    async def join(self, group: str) -> Folded:
        """Becomes the member of a group that reads its input, and learns where to begin."""
        return await self._fetch_offsets(group, joins=True)

    async def committed(self, group: str) -> Folded:
        """How far the group has come."""
        return await self._fetch_offsets(group, joins=True)

    async def _fetch_offsets(self, group: str, *, joins: bool) -> Folded:
        answer = await self._ask_leader(GROUPS, wire.FetchOffsets(group=group, joins=joins))
        self._generation = answer.generation
        return Folded(answer.position, answer.state)


_DECISIONS: Final = {
    Decision.COMMIT: states.Decision.COMMIT,
    Decision.ABORT: states.Decision.ABORT,
}


def _told(identity: Identity) -> answers.Identity:
    return answers.Identity(identity.producer_id, identity.producer_epoch)  # type: ignore[arg-type]


def _refused(happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_TRANSACTION_STATE, tried="use a client", happened=happened
    )


def _retrieve(future: "asyncio.Future[int]") -> None:
    if not future.cancelled():
        future.exception()
