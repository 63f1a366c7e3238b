"""Brokers without controller and clients: directories, streams, and an image that a test sets.

With limits of a test's choice, so that lanes change within a few records.
"""

import asyncio
from typing import Any, Final, NoReturn

from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.replication.shared.messages import Followed, ReplicationLimits
from tidelog.broker.replication.tasks.fetchers import Fetchers
from tidelog.broker.replication.tasks.leader_stream import ReplicaFetchHandler
from tidelog.broker.services.replica.methods import ReplicaRpc
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.metadata.image.image import BrokerImage, Image, ImageMap, PartitionImage, TopicImage
from tidelog.ports import Listener, TaskScope
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicId,
)

TOPIC: Final = TopicId(b"c" * 16)
CLUSTER_ID: Final = "copies"
BROKERS: Final = (BrokerId(1), BrokerId(2), BrokerId(3))
SMALL_LIMITS: Final = ReplicationLimits(
    answer_bytes_max=2_000,
    partition_bytes_max=700,
    far_behind_bytes=3_000,
    near_end_bytes=600,
    tail_bytes_max=5_000,
)


Positions = dict[tuple[PartitionKey, BrokerId], FollowerAt]
"""Where followers stand, as they said last."""


class SharedMetadata:
    """One image for all: what a controller would have decided."""

    def __init__(self, partitions: int) -> None:
        self._partitions = {
            number: PartitionImage(
                partition=PartitionId(number),
                leader_id=BROKERS[0],
                leader_epoch=LeaderEpoch(1),
                partition_epoch=PartitionEpoch(1),
                replicas=BROKERS,
                in_sync_replicas=BROKERS,
            )
            for number in range(partitions)
        }
        self._version = 0
        self._news = asyncio.Event()
        self._image = Image()
        self._epochs = dict.fromkeys(BROKERS, 1)
        self._show()

    def image(self) -> Image:
        return self._image

    async def wait_version(self, version: int) -> Image:
        while self._image.version < version:
            await self._news.wait()
        return self._image

    def partition(self, number: int) -> PartitionImage:
        return self._partitions[number]

    def begin_life(self, broker_id: BrokerId) -> BrokerEpoch:
        """It registers: out of all in-sync sets, until somebody takes it in again."""
        self._epochs[broker_id] += 1
        self._show()
        return BrokerEpoch(self._epochs[broker_id])

    def decide(
        self, number: int, *, leader: BrokerId | None = None, in_sync: tuple[BrokerId, ...]
    ) -> None:
        """Another leader, or another in-sync set of the same one."""
        before = self._partitions[number]
        assert in_sync, "somebody has what is committed"
        is_new = leader is not None and leader != before.leader_id
        self._partitions[number] = PartitionImage(
            partition=before.partition,
            leader_id=leader if leader is not None and is_new else before.leader_id,
            leader_epoch=LeaderEpoch(before.leader_epoch + is_new),
            partition_epoch=PartitionEpoch(before.partition_epoch + 1),
            replicas=BROKERS,
            in_sync_replicas=in_sync,
        )
        self._show()

    def _show(self) -> None:
        self._version += 1
        topic = TopicImage(
            topic_id=TOPIC,
            name="t",
            configuration={"min.insync.replicas": "1", "retention.ms": "-1"},
            is_internal=False,
            partitions=tuple(self._partitions.values()),
        )
        brokers = {
            number: BrokerImage(
                broker_id=number,
                epoch=BrokerEpoch(self._epochs[number]),
                incarnation=bytes(16),
                listeners={},
                host_name="",
                rack="",
                is_fenced=False,
            )
            for number in BROKERS
        }
        self._image = Image(
            version=self._version,
            cluster_id=CLUSTER_ID,
            brokers=ImageMap.of(brokers),
            topics=ImageMap.of({TOPIC: topic}),
        )
        news, self._news = self._news, asyncio.Event()
        news.set()

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"nobody asks for {name} here")


