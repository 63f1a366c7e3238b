"""A coordinator of transactions with everything around it in a test's hand: log, leaders, ids."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TypeVar

import msgspec

from tests.broker.support.hand_log import turns
from tests.metadata_quorum.controller import clusters
from tidelog.broker.coordination.log import (
    CoordinatorLog,
    KeyValue,
    Producer,
    Take,
    TakeMarker,
)
from tidelog.broker.coordination.task import Surroundings
from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.shared.events import EventLog
from tidelog.broker.shared.meter import Meter
from tidelog.broker.transactions.coordinator.coordinator import TransactionCoordinator
from tidelog.broker.transactions.coordinator.id_blocks import ProducerIdBlocks
from tidelog.broker.transactions.coordinator.marker_sender import MarkerSender
from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.marking import PartitionMarker
from tidelog.broker.transactions.state.answers import Response
from tidelog.broker.transactions.state.messages import AnyRequest, StoredRecord
from tidelog.broker.transactions.state.records import TransactionValue, decode_record
from tidelog.chaos.sim import World
from tidelog.chaos.sim.ports.clock import SimulatedClock
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionId, PartitionKey, TopicId

T = TypeVar("T")
OWN = BrokerId(1)
OTHER = BrokerId(2)
TOPIC = clusters.topic_id(1)
AT_OWN = PartitionKey(TOPIC, PartitionId(0))
AT_OTHER = PartitionKey(TOPIC, PartitionId(1))
AT_OTHER_TOO = PartitionKey(TOPIC, PartitionId(2))
AT_NOBODY = PartitionKey(TOPIC, PartitionId(3))
LOST = TidelogError(ErrorCode.NOT_LEADER, tried="append", happened="another broker leads")
REFUSED = TidelogError(ErrorCode.NOT_LEADER, tried="write a marker", happened="so said the leader")


def image() -> Image:
    """Two brokers, and a topic of four partitions, the last of which nobody leads."""
    made = clusters.with_topic(clusters.cluster(2), (1, 2), (2, 1), (2, 1), (2, 1))
    topic = made.topics[TOPIC]
    partitions = list(topic.partitions)
    partitions[3] = msgspec.structs.replace(partitions[3], leader_id=NO_LEADER)
    changed = msgspec.structs.replace(topic, partitions=tuple(partitions))
    return msgspec.structs.replace(made, topics=made.topics.updated({TOPIC: changed}))


class Shelf:
    """What is committed, whoever leads, and the appends that are under way."""

    def __init__(self, *records: StoredRecord) -> None:
        self.records: list[KeyValue] = [(each.key, each.value) for each in records]
        self.is_auto = True
        """Appends are committed at once."""
        self.under_way: list[tuple[list[KeyValue], asyncio.Future[Appended], int]] = []

    def values(self) -> list[TransactionValue]:
        """All that was ever committed about ids, in its order."""
        found = [decode_record(key, value) for key, value in self.records]
        return [each[1] for each in found if each is not None and each[1] is not None]

    async def commit(self) -> None:
        """All that is under way."""
        while self.under_way:
            records, answer, epoch = self.under_way.pop(0)
            self._commit(records, answer, epoch)
        await turns()

    async def lose(self) -> None:
        """All that is under way."""
        while self.under_way:
            _, answer, _ = self.under_way.pop(0)
            answer.set_exception(LOST)
        await turns()

    def take(self, records: list[KeyValue], answer: "asyncio.Future[Appended]", epoch: int) -> None:
        """An append."""
        if self.is_auto:
            self._commit(records, answer, epoch)
        else:
            self.under_way.append((records, answer, epoch))

    def _commit(
        self, records: list[KeyValue], answer: "asyncio.Future[Appended]", epoch: int
    ) -> None:
        self.records += records
        answer.set_result(
            Appended(
                token=0, base_offset=0, append_time_ms=0, log_start_offset=0, leader_epoch=epoch
            )
        )


class ShelfLog(CoordinatorLog):
    """Of one leader epoch."""

    def __init__(self, shelf: Shelf, leader_epoch: LeaderEpoch) -> None:
        self.shelf = shelf
        self.epoch = leader_epoch

    async def load(self, take: Take, take_marker: TakeMarker | None = None) -> int:
        for key, value in self.shelf.records:
            take(key, value)
        return len(self.shelf.records)

    def append(
        self, records: Sequence[KeyValue], wall_ms: int, producer: Producer | None = None
    ) -> "asyncio.Future[Appended]":
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.shelf.take(list(records), answer, self.epoch)
        return answer

    def check(self, appended: Appended) -> None:
        assert appended.leader_epoch == self.epoch


class LeadersByHand:
    """What is asked of leaders, on this broker and the other, and what they answer.

    Is a `MarkerWriting` and a `MarkerCalls`.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[BrokerId, list[PartitionMarker]]] = []
        self.answers: dict[PartitionKey, TidelogError] = {}
        """Else the marker is committed."""
        self.hanging: dict[PartitionKey, asyncio.Future[TidelogError | None]] = {}
        """Partitions whose leader does not answer before the future is done."""
        self.failure: TidelogError | None = None
        """Of every call to the other broker."""
        self.is_short = False
        """The other broker leaves an answer out."""

    def hang(self, key: PartitionKey) -> "asyncio.Future[TidelogError | None]":
        """From now on."""
        found = self.hanging[key] = asyncio.get_running_loop().create_future()
        return found

    def sent(self, key: PartitionKey) -> list[PartitionMarker]:
        """To the partition's leader, in order."""
        return [each for _, markers in self.calls for each in markers if each.key == key]

    async def write(self, marker: PartitionMarker, *, timeout_ms: int) -> TidelogError | None:
        del timeout_ms
        self.calls.append((OWN, [marker]))
        return await self._answer(marker)

    async def write_markers(
        self, broker_id: BrokerId, markers: Sequence[PartitionMarker], *, timeout_ms: int
    ) -> Sequence[TidelogError | None]:
        del timeout_ms
        self.calls.append((broker_id, list(markers)))
        if self.failure is not None:
            raise self.failure
        answers = [await self._answer(each) for each in markers]
        return answers[:-1] if self.is_short else answers

    async def _answer(self, marker: PartitionMarker) -> TidelogError | None:
        waiting = self.hanging.get(marker.key)
        if waiting is not None:
            return await asyncio.shield(waiting)
        return self.answers.get(marker.key)


