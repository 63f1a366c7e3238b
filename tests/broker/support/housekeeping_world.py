"""A data directory with its owner, its housekeeper and the worker's real jobs, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.log.names import directory_name
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import DirectoryLimits, LogDirectory, Placed, RecoverySummary
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.chaos.sim.world.process import Machine
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.ports import Disk, TaskScope, Worker
from tidelog.wire.batch import decode_batch, encode_batch, iterate_headers, read_header
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId, PartitionKey, TopicId

TOPIC_ID = TopicId(bytes([9]) * 16)
HOUR = 3_600_000
CHECK_MS = 1_000
LIMITS = HousekeepingLimits(
    check_interval_ms=CHECK_MS,
    bytes_per_second=0,
    scrub_interval_ms=0,
    free_bytes_min=1_000,
    free_bytes_margin=1_000,
    free_check_interval_ms=100,
    retry_backoff_ms=2_000,
    retry_backoff_max_ms=4_000,
    failures_max=3,
)


class Events:
    """Remembers what was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, dict[str, object]]] = []

    def info(self, event: str, **values: object) -> None:
        self.told.append(("info", event, values))

    def warning(self, event: str, **values: object) -> None:
        self.told.append(("warning", event, values))

    def error(self, event: str, **values: object) -> None:
        self.told.append(("error", event, values))

    def names(self) -> list[str]:
        """Of all events, in order."""
        return [event for _, event, _ in self.told]


class WatchedWorker:
    """Runs jobs, but for those that a test lets fail."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.asked: list[tuple[str, int, int]] = []
        """Job, bytes a second, and when."""
        self.failures: list[TidelogError] = []
        """Raised instead, one for each of the next jobs."""
        self.before_result: Callable[[], Awaitable[None]] | None = None
        """Awaited once when the next job has ended, before its result is told."""

    async def run(
        self, job: str, arguments: bytes, *, disk: Disk, bytes_per_second: int = 0
    ) -> bytes:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        self.asked.append((job.rpartition(":")[2], bytes_per_second, now_ms))
        if self.failures:
            raise self.failures.pop(0)
        result = await self._worker.run(
            job, arguments, disk=disk, bytes_per_second=bytes_per_second
        )
        meanwhile, self.before_result = self.before_result, None
        if meanwhile is not None:
            await meanwhile()
        return result

    async def close(self) -> None:
        await self._worker.close()

    def jobs(self) -> list[str]:
        """Names of all jobs, in order."""
        return [job for job, _, _ in self.asked]


class House:
    """What a test does in one life of a process."""

    def __init__(
        self,
        directory: LogDirectory,
        worker: WatchedWorker,
        sealer: WatchedWorker,
        events: Events,
        ports: SimulatedPorts,
        machine: Machine,
        logs: dict[PartitionKey, PartitionLog],
    ) -> None:
        self.directory = directory
        self.worker = worker
        self.sealer = sealer
        self.events = events
        self.ports = ports
        self.machine = machine
        self.medium = machine.medium("data")
        self.logs = logs
        """What was there at the start."""
        self._settings: dict[PartitionKey, TopicSettings] = {}

    def add(self, partition: int = 0, **settings: Any) -> PartitionLog:
        """A new partition; small segments unless said otherwise."""
        placed = Placed(leader_epoch=LeaderEpoch(1), settings=topic(**settings))
        self._settings[key_of(partition)] = placed.settings
        return self.directory.add(key_of(partition), placed)

    def settings(self, log: PartitionLog, **changed: Any) -> TopicSettings:
        """Those of the log's topic, with changes."""
        return msgspec.structs.replace(self._settings[log.key], **changed)

    async def append(
        self, log: PartitionLog, value: bytes = b"v", *, key: bytes | None = b"k", age_ms: int = 0
    ) -> Appended:
        """One record of that age, flushed."""
        now_ms = self.ports.clock.wall_ms()
        batch = encode_batch([(now_ms - age_ms, key, value, ())])
        return await self.directory.owner.submit(
            log, batch, read_header(batch), is_flush_awaited=True, append_time_ms=now_ms
        )

    async def fill(self, log: PartitionLog, count: int, **record: Any) -> None:
        """So many records, each a segment of its own on topics of `small` segments."""
        for number in range(count):
            await self.append(log, b"%d" % number, **record)

    async def roll(self, log: PartitionLog) -> None:
        """Close the active segment."""
        self.directory.owner.roll(log.key)
        await self.until(lambda: not log.segments or not log.segments[-1].size_bytes)

    async def until(self, holds: Callable[[], object], *, within_ms: int = 120_000) -> None:
        """Let time pass until it holds."""
        for _ in range(within_ms // 50):
            if holds():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"it does not hold within {within_ms} ms")

    async def checks(self, count: int = 2) -> None:
        """Until so many more checks have begun and ended."""
        counts = self.directory.keeper.counts
        wanted = counts.checks + count
        await self.until(lambda: counts.checks >= wanted)

    async def values(self, log: PartitionLog) -> list[tuple[int, bytes]]:
        """Offset and value of every record from the log's start on."""
        found: list[tuple[int, bytes]] = []
        offset: int = log.log_start_offset
        while offset < log.high_watermark:
            batches = await self.directory.reader.read(log, offset, 1 << 20)
            for place, _ in iterate_headers(batches.data, is_compacted=True):
                for record in decode_batch(batches.data, place, is_compacted=True):
                    found.append((record[0], record[4] or b""))
            assert batches.next_offset > offset, "a read goes on"
            offset = batches.next_offset
        return [each for each in found if each[0] >= log.log_start_offset]

    def files(self, log: PartitionLog) -> list[str]:
        """Names in the partition's directory."""
        prefix = f"{directory_name(log.key)}/"
        return sorted(
            path.removeprefix(prefix) for path, _ in self.medium.files() if path.startswith(prefix)
        )

    def damage(self, path: str, byte_position: int) -> None:
        """Flip a bit at rest."""
        inode = self.medium.find(path)
        assert isinstance(inode, Inode), path
        before = inode.seen[byte_position]
        assert inode.replace_byte(byte_position, before, before ^ 1)


