"""One broker of the measurement: its directory, its replicas, the streams to the others.

Owns a process of its own. Broker 1 leads every partition and appends as the produce handler does;
the others follow. The metadata are fixed: who leads and who is in sync never changes.
"""

import asyncio
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from bench.log.under_test import key_of, sealed_batch
from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.replicas.directory import DirectoryLimits, LogDirectory
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.replication.tasks.fetchers import Fetchers
from tidelog.broker.replication.tasks.in_sync_keeper import InSyncKeeper
from tidelog.broker.replication.tasks.leader_stream import ReplicaFetchHandler
from tidelog.broker.replication.tasks.roles import RoleKeeper
from tidelog.broker.services.replica.methods import ReplicaRpc
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.metadata.image.image import BrokerImage, Image, ImageMap, PartitionImage, TopicImage
from tidelog.ports import Clock, Disk, Listener, TaskScope, Worker
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.random import RealRandom
from tidelog.ports.real.worker.worker import ProcessWorker
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
)

CLUSTER_ID: Final = "bench"
LEADER: Final = BrokerId(1)
WARM_UP_S: Final = 0.5


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is asked to do."""

    broker_id: int
    addresses: dict[int, str]
    replicas: int
    root: str
    partitions: int
    flush: str
    batch_bytes: int
    in_flight: int
    acks_all: bool
    seconds: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    batches: int
    seconds: float
    cpu_seconds: float


class FixedMetadata:
    """One image for ever."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def image(self) -> Image:
        return self._image

    async def wait_version(self, version: int) -> Image:
        del version
        await asyncio.Event().wait()
        raise AssertionError("the metadata never change here")

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"nobody asks for {name} here")


class NoController:
    """Nobody falls behind here for so long that it would be asked."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"the controller is asked to {name}: a follower fell behind")


class Silent:
    """Housekeeping tells nothing of interest."""

    def info(self, event: str, **values: object) -> None:
        """Not printed."""

    def warning(self, event: str, **values: object) -> None:
        """To the terminal."""
        print(event, values, file=sys.stderr, flush=True)

    error = warning


def image_of(task: Task) -> Image:
    """Every partition is led by broker 1, and all replicas are in sync."""
    brokers = {
        BrokerId(number): BrokerImage(
            broker_id=BrokerId(number),
            epoch=BrokerEpoch(number),
            incarnation=bytes([number]) * 16,
            listeners={"cluster": address},
            host_name="bench",
            rack="",
            is_fenced=False,
        )
        for number, address in task.addresses.items()
    }
    replicas = tuple(BrokerId(number) for number in range(1, task.replicas + 1))
    topic_id = key_of(0).topic_id
    partitions = tuple(
        PartitionImage(
            partition=PartitionId(number),
            leader_id=LEADER,
            leader_epoch=LeaderEpoch(1),
            partition_epoch=PartitionEpoch(1),
            replicas=replicas,
            in_sync_replicas=replicas,
        )
        for number in range(task.partitions)
    )
    topic = TopicImage(
        topic_id=topic_id,
        name="bench",
        configuration={"flush": task.flush, "min.insync.replicas": str((task.replicas + 2) // 2)},
        is_internal=False,
        partitions=partitions,
    )
    return Image(
        version=1,
        cluster_id=CLUSTER_ID,
        brokers=ImageMap.of(brokers),
        topics=ImageMap.of({topic_id: topic}),
    )


def _directory(disk: Disk, worker: Worker, sealer: Worker, clock: Clock) -> LogDirectory:
    """Nothing but appends and reads: no floor of free space, no limit of background work."""
    return LogDirectory(
        disk,
        worker,
        clock,
        time=SteadyTime(clock),
        sealer=sealer,
        name=disk.name,
        events=Silent(),
        limits=DirectoryLimits(
            queued_bytes_max=1 << 30,
            housekeeping=HousekeepingLimits(free_bytes_min=0, bytes_per_second=0),
        ),
    )


async def serve(task: Task) -> Report:
    """The process's life: until its input ends, or the load is over."""
    clock = RealClock()
    disk, worker, sealer = await open_disk(Path(task.root)), ProcessWorker(), ProcessWorker()
    network = GrpcNetwork(clock)
    broker_id = BrokerId(task.broker_id)
    directory = _directory(disk, worker, sealer, clock)
    metadata: Any = FixedMetadata(image_of(task))
    calls: Any = NoController()
    replicas = Replicas([directory], metadata, broker_id)
    in_sync = InSyncKeeper(clock, calls, broker_id=broker_id)
    fetchers = Fetchers(
        replicas,
        metadata,
        network,
        clock,
        RealRandom(),
        cluster_id=CLUSTER_ID,
        broker_id=broker_id,
        broker_epoch=lambda: BrokerEpoch(task.broker_id),
        address_of=lambda number: task.addresses[number],
    )
    replicas.announce_to(RoleKeeper(broker_id, in_sync, fetchers.set_followed))
    handler = ReplicaFetchHandler(
        replicas,
        metadata,
        clock,
        cluster_id=CLUSTER_ID,
        on_follower_position=in_sync.on_follower_position,
    )
    listener = Listener(name="cluster", bind=task.addresses[task.broker_id])
    server = await network.serve(listener, ReplicaRpc(handler).methods())
    await replicas.recover()
    try:
        async with TaskScope() as scope:
            scope.start(directory.run(), name="directory")
            scope.start(in_sync.run(), name="in-sync sets")
            scope.start(fetchers.run(scope), name="fetchers")
            if broker_id == LEADER:
                report = await lead(task, replicas)
            else:
                report = await follow()
            await directory.stop()
            scope.cancel()
    finally:
        await server.stop(0)
        await network.close()
        await sealer.close()
        await worker.close()
        await disk.shutdown()
    return report


