"""A node that is nothing but its data directories: recovery, owner, readers, housekeeping, worker.

Runs the broker's own directories as a node does, without network and metadata: which partitions
there are, with which settings and leader epochs, is told by the suite. One object is one life.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from tidelog.broker.log.reading.lookup_by_time import NONE_FOUND, TimeSearch
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import DirectoryLimits, LogDirectory, Placed, RecoverySummary
from tidelog.broker.shared.errors import fresh
from tidelog.chaos.checkers.log.model import Bounds
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.ports import Disk, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

_T = TypeVar("_T")


class NodeGone(Exception):
    """The node died before it answered."""


class Wanted(msgspec.Struct, kw_only=True):
    """What the metadata would say of a partition now."""

    key: PartitionKey
    directory: str
    settings: TopicSettings
    leader_epoch: LeaderEpoch


class Events:
    """What housekeeping would write into the node's log."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._note = note

    def info(self, event: str, **values: object) -> None:
        """Not of interest."""
        del event, values

    def warning(self, event: str, **values: object) -> None:
        """Into the trace."""
        self._note(f"housekeeping:{event}", str(values.get("error", "")))

    def error(self, event: str, **values: object) -> None:
        """Into the trace."""
        self._note(f"housekeeping:{event}", str(values.get("error", "")))


class LogNode:
    """One life; `live` is the main coroutine of its process."""

    def __init__(
        self,
        process: Process,
        wanted: dict[PartitionKey, Wanted],
        directories: tuple[str, ...],
        limits: DirectoryLimits,
        note: Callable[[str, str], None],
    ) -> None:
        self._process = process
        self.wanted = wanted
        self._names = directories
        self._limits = limits
        self._note = note
        self._directories: dict[str, LogDirectory] = {}
        self._logs: dict[PartitionKey, PartitionLog] = {}
        self._stopping = asyncio.Event()
        self._answers: dict[asyncio.Future[Any], None] = {}

    async def live(self, ports: SimulatedPorts, on_ready: Callable[["LogNode"], None]) -> None:
        """Open everything, serve until told to stop, leave a checkpoint."""
        disks = {name: ports.open_disk(name) for name in self._names}
        for name, disk in disks.items():
            self._directories[name] = await self._open(name, disk, ports)
        async with TaskScope() as scope:
            for name, directory in self._directories.items():
                if directory.is_open:
                    scope.start(directory.run(), name=f"directory {name}")
            on_ready(self)
            await self._stopping.wait()
            for name, directory in self._directories.items():
                is_clean = await directory.stop()
                self._note("node:stopped", f"{name} {'clean' if is_clean else 'failed'}")
            await ports.worker.close()
            await ports.sealer.close()
        for disk in disks.values():
            await disk.shutdown()

    async def _open(self, name: str, disk: Disk, ports: SimulatedPorts) -> LogDirectory:
        directory = LogDirectory(
            disk,
            ports.worker,
            ports.clock,
            time=SteadyTime(ports.clock),
            sealer=ports.sealer,
            name=name,
            events=Events(self._note),
            limits=self._limits,
        )
        here = {
            key: Placed(leader_epoch=each.leader_epoch, settings=each.settings)
            for key, each in self.wanted.items()
            if each.directory == name
        }
        self._logs.update(await directory.open(here, RecoverySummary()))
        for key, placed in here.items():
            if key not in self._logs:
                self._logs[key] = directory.add(key, placed)
        return directory

    # -- what handlers do ----------------------------------------------------------------------

    def directory_of(self, key: PartitionKey) -> LogDirectory:
        """That holds the partition."""
        return self._directories[self.wanted[key].directory]

    def log_of(self, key: PartitionKey) -> PartitionLog:
        """As it is now."""
        return self._logs[key]

    def bounds_of(self, key: PartitionKey) -> Bounds:
        """What an answer carries."""
        log = self.log_of(key)
        return Bounds(
            log_start=log.log_start_offset,
            high_watermark=log.high_watermark,
            log_end=log.log_end_offset,
        )

    async def read(self, key: PartitionKey, offset: int, max_bytes: int) -> tuple[bytes, int]:
        """Whole batches and where to go on."""
        log = self._usable(key)
        if not log.log_start_offset <= offset <= log.high_watermark:
            raise TidelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                tried=f"read {key} from {offset}",
                happened=f"it reaches from {log.log_start_offset} to {log.high_watermark}",
            )
        found = await self.directory_of(key).reader.read(log, offset, max_bytes)
        return found.data, found.next_offset

    async def first_at(self, key: PartitionKey, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and time of the first record at or after the time."""
        log = self._usable(key)
        found = await TimeSearch(self.directory_of(key).reader).first_at(log, timestamp_ms)
        return None if found == NONE_FOUND else found

    async def newest(self, key: PartitionKey) -> tuple[int, int] | None:
        """Offset and time of the first record of the highest time."""
        log = self._usable(key)
        found = await TimeSearch(self.directory_of(key).reader).newest(log)
        return None if found == NONE_FOUND else found

    async def trim(self, key: PartitionKey, offset: int) -> int:
        """Delete records."""
        log = self._usable(key)
        return await self.directory_of(key).owner.trim(log, Offset(offset))

    async def truncate(self, key: PartitionKey, offset: int) -> tuple[int, int]:
        """Cut the tail, as a follower is told to; where the log begins and ends then."""
        log = self._usable(key)
        owner = self.directory_of(key).owner
        log_end = await owner.truncate(log, Offset(offset), is_unclean=True)
        return log.log_start_offset, log_end

    def configure(self, key: PartitionKey, settings: TopicSettings) -> None:
        """Take other settings over."""
        self.wanted[key].settings = settings
        self.directory_of(key).configure(key, settings)

    def _usable(self, key: PartitionKey) -> PartitionLog:
        log = self.log_of(key)
        if log.failure is not None:
            raise fresh(log.failure)
        return log

    # -- calls from outside --------------------------------------------------------------------

    async def call(self, work: Callable[[], Coroutine[Any, Any, _T]], name: str) -> _T:
        """Run it as a handler of the node. Raises NodeGone if the node dies before it answers."""
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        async def handle() -> None:
            try:
                result = await work()
            except TidelogError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        if self._process.is_dead:
            raise NodeGone
        self._answers[answer] = None
        self._process.start_task(handle(), name)
        try:
            return await answer
        finally:
            del self._answers[answer]

    def abandon(self) -> None:
        """The node is dead: whoever waits for it is told."""
        assert self._process.is_dead, "only a dead node leaves its callers alone"
        for answer in list(self._answers):
            if not answer.done():
                answer.set_exception(NodeGone())

    def stop(self) -> None:
        """In order: everything accepted is answered and flushed first."""
        self._stopping.set()
