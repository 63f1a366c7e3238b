"""One broker that leads partitions alone, with the handlers of produce and markers, and
coordinators by hand: no node, no controller, no clients."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn

from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.replicas.types import NoRoles
from tidelog.broker.services.markers.handler import MarkerHandler
from tidelog.broker.services.produce.handler import (
    Acks,
    PartitionAcknowledgement,
    ProduceHandler,
    ProduceRequest,
)
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.broker.shared.meter import Meter
from tidelog.broker.transactions.marking import MarkerObserver, PartitionMarker
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.broker.transactions.verifier import Verifier
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.metadata.features import TRANSACTION_VERSION
from tidelog.metadata.image.image import Image, ImageMap, PartitionImage, TopicImage
from tidelog.ports import RequestContext, TaskScope
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.wire.batch import BatchHeader, encode_batch, iterate_headers, read_header, route_sum
from tidelog.wire.calls.produce import PartitionBatch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    ProducerEpoch,
    ProducerId,
    TopicId,
)

TOPIC: Final = TopicId(b"t" * 16)
HERE: Final = BrokerId(1)
LEVEL: Final = 2
CONTEXT: Final = RequestContext(
    principal="p", listener="client", client_id="", address="a:1", deadline_ns=NO_DEADLINE_NS
)
FENCED: Final = TidelogError(
    ErrorCode.FENCED_PRODUCER_EPOCH, tried="add a partition", happened="another one took over"
)
Keys = tuple[PartitionKey, ...]


def key_of(partition: int) -> PartitionKey:
    """A partition of the only topic."""
    return PartitionKey(TOPIC, PartitionId(partition))


def identity(epoch: int, producer_id: int = 7) -> Identity:
    """Of a producer."""
    return Identity(ProducerId(producer_id), ProducerEpoch(epoch))


def sealed(
    epoch: int,
    sequence: int = 0,
    *,
    producer_id: int = 7,
    is_transactional: bool = True,
    is_control: bool = False,
) -> bytes:
    """A batch as a producer makes it."""
    return encode_batch(
        [(1, b"k", b"%d" % sequence, ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
        is_control=is_control,
    )


def addressed(batch: bytes, partition: int = 0) -> PartitionBatch:
    """The batch on its way to a partition."""
    total = route_sum(TOPIC, partition, read_header(batch).crc)
    return PartitionBatch(TOPIC, PartitionId(partition), NO_LEADER_EPOCH, batch, total)


class Question:
    """One that a coordinator was asked."""

    def __init__(self, transactional_id: str, asker: Identity, keys: Keys, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.identity = asker
        self.keys = keys
        self.timeout_ms = timeout_ms
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class HandCoordinator:
    """A `TransactionAsking` that says yes at once, or what the test says when it says it."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.is_prompt = True
        self.refusal: TidelogError | None = None
        self.refusals: list[TidelogError] = []
        """Of the next questions; then `refusal` counts."""

    async def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        keys: Keys,
        *,
        verify_only: bool = False,
        timeout_ms: int,
    ) -> None:
        assert not verify_only, "a leader has the partition added"
        question = Question(transactional_id, identity, keys, timeout_ms)
        self.questions.append(question)
        if not self.is_prompt:
            await question.answer
        if self.refusals:
            raise self.refusals.pop()
        if self.refusal is not None:
            raise self.refusal


class HandMetadata:
    """An image that the test sets."""

    def __init__(self, partitions: int, level: int) -> None:
        self._partitions = partitions
        self.leader_epoch = 1
        self._version = 0
        self._level = level
        self._news = asyncio.Event()
        self._image = Image()
        self.show()

    def image(self) -> Image:
        return self._image

    async def wait_version(self, version: int) -> Image:
        while self._image.version < version:
            await self._news.wait()
        return self._image

    def show(self, *, leader_epoch: int | None = None) -> int:
        """A new image; its version."""
        self.leader_epoch = leader_epoch or self.leader_epoch
        self._version += 1
        partitions = tuple(
            PartitionImage(
                partition=PartitionId(number),
                leader_id=HERE,
                leader_epoch=LeaderEpoch(self.leader_epoch),
                partition_epoch=PartitionEpoch(1),
                replicas=(HERE,),
                in_sync_replicas=(HERE,),
            )
            for number in range(self._partitions)
        )
        topic = TopicImage(
            topic_id=TOPIC, name="t", configuration={}, is_internal=False, partitions=partitions
        )
        self._image = Image(
            version=self._version,
            features=ImageMap.of({TRANSACTION_VERSION: self._level}),
            next_producer_id=ProducerId(1_000),
            topics=ImageMap.of({TOPIC: topic}),
        )
        news, self._news = self._news, asyncio.Event()
        news.set()
        return self._version

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"nobody asks for {name} here")