class PlainRoles:
    """Tells owners and fetchers what the image says, and who joins a set where it stands."""

    def __init__(self, broker_id: BrokerId, fetchers: Fetchers, positions: Positions) -> None:
        self._broker_id = broker_id
        self._positions = positions
        self._fetchers = fetchers
        self._followed: dict[PartitionKey, Followed] = {}

    def on_image(self, image: Image) -> None:
        pass

    def take(
        self,
        log: PartitionLog,
        owner: DirectoryOwner,
        partition: PartitionImage,
        *,
        is_flush_sync: bool,
    ) -> None:
        del is_flush_sync
        self._followed.pop(log.key, None)
        in_sync = partition.in_sync_replicas
        if partition.leader_id == self._broker_id:
            others = tuple(each for each in in_sync if each != self._broker_id)
            owner.lead(
                log,
                partition.leader_epoch,
                others=others,
                in_sync_count=len(in_sync),
                is_sole=False,
            )
            for other in others:
                at = self._positions.get((log.key, other))
                if at is not None and at.leader_epoch == partition.leader_epoch:
                    owner.follower_at(at)
            return
        owner.follow(log, partition.leader_epoch)
        if log.failure is None:
            self._followed[log.key] = Followed(
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
            )

    def configure(self, key: PartitionKey, *, is_flush_sync: bool) -> None:
        pass

    def drop(self, key: PartitionKey) -> None:
        self._followed.pop(key, None)

    def stand_by(self, key: PartitionKey) -> None:
        self.drop(key)

    def settle(self) -> None:
        self._fetchers.set_followed(dict(self._followed))


class CopyBroker:
    """One broker over all its lives."""

    def __init__(self, world: World, metadata: SharedMetadata, broker_id: BrokerId) -> None:
        self.world = world
        self.metadata = metadata
        self.broker_id = broker_id
        self.replicas: Replicas | None = None
        self.handler: ReplicaFetchHandler | None = None
        self.fetchers: Fetchers | None = None
        self.positions: Positions = {}
        """What the leader here was told: who is where."""
        self.process = world.machine(f"b{broker_id}").start("broker", self._live)

    @property
    def is_serving(self) -> bool:
        return not self.process.is_dead and self.replicas is not None

    def restart(self) -> None:
        self.replicas = None
        self.process = self.world.machine(f"b{self.broker_id}").start("broker", self._live)

    def replica(self, number: int) -> Replica:
        assert self.replicas is not None
        replica = self.replicas.get(TOPIC, number)
        assert replica is not None
        return replica

    async def write(self, number: int, value: bytes, *, is_awaited: bool) -> int | None:
        """As the produce handler does; the offset, or None if it was refused."""
        replica = self.replica(number)
        batch = encode_batch([(1, None, value, ())])
        try:
            done = replica.directory.owner.submit(
                replica.log,
                batch,
                read_header(batch),
                is_flush_awaited=is_awaited,
                append_time_ms=1,
            )
            return (await done).base_offset
        except TidelogError:
            return None

    async def _live(self, ports: SimulatedPorts) -> None:
        epoch = self.metadata.begin_life(self.broker_id)
        self.positions.clear()
        metadata: Any = self.metadata
        directory = LogDirectory(
            ports.open_disk(),
            ports.worker,
            ports.clock,
            time=SteadyTime(ports.clock),
            sealer=ports.sealer,
            name="data",
            events=_Silent(),
        )
        replicas = Replicas([directory], metadata, self.broker_id)
        self.fetchers = Fetchers(
            replicas,
            metadata,
            ports.network,
            ports.clock,
            ports.random,
            cluster_id=CLUSTER_ID,
            broker_id=self.broker_id,
            broker_epoch=lambda: epoch,
            address_of=lambda number: f"b{number}:1",
            limits=SMALL_LIMITS,
        )
        replicas.announce_to(PlainRoles(self.broker_id, self.fetchers, self.positions))
        self.handler = ReplicaFetchHandler(
            replicas,
            metadata,
            ports.clock,
            cluster_id=CLUSTER_ID,
            on_follower_position=self._on_position,
            limits=SMALL_LIMITS,
        )
        listener = Listener(name="cluster", bind=f"b{self.broker_id}:1")
        await ports.network.serve(listener, ReplicaRpc(self.handler).methods())
        await replicas.recover()
        async with TaskScope() as scope:
            scope.start(directory.run(), name="directory")
            scope.start(replicas.run(), name="replicas")
            scope.start(self.fetchers.run(scope), name="fetchers")
            self.replicas = replicas

    def _on_position(self, at: FollowerAt) -> None:
        self.positions[at.key, at.broker_id] = at


class _Silent:
    def info(self, event: str, **values: object) -> None:
        pass

    warning = info
    error = info
