"""One data directory in the simulated world: its lives, and calls into the present one.

Puts a `LogDirectory` with its owner, readers, housekeeping and the worker's real jobs over a
simulated disk. Whoever plays with it says when a life begins and how it ends: in order, killed, or
with its machine. It must never judge.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.log.reading.lookup_by_time import TimeSearch
from tidelog.broker.log.reading.reader import Batches
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import DirectoryLimits, LogDirectory, Placed, RecoverySummary
from tidelog.broker.shared.errors import fresh
from tidelog.chaos.sim import FaultKind, SimulatedPorts, World
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium
from tidelog.chaos.sim.world.process import Process
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.ports import Clock, TaskScope
from tidelog.wire.batch import iterate_headers, read_header
from tidelog.wire.ids import PartitionKey

_T = TypeVar("_T")

WAIT_S: Final = 0.001
WAITS_MAX: Final = 60_000
"""A minute of virtual time: whatever takes longer hangs."""
READ_BYTES: Final = 200_000


class HouseGone(Exception):
    """The process died before it answered."""


class Events:
    """What the directory would write into the node's log."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def info(self, event: str, **values: object) -> None:
        """Not of interest."""
        del event, values

    def warning(self, event: str, **values: object) -> None:
        """Kept, with what names a file."""
        self.told.append((event, str(values.get("path") or values.get("error", ""))))

    def error(self, event: str, **values: object) -> None:
        """The same."""
        self.warning(event, **values)


class Batch(msgspec.Struct, frozen=True):
    """A stored batch as it was served."""

    base_offset: int
    next_offset: int
    data: bytes


class Life:
    """One life of a directory, and what handlers ask of it."""

    def __init__(self, directory: LogDirectory, clock: Clock, events: Events) -> None:
        self.directory = directory
        self.clock = clock
        self.events = events
        self.summary = RecoverySummary()
        self.logs: dict[PartitionKey, PartitionLog] = {}

    async def open(self, placed: Mapping[PartitionKey, Placed]) -> None:
        """The TidelogError that the directory could not be opened for."""
        self.logs = dict(await self.directory.open(placed, self.summary))
        if self.directory.failure is not None:
            raise fresh(self.directory.failure)

    def submit(
        self, key: PartitionKey, batch: bytes, *, is_flush_awaited: bool = True
    ) -> "asyncio.Future[Appended]":
        """One checked batch, as a produce handler hands it over."""
        return self.directory.owner.submit(
            self._usable(key),
            batch,
            read_header(batch),
            is_flush_awaited=is_flush_awaited,
            append_time_ms=self.clock.wall_ms(),
        )

    async def append(self, key: PartitionKey, batch: bytes) -> Appended:
        """The same, and its answer."""
        return await self.submit(key, batch)

    async def read(self, key: PartitionKey, offset: int, max_bytes: int) -> list[Batch]:
        """One read: batches from the one on that holds the offset; empty at the high watermark."""
        found = await self.directory.reader.read(self._usable(key), offset, max_bytes)
        return _batches(found)

    async def read_all(self, key: PartitionKey, batches: list[Batch] | None = None) -> list[Batch]:
        """From the log's start to the high watermark, as a consumer goes; `batches` is added to,
        so that a caller knows what was served before an error."""
        log = self._usable(key)
        batches = [] if batches is None else batches
        offset: int = log.log_start_offset
        while offset < log.high_watermark:
            found = await self.directory.reader.read(log, offset, READ_BYTES)
            if not found.data:
                # What is left holds no record: a compaction took the last ones.
                break
            assert found.next_offset > offset, f"{key}: a read from {offset} goes on there"
            batches += _batches(found)
            offset = found.next_offset
        return batches

    async def first_at(self, key: PartitionKey, timestamp_ms: int) -> tuple[int, int]:
        """Offset and time of the first record at or after the time."""
        return await TimeSearch(self.directory.reader).first_at(self._usable(key), timestamp_ms)

    async def newest(self, key: PartitionKey) -> tuple[int, int]:
        """Offset and time of the first record that has the highest time."""
        return await TimeSearch(self.directory.reader).newest(self._usable(key))

    def _usable(self, key: PartitionKey) -> PartitionLog:
        log = self.logs[key]
        if log.failure is not None:
            raise fresh(log.failure)
        return log


def _batches(found: Batches) -> list[Batch]:
    batches = [
        Batch(header.base_offset, header.next_offset, found.data[at : at + header.size_bytes])
        for at, header in iterate_headers(found.data, is_compacted=True)
    ]
    assert not batches or found.next_offset >= batches[-1].next_offset, "a read ends inside itself"
    return batches