class SoleRoles(NoRoles):
    """Tells owners that they lead alone."""

    def take(
        self,
        log: PartitionLog,
        owner: DirectoryOwner,
        partition: PartitionImage,
        *,
        is_flush_sync: bool,
    ) -> None:
        del is_flush_sync
        owner.lead(log, partition.leader_epoch, others=(), in_sync_count=1, is_sole=True)


class AdmissionHouse:
    """What a test sees."""

    def __init__(
        self,
        ports: SimulatedPorts,
        *,
        partitions: int,
        level: int,
        observers: Sequence[MarkerObserver],
    ) -> None:
        self.ports = ports
        self.metadata = HandMetadata(partitions, level)
        self.coordinator = HandCoordinator()
        self.meter = Meter(())
        time = SteadyTime(ports.clock)
        metadata: Any = self.metadata
        self.directory = LogDirectory(
            ports.open_disk(),
            ports.worker,
            ports.clock,
            time=time,
            sealer=ports.sealer,
            name="data",
            events=_Silent(),
        )
        self.replicas = Replicas([self.directory], metadata, HERE)
        self.replicas.announce_to(SoleRoles())
        self.verifier = Verifier(self.replicas, self.coordinator, ports.clock, self.meter)
        self.produce = ProduceHandler(
            self.replicas, time, BrokerLimits(), self.metadata, self.meter
        )
        self.markers = MarkerHandler(self.replicas, time, self.metadata, self.meter, observers)

    async def settled(self) -> None:
        """Every owner has taken in what it was told, and coordinators what they were asked."""
        for _ in range(20):
            await self.directory.owner.turn()
            await asyncio.sleep(0)

    async def lead_anew(self, leader_epoch: int) -> None:
        """The broker leads in another epoch."""
        await self.replicas.wait_applied(self.metadata.show(leader_epoch=leader_epoch))
        await self.settled()

    async def write(
        self, *batches: PartitionBatch, transactional_id: str = "t", acks: Acks = Acks.ALL
    ) -> list[PartitionAcknowledgement]:
        """What a producer hears."""
        return await self.begin(*batches, transactional_id=transactional_id, acks=acks)

    def begin(
        self, *batches: PartitionBatch, transactional_id: str = "t", acks: Acks = Acks.ALL
    ) -> "asyncio.Task[list[PartitionAcknowledgement]]":
        """The batches arrive now; what the producer hears, later."""
        request = ProduceRequest(batches, acks, 10_000, transactional_id)
        submitted = self.produce.submit(CONTEXT, request)
        return asyncio.ensure_future(self.produce.wait(submitted))

    async def end(
        self,
        epoch: int,
        *,
        partition: int = 0,
        decision: Decision = Decision.ABORT,
        coordinator_epoch: int = 3,
        producer_id: int = 7,
        timeout_ms: int = 10_000,
    ) -> TidelogError | None:
        """What a coordinator hears of its marker."""
        marker = PartitionMarker(
            key=key_of(partition),
            identity=identity(epoch, producer_id),
            decision=decision,
            coordinator_epoch=LeaderEpoch(coordinator_epoch),
        )
        return await self.markers.write(marker, timeout_ms=timeout_ms)

    def replica(self, partition: int = 0) -> Replica:
        """The replica of a partition."""
        replica = self.replicas.get(TOPIC, partition)
        assert replica is not None
        return replica

    async def headers(self, partition: int = 0) -> list[BatchHeader]:
        """The batches that its readers see."""
        replica, headers = self.replica(partition), list[BatchHeader]()
        while True:
            offset = headers[-1].next_offset if headers else 0
            found = await replica.directory.reader.read(replica.log, offset, 1 << 20)
            if not found.data:
                return headers
            headers += [header for _, header in iterate_headers(found.data)]


Work = Callable[[AdmissionHouse], Awaitable[None]]


def with_house(
    work: Work,
    *,
    partitions: int = 2,
    level: int = LEVEL,
    observers: Sequence[MarkerObserver] = (),
) -> None:
    """Run the work in a house of its own; look for anything that went wrong inside."""
    world = World(1)
    is_over = asyncio.Event()

    async def live(ports: SimulatedPorts) -> None:
        try:
            await serve(ports)
        finally:
            is_over.set()

    async def serve(ports: SimulatedPorts) -> None:
        house = AdmissionHouse(ports, partitions=partitions, level=level, observers=observers)
        await house.replicas.recover()
        async with TaskScope() as scope:
            scope.start(house.directory.run(), name="directory")
            scope.start(house.replicas.run(), name="replicas")
            scope.start(house.verifier.run(), name="verifier")
            await house.settled()
            await work(house)
            scope.cancel()

    async def main() -> None:
        process = world.machine("b").start("broker", live)
        await is_over.wait()
        await asyncio.sleep(0.01)
        assert process.is_dead
        assert process.exit_error is None, process.exit_error

    try:
        world.run(main())
    finally:
        world.close()


class _Silent:
    def info(self, event: str, **values: object) -> None:
        pass

    warning = info
    error = info
