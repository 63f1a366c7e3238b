"""A broker of the cores' run: leads partitions, coordinates transactions and groups, answers calls.

Owns what it believes about who leads what; it hears of changes late. Whatever it decides is decided
by the cores of a real broker.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tidelog.broker.transactions.state.answers import AddPartitionsAnswer, Identity
from tidelog.broker.transactions.state.messages import AddPartitions, SendMarkers
from tidelog.broker.transactions.state.states import Decision
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.transactions import wire
from tidelog.chaos.sim.transactions.coordinator import Coordinator
from tidelog.chaos.sim.transactions.leader import Leader
from tidelog.chaos.sim.transactions.truth import Entry, ReplicatedLog, Truth
from tidelog.chaos.sim.transactions.wire import (
    COORDINATED,
    REQUESTS,
    Fetch,
    Fetched,
    FetchOffsets,
    Find,
    Marked,
    Offsets,
    Place,
    Produce,
    Produced,
    SendOffsets,
    WriteMarkers,
)
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.ports.network import Listener, UnaryMethod
from tidelog.ports.request_context import RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey, TopicId

COORDINATORS: Final = "__transactions"
GROUPS: Final = "__groups"
INNER_CALL_MS: Final = 400
NEWS_NS: Final = (1_000_000, 300_000_000)
FETCH_RECORDS_MAX: Final = 20

Handle = Callable[[Any], Awaitable[object]]


def coordinator_log(transactional_id: str, count: int) -> str:
    """The partition of `__transactions` that an id belongs to."""
    return f"{COORDINATORS}-{zlib.crc32(transactional_id.encode()) % count}"


class ModelBroker:
    """One of them."""

    def __init__(
        self, world: World, truth: Truth, name: str, *, replication_ns: tuple[int, int]
    ) -> None:
        self.name: Final = name
        self.address: Final = f"{name}:9092"
        self.process: Process | None = None
        self.leaders: dict[str, Leader] = {}
        self.coordinators: dict[str, Coordinator] = {}
        self.generations: dict[str, int] = {}
        self.violations: list[str] = []
        self._world = world
        self._truth = truth
        self._random = world.seeds.purpose("brokers")
        self._replication_ns = replication_ns
        self._view: dict[str, tuple[str, int]] = {}
        self._handlers: Final[dict[type, Handle]] = {
            Produce: self._on_produce,
            SendOffsets: self._on_send_offsets,
            FetchOffsets: self._on_fetch_offsets,
            WriteMarkers: self._on_markers,
            Fetch: self._on_fetch,
            Find: self._on_find,
        } | dict.fromkeys(COORDINATED, self._on_coordinated)

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and not self.process.is_dead

    def start(self) -> None:
        """Another life."""
        self.leaders, self.coordinators, self._view = {}, {}, {}
        self.process = self._world.machine(self.name).start(self.name, self._live)

    async def _live(self, ports: SimulatedPorts) -> None:
        for log in self._truth.logs.values():
            self._follow(log.name, log.leader, log.epoch)
        methods = {wire.method_of(each): UnaryMethod(self._handler(each)) for each in REQUESTS}
        await ports.network.serve(Listener(name="client", bind=self.address), methods)
        await asyncio.Event().wait()

    def rebalance(self) -> None:
        """Groups change: what their members send as members of before is refused."""
        self.generations = {group: each + 1 for group, each in self.generations.items()}

    # -- who leads what ------------------------------------------------------------------------

    def hear(self, log: ReplicatedLog) -> None:
        """News travel."""
        if self.process is not None and not self.process.is_dead:
            self.process.start_task(
                self._hear(log.name, log.leader, log.epoch), f"news of {log.name}"
            )

    async def _hear(self, name: str, leader: str, epoch: int) -> None:
        await sleep_ns(self._world.loop, self._random.between(*NEWS_NS))
        self._follow(name, leader, epoch)

    def _follow(self, name: str, leader: str, epoch: int) -> None:
        """Acts on what the metadata say now."""
        if epoch <= self._view.get(name, ("", 0))[1]:
            return
        self._view[name] = (leader, epoch)
        before = self.leaders.pop(name, None)
        if before is not None:
            before.end()
            self.violations += before.violations
        coordinator = self.coordinators.pop(name, None)
        if coordinator is not None:
            coordinator.end()
        log = self._truth.logs[name]
        if leader != self.name or epoch != log.epoch or self.process is None:
            return
        led = self.leaders[name] = Leader(
            self._world, self._truth, self.process, log, epoch, self._replication_ns
        )
        if name.startswith(COORDINATORS):
            counts: dict[TopicId, int] = {}
            for each in self._truth.logs.values():
                count = max(counts.get(each.key.topic_id, 0), each.key.partition + 1)
                counts[each.key.topic_id] = count
            self.coordinators[name] = Coordinator(
                self._world, self._truth, self.process, led, counts, self._send_marker
            )

    def _leader(self, name: str) -> Leader:
        leader = self.leaders.get(name)
        if leader is None:
            raise TidelogError(
                ErrorCode.NOT_LEADER, tried=f"ask the leader of {name}", happened="it is not here"
            )
        return leader

    def _place(self, name: str) -> str:
        leader, _ = self._view.get(name, ("", 0))
        if not leader:
            raise TidelogError(
                ErrorCode.UNAVAILABLE, tried=f"find {name}", happened="no leader is known"
            )
        return f"{leader}:9092"

    # -- calls ---------------------------------------------------------------------------------

    def _handler(self, request: type) -> Callable[[RequestContext, bytes], Awaitable[bytes]]:
        handle = self._handlers[request]

        async def serve(context: RequestContext, data: bytes) -> bytes:
            del context
            return wire.encode(await handle(wire.decode(request, data)))

        return serve

    async def _on_find(self, request: Find) -> Place:
        return Place(address=self._place(request.log))

    async def _on_coordinated(self, request: Any) -> object:
        count = sum(1 for name in self._truth.logs if name.startswith(COORDINATORS))
        name = coordinator_log(request.transactional_id, count)
        coordinator = self.coordinators.get(name)
        if coordinator is None:
            raise TidelogError(
                ErrorCode.NOT_COORDINATOR,
                tried=f"ask the coordinator of {request.transactional_id}",
                happened=f"this broker does not lead {name}",
            )
        return await coordinator.ask(request)

    async def _on_produce(self, request: Produce) -> Produced:
        leader = self._leader(request.partition)
        entry = Entry(
            offset=-1,
            producer_id=request.identity.producer_id,
            producer_epoch=request.identity.producer_epoch,
            sequence=request.sequence,
            value=request.value,
        )
        offset = await leader.take(
            entry, self._asking(request.transactional_id, request.identity, leader.log.key)
        )
        return Produced(offset=offset)

    async def _on_send_offsets(self, request: SendOffsets) -> AddPartitionsAnswer:
        leader = self._leader(GROUPS)
        if request.generation != self.generations.get(request.group, 0):
            raise TidelogError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                tried=f"send offsets of {request.group}",
                happened="the group has changed",
            )
        entry = Entry(
            offset=-1,
            producer_id=request.identity.producer_id,
            producer_epoch=request.identity.producer_epoch,
            position=(request.group, request.position, request.state),
        )
        await leader.take(
            entry, self._asking(request.transactional_id, request.identity, leader.log.key)
        )
        return AddPartitionsAnswer()

    def _asking(
        self, transactional_id: str, identity: Identity, key: PartitionKey
    ) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            count = sum(1 for name in self._truth.logs if name.startswith(COORDINATORS))
            name = coordinator_log(transactional_id, count)
            assert self.process is not None, "it serves"
            await wire.call(
                self.process.ports,
                self._place(name),
                AddPartitions(transactional_id=transactional_id, identity=identity, keys=(key,)),
                timeout_ms=INNER_CALL_MS,
            )

        return ask

    async def _send_marker(self, send: SendMarkers, key: PartitionKey) -> TidelogError | None:
        """To whoever leads the partition now."""
        assert self.process is not None, "it coordinates"
        try:
            answer = await wire.call(
                self.process.ports,
                self._place(self._truth.by_key[key].name),
                WriteMarkers(
                    keys=(key,),
                    identity=send.identity,
                    is_commit=send.decision is Decision.COMMIT,
                    coordinator_epoch=send.coordinator_epoch,
                ),
                timeout_ms=INNER_CALL_MS,
            )
        except TidelogError as error:
            return error
        (code,) = answer.codes
        if not code:
            return None
        return TidelogError(ErrorCode(code), tried="write a marker", happened="it was refused")

    async def _on_markers(self, request: WriteMarkers) -> Marked:
        codes = []
        for key in request.keys:
            code = 0
            try:
                await self._leader(self._truth.by_key[key].name).mark(
                    request.identity,
                    is_commit=request.is_commit,
                    coordinator_epoch=request.coordinator_epoch,
                )
            except TidelogError as error:
                code = int(error.code)
            codes.append(code)
        return Marked(codes=tuple(codes))

    async def _on_fetch(self, request: Fetch) -> Fetched:
        leader = self._leader(request.partition)
        stable, begin = leader.stable, request.offset
        end = min(stable, begin + min(request.records_max, FETCH_RECORDS_MAX))
        found = leader.entries[begin : max(begin, end)]
        aborted = leader.state.aborted_between(begin, end) if found else []
        return Fetched(
            records=tuple(
                (each.offset, each.producer_id, "" if each.is_marker else each.value)
                for each in found
            ),
            aborted=tuple(
                (each.producer_id, each.first_offset, each.marker_offset) for each in aborted
            ),
            next_offset=begin + len(found),
            stable=stable,
        )

    async def _on_fetch_offsets(self, request: FetchOffsets) -> Offsets:
        leader = self._leader(GROUPS)
        if request.joins:
            self.generations[request.group] = self.generations.get(request.group, 0) + 1
        generation = self.generations.get(request.group, 0)
        await leader.wait_committed(len(leader.entries))
        if leader.high_watermark < len(leader.entries) or leader.state.is_staged(request.group):
            raise TidelogError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                tried=f"fetch offsets of {request.group}",
                happened="a transaction has offsets of it staged",
            )
        position, state = leader.state.offsets.get(request.group, (0, 0))
        return Offsets(position=position, state=state, generation=generation)


def shown(fetched: Fetched) -> list[tuple[int, str]]:
    """Records of committed transactions: what a client makes of an answer."""
    kept: list[tuple[int, str]] = []
    for offset, producer_id, value in fetched.records:
        is_aborted = any(
            producer_id == aborted and first <= offset < marker
            for aborted, first, marker in fetched.aborted
        )
        if value and not is_aborted:
            kept.append((offset, value))
    return kept
