"""A data directory with real files, a real worker process, and nothing above it.

Owns its set-up and its end. What is measured on it are the parts of a broker below its handlers.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import DirectoryLimits, LogDirectory, Placed, RecoverySummary
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.ports import TaskScope
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.worker.worker import ProcessWorker
from tidelog.wire.batch import BatchHeader, encode_batch, read_header
from tidelog.wire.ids import LeaderEpoch, PartitionId, PartitionKey, TopicId

RECORD_BYTES = 1_000
QUEUED_BYTES_MAX = 512 * 1024 * 1024


def key_of(number: int) -> PartitionKey:
    """Partition `number` of the one topic."""
    return PartitionKey(TopicId(b"bench-log-topic!"), PartitionId(number))


def sealed_batch(size_bytes: int) -> tuple[bytes, BatchHeader]:
    """A batch of about that size with incompressible values, and its header."""
    count = max(1, size_bytes // RECORD_BYTES)
    value = os.urandom(min(RECORD_BYTES, size_bytes))
    batch = encode_batch([(1, None, value, ())] * count)
    return batch, read_header(batch)


class _Silent:
    """What housekeeping tells is of no interest here, but for what went wrong."""

    def info(self, event: str, **values: object) -> None:
        """Not printed."""

    def warning(self, event: str, **values: object) -> None:
        print(event, values, flush=True)

    def error(self, event: str, **values: object) -> None:
        print(event, values, flush=True)


class UnderTest:
    """The directory at work, and its logs."""

    def __init__(
        self,
        directory: LogDirectory,
        logs: dict[PartitionKey, PartitionLog],
        summary: RecoverySummary,
    ) -> None:
        self.directory = directory
        self.logs = logs
        self.summary = summary

    def add(self, key: PartitionKey, settings: TopicSettings) -> None:
        """One more partition, with settings of its own."""
        placed = Placed(leader_epoch=LeaderEpoch(0), settings=settings)
        self.logs[key] = self.directory.add(key, placed)

    def append(
        self, key: PartitionKey, batch: bytes, header: BatchHeader, *, is_flush_awaited: bool = True
    ) -> "asyncio.Future[Appended]":
        """As the produce handler does once it has checked a batch."""
        return self.directory.owner.submit(
            self.logs[key],
            batch,
            header,
            is_flush_awaited=is_flush_awaited,
            append_time_ms=1,
        )


@contextlib.asynccontextmanager
async def directory_at(
    path: Path,
    partitions: int,
    *,
    settings: TopicSettings | None = None,
    housekeeping: HousekeepingLimits | None = None,
) -> AsyncIterator[UnderTest]:
    """Open what lies there, make what does not, serve it; ends with a clean stop."""
    disk, worker, sealer = await open_disk(path), ProcessWorker(), ProcessWorker()
    limits = DirectoryLimits(
        queued_bytes_max=QUEUED_BYTES_MAX,
        housekeeping=housekeeping or HousekeepingLimits(free_bytes_min=0, bytes_per_second=0),
    )
    directory = LogDirectory(
        disk,
        worker,
        RealClock(),
        time=SteadyTime(RealClock()),
        sealer=sealer,
        name=disk.name,
        events=_Silent(),
        limits=limits,
    )
    placed = Placed(
        leader_epoch=LeaderEpoch(0), settings=settings or TopicSettings(retention_ms=-1)
    )
    try:
        found = await directory.survey()
        keys = [key_of(number) for number in range(partitions)]
        summary = RecoverySummary()
        logs = dict(await directory.open({key: placed for key in keys if key in found}, summary))
        logs.update((key, directory.add(key, placed)) for key in keys if key not in found)
        async with TaskScope() as scope:
            scope.start(directory.run(), name="directory")
            tested = UnderTest(directory, logs, summary)
            yield tested
            await directory.stop()
    finally:
        await sealer.close()
        await worker.close()
        await disk.shutdown()