def topic(**settings: Any) -> TopicSettings:
    """Segments of one small batch."""
    return msgspec.structs.replace(TopicSettings(segment_bytes=80), **settings)


def key_of(partition: int) -> PartitionKey:
    return PartitionKey(TOPIC_ID, PartitionId(partition))


def placed(partition: int = 0, **settings: Any) -> dict[PartitionKey, Placed]:
    """For a life that begins with a partition."""
    return {key_of(partition): Placed(leader_epoch=LeaderEpoch(1), settings=topic(**settings))}


class Neighbourhood:
    """A world with one machine, on which lives come one after the other."""

    def __init__(self, seed: int = 7, *, enabled: Iterable[FaultKind] = ()) -> None:
        self.world = World(seed, enabled=enabled, probabilities=dict.fromkeys(enabled, 0.02))
        self.machine = self.world.machine("node")

    def live(
        self,
        work: Callable[[House], Awaitable[None]],
        *,
        known: dict[PartitionKey, Placed] | None = None,
        limits: HousekeepingLimits = LIMITS,
    ) -> None:
        """One life of the process: opened, worked with, stopped in order."""

        async def life(ports: SimulatedPorts) -> None:
            disk = ports.open_disk()
            worker, sealer = WatchedWorker(ports.worker), WatchedWorker(ports.sealer)
            events = Events()
            directory = LogDirectory(
                disk,
                worker,
                ports.clock,
                time=SteadyTime(ports.clock),
                sealer=sealer,
                name=disk.name,
                events=events,
                limits=DirectoryLimits(housekeeping=limits),
            )
            logs = await directory.open(known or {}, RecoverySummary())
            async with TaskScope() as scope:
                scope.start(directory.run(), name="directory")
                await work(House(directory, worker, sealer, events, ports, self.machine, logs))
                await directory.stop()
            await disk.shutdown()

        async def main() -> None:
            process = self.machine.start("node", life)
            for _ in range(100_000):
                if process.is_dead:
                    break
                await asyncio.sleep(0.05)
            if process.exit_error is not None:
                raise process.exit_error
            assert process.is_dead, "the directory did not come to its end"

        self.world.run(main())
        assert self.world.findings() == []

    def close(self) -> None:
        """End the world."""
        self.world.close()


def in_a_house(
    work: Callable[[House], Awaitable[None]], *, limits: HousekeepingLimits = LIMITS, seed: int = 7
) -> None:
    """One life in a world of its own."""
    neighbourhood = Neighbourhood(seed)
    try:
        neighbourhood.live(work, limits=limits)
    finally:
        neighbourhood.close()