class Block(msgspec.Struct, frozen=True):
    """Ids of a controller."""

    first_producer_id: int
    count: int


class Ids:
    """A controller that hands out blocks, as long as it is there."""

    def __init__(self, first: int = 5_000, count: int = 100) -> None:
        self.next = first
        self.count = count
        self.is_there = True
        self.seconds: list[float] = []
        """How long each answer is on its way, the next first; then at once."""

    async def fetch(self, timeout_ms: int) -> Block:
        if not self.is_there:
            raise TidelogError(ErrorCode.UNAVAILABLE, tried="fetch ids", happened="no controller")
        first = self.next
        self.next += self.count
        if self.seconds:
            await asyncio.sleep(self.seconds.pop(0))
        return Block(first, self.count)


class Quiet(EventLog):
    """Keeps what is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **values: object) -> None:
        self.told.append((event, values))

    warning = error = info


class GluedTime(SteadyTime):
    """As a node's: a clock that is not trusted forgets nothing."""

    is_trusted = True

    @property
    def may_expire(self) -> bool:
        return self.is_trusted


class Glue:
    """One coordinator, its sender and its surroundings; leads in epoch 1 once it is begun."""

    def __init__(
        self, clock: Clock, shelf: Shelf, *, topics: Mapping[TopicId, int] | None = None
    ) -> None:
        self.shelf = shelf
        self.clock = clock
        self.leaders = LeadersByHand()
        self.ids = Ids()
        self.meter = Meter(())
        self.time = GluedTime(clock)
        self.events = Quiet()
        self.cores: list[TransactionCoordinatorCore] = []
        self.sender = MarkerSender(image, self.leaders, self.leaders, broker_id=OWN)
        self.is_in_contact = True
        self.it = TransactionCoordinator(
            PartitionKey(TopicId(b"t" * 16), PartitionId(0)),
            Surroundings(
                clock=clock,
                time=self.time,
                open_log=lambda _, epoch: ShelfLog(shelf, epoch),
                is_in_contact=lambda: self.is_in_contact,
                on_resigned=lambda key, error: None,
                events=self.events,
                meter=self.meter,
            ),
            make_core=self._make_core,
            producer_ids=ProducerIdBlocks(self.ids, clock),
            markers=self.sender,
        )
        self.it.show(topics or {TOPIC: 4})
        self.epoch = 0

    def _make_core(self) -> TransactionCoordinatorCore:
        self.cores.append(TransactionCoordinatorCore())
        return self.cores[-1]

    async def lead(self) -> None:
        """In the next epoch, with a core that has loaded everything."""
        self.epoch += 1
        self.it.lead(LeaderEpoch(self.epoch))
        await turns()

    async def ask(self, request: AnyRequest, kind: type[T]) -> T:
        """An answer of the kind."""
        answer = await self.it.ask(request)
        assert isinstance(answer, kind), answer
        return answer

    async def code(self, request: AnyRequest) -> ErrorCode:
        """Of the refusal."""
        try:
            answer: Response = await self.it.ask(request)
        except TidelogError as error:
            return error.code
        raise AssertionError(f"it was not refused: {answer}")

    async def pass_ms(self, milliseconds: int, step_ms: int = 50) -> None:
        """Of the simulated clock; the coordinator is told of it as its keeper tells it."""
        for _ in range(0, milliseconds, step_ms):
            await asyncio.sleep(step_ms / 1000)
            self.it.tick(self.clock.monotonic_ns() // 1_000_000)
        await turns()


def with_glue(work: Callable[[Glue], Coroutine[None, None, None]], *records: StoredRecord) -> None:
    """Run the work in a simulated process, with a coordinator that leads and has loaded."""
    world = World(1)

    async def live() -> None:
        glue = Glue(SimulatedClock(world.loop, world.machine("node")), Shelf(*records))
        async with TaskScope() as scope:
            scope.start(glue.sender.run(), name="sender")
            scope.start(glue.it.run(), name="coordinator")
            await glue.lead()
            await work(glue)
            scope.cancel()

    try:
        world.run(live())
    finally:
        world.close()