class LogHouse:
    """One machine with one data directory; at most one life at a time."""

    def __init__(
        self, seed: int, *, limits: HousekeepingLimits, crash_kinds: Iterable[FaultKind] = ()
    ) -> None:
        kinds = tuple(crash_kinds)
        self.world = World(
            seed, enabled=kinds, probabilities=dict.fromkeys(kinds, 0.4), steps_max=1 << 40
        )
        self.machine = self.world.machine("node")
        self.limits = limits
        self.placed: dict[PartitionKey, Placed] = {}
        self._life: Life | None = None
        self._is_open = False
        self._process: Process | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def medium(self) -> Medium:
        """What outlives processes."""
        return self.machine.medium()

    @property
    def life(self) -> Life:
        """The present or the last one."""
        assert self._life is not None, "no life has begun"
        return self._life

    @property
    def is_alive(self) -> bool:
        """Whether a life goes on."""
        return self._process is not None and not self._process.is_dead

    # -- lives -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open the directory and serve it; a TidelogError if it cannot be opened."""
        assert not self.is_alive, "one life at a time"
        self._life, self._is_open = None, False
        process = self._process = self.machine.start("node", self._live)
        self.world.run(self._until(lambda: self._is_open or process.is_dead))
        if process.exit_error is not None:
            raise process.exit_error

    def stop(self) -> None:
        """In order."""
        assert self._process is not None, "a life is to be ended"
        assert self._stopping is not None, "a life is to be ended"
        process, stopping = self._process, self._stopping
        stopping.set()
        self.world.run(self._until(lambda: process.is_dead))
        if process.exit_error is not None:
            raise process.exit_error

    def kill(self) -> None:
        """The process only: what it wrote stays in the page cache."""
        assert self._process is not None, "a life is to be ended"
        self._process.kill()

    def crash(self) -> None:
        """The machine: of what is not flushed any part stays."""
        self.machine.crash()

    def close(self) -> None:
        """End the world."""
        self.world.close()

    async def _live(self, ports: SimulatedPorts) -> None:
        disk, events = ports.open_disk(), Events()
        directory = LogDirectory(
            disk,
            ports.worker,
            ports.clock,
            time=SteadyTime(ports.clock),
            sealer=ports.sealer,
            name=disk.name,
            events=events,
            limits=DirectoryLimits(housekeeping=self.limits),
        )
        self._stopping = asyncio.Event()
        life = self._life = Life(directory, ports.clock, events)
        await life.open(self.placed)
        self._is_open = True
        async with TaskScope() as scope:
            scope.start(directory.run(), name="directory")
            await self._stopping.wait()
            await directory.stop()
        await ports.worker.close()
        await ports.sealer.close()
        await disk.shutdown()

    # -- calls -----------------------------------------------------------------------------------

    def call(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run it as a handler of the process, to its end; HouseGone if the process dies first."""
        process = self._process
        assert process is not None, "somebody handles it"
        answer = self.start(work)
        self.world.run(self._until(lambda: answer.done() or process.is_dead))
        if not answer.done():
            raise process.exit_error or HouseGone
        return answer.result()

    def start(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> "asyncio.Future[_T]":
        """Run it as a handler of the process; time passes only by `pass_ms` or another call."""
        assert self._process is not None, "somebody handles it"
        answer: asyncio.Future[_T] = self.world.loop.create_future()

        async def handle() -> None:
            try:
                result = await work()
            except asyncio.CancelledError:
                answer.set_exception(AssertionError("nobody cancels a handler here"))
                answer.exception()
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller judges it
                answer.set_exception(error)
                # Nobody may ask: its life may be over.
                answer.exception()
            else:
                answer.set_result(result)

        self._process.start_task(handle(), "handler")
        return answer

    def pass_ms(self, duration_ms: float) -> None:
        """Let virtual time go by."""
        self.world.run(asyncio.sleep(duration_ms / 1000))

    def wait_until(self, holds: Callable[[], bool], *, within_ms: int) -> bool:
        """Let time go by until it holds; whether it does."""
        for _ in range(within_ms // 50):
            if holds():
                return True
            self.pass_ms(50)
        return holds()

    async def _until(self, holds: Callable[[], bool]) -> None:
        for _ in range(WAITS_MAX):
            if holds():
                return
            await asyncio.sleep(WAIT_S)
        raise AssertionError(
            f"it hangs: nothing within {WAIT_S * WAITS_MAX:.0f} virtual seconds; "
            f"{self.world.loop._describe_tasks()}; {self.world.findings()}"
        )


def put_files(medium: Medium, files: Mapping[str, bytes]) -> None:
    """Durable files on an empty medium."""
    for path, content in files.items():
        directory = medium.root
        *parents, name = path.split("/")
        for parent in parents:
            child = directory.seen.get(parent)
            if not isinstance(child, Directory):
                child = Directory()
                directory.seen[parent] = directory.durable[parent] = child
            directory = child
        inode = Inode()
        inode.seen, inode.durable = bytearray(content), bytearray(content)
        inode.certain_bytes = len(content)
        directory.seen[name] = directory.durable[name] = inode


def files_of(medium: Medium) -> dict[str, bytes]:
    """All files as processes see them."""
    return {path: bytes(inode.seen) for path, inode in medium.files()}