async def lead(task: Task, replicas: Replicas) -> Report:
    """Append to every partition, some batches ahead of what is acknowledged."""
    batch, header = sealed_batch(task.batch_bytes)
    led = list(replicas)
    stop_at = time.monotonic() + WARM_UP_S
    counts = [0] * len(led)

    def append(replica: Replica) -> "asyncio.Future[Appended]":
        return replica.directory.owner.submit(
            replica.log, batch, header, is_flush_awaited=task.acks_all, append_time_ms=1
        )

    async def load(number: int) -> None:
        replica = led[number]
        waiting = [append(replica) for _ in range(task.in_flight)]
        while time.monotonic() < stop_at:
            await waiting.pop(0)
            counts[number] += 1
            waiting.append(append(replica))
        for each in waiting:
            await each
            counts[number] += 1

    async def load_all() -> None:
        async with TaskScope() as scope:
            for number in range(len(led)):
                scope.start(load(number), name="load")

    await load_all()
    counts[:] = [0] * len(led)
    started, cpu = time.monotonic(), cpu_seconds()
    stop_at = started + task.seconds
    mark("begin")
    await load_all()
    mark("end")
    return Report(
        batches=sum(counts),
        seconds=time.monotonic() - started,
        cpu_seconds=cpu_seconds() - cpu,
    )


def mark(word: str) -> None:
    """Tell the parent."""
    print(word, flush=True)


async def follow() -> Report:
    """Follow until told; CPU counts from the first word to the second."""
    cpu = 0.0
    started = time.monotonic()
    words = await read_words()
    for number, word in enumerate(words):
        await word
        if number == 0:
            cpu, started = cpu_seconds(), time.monotonic()
    return Report(batches=0, seconds=time.monotonic() - started, cpu_seconds=cpu_seconds() - cpu)


async def read_words() -> Sequence[Any]:
    """Two lines of the parent's."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return [reader.readline(), reader.readline()]


def cpu_seconds() -> float:
    """Of this process, its threads included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """The task comes as an argument, the report goes out as the last line."""
    task = msgspec.json.decode(sys.argv[1], type=Task)
    report = asyncio.run(serve(task))
    print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    main()
