"""The Worker port without a process: jobs run in turn and in steps, over virtual time.

A job works on the medium of its disk and feels what the disk feels: errors, no space, slowness,
bits that rotted. Each of its file operations takes effect at once, and time passes between its
steps. It dies with its node, and now and then alone, in the middle of a step. What it has not
flushed is for a crash of the machine to take. As on a real disk, a flush of its file that failed is
heard of by the node's own flushes only where they are of the whole file system; a file whose flush
failed is never durable, whatever a later flush of it says.
"""

import asyncio
import contextlib
import importlib
from collections.abc import Generator
from typing import Final, Protocol, cast

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.loop import SimulatedLoop
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.ports.clock import set_done, sleep_ns
from tidelog.chaos.sim.ports.medium import Medium
from tidelog.chaos.sim.ports.worker_files import MediumFiles, WorkerDied
from tidelog.ports.disk import Disk
from tidelog.ports.worker import Job
from tidelog.wire.errors import ErrorCode, TidelogError

_START_NS: Final = (10_000, 4_000_000)
_STEP_NS: Final = (20_000, 1_500_000)
_DEATH_NS: Final = (10_000, 400_000_000)
"""From the death of the worker's process until its node hears of it."""
_SLOW_FACTOR: Final = 200
_NS_PER_S: Final = 1_000_000_000


class Home(Protocol):
    """The process whose worker this is."""

    is_dead: bool

    @property
    def media(self) -> dict[str, Medium]:
        """The data directories of its machine."""
        ...


class SimulatedWorker:
    """One job at a time, in the order in which they were submitted."""

    def __init__(
        self,
        home: Home,
        *,
        loop: SimulatedLoop,
        random: SeededRandom,
        faults: Faults,
        trace: Trace,
    ) -> None:
        self._home = home
        self._loop = loop
        self._random = random
        self._faults = faults
        self._trace = trace
        self._is_closed = False
        self._last: asyncio.Future[None] | None = None

    async def run(
        self, job: str, arguments: bytes, *, disk: Disk, bytes_per_second: int = 0
    ) -> bytes:
        """Wait for the jobs before, then let it run step by step."""
        assert bytes_per_second >= 0, f"no job moves {bytes_per_second} bytes a second"
        before, mine = self._last, asyncio.Future[None](loop=self._loop)
        self._last = mine
        try:
            if before is not None:
                await asyncio.shield(before)
            self._check_open(job)
            await sleep_ns(self._loop, self._random.between(*_START_NS))
            self._check_open(job)
            return await self._run_steps(job, arguments, self._files(disk), bytes_per_second)
        finally:
            if before is not None and not before.done():
                before.add_done_callback(lambda _: set_done(mine))
            else:
                set_done(mine)

    async def close(self) -> None:
        """Give up what has not ended."""
        self._is_closed = True

    def _files(self, disk: Disk) -> MediumFiles:
        media = [medium for medium in self._home.media.values() if medium.name == disk.name]
        assert media, f"{disk.name} is no data directory of this machine"
        return MediumFiles(media[0], random=self._random, faults=self._faults, trace=self._trace)

    async def _run_steps(
        self, job: str, arguments: bytes, files: MediumFiles, bytes_per_second: int
    ) -> bytes:
        steps = self._begin(job, arguments, files)
        try:
            while True:
                try:
                    moved_bytes = self._step(job, steps)
                except StopIteration as end:
                    return _result(job, end.value)
                except WorkerDied:
                    await sleep_ns(self._loop, self._random.between(*_DEATH_NS))
                    raise _failure(job, "its process died with signal 9") from None
                await sleep_ns(self._loop, self._cost_ns(job, moved_bytes, bytes_per_second))
                self._check_open(job)
        finally:
            # Nothing that the job does on its way out reaches the disk: its process is gone.
            files.is_over = True
            with contextlib.suppress(TidelogError, WorkerDied):
                steps.close()

    def _begin(
        self, job: str, arguments: bytes, files: MediumFiles
    ) -> Generator[int, None, object]:
        module_name, _, function_name = job.partition(":")
        self._trace.note("worker", "worker:start", name=job)
        try:
            function = cast("Job", getattr(importlib.import_module(module_name), function_name))
            return function(files, arguments)
        except Exception as error:
            raise _failure(job, f"{type(error).__name__}: {error}") from error

    def _step(self, job: str, steps: Generator[int, None, object]) -> int:
        try:
            return next(steps)
        except (StopIteration, TidelogError):
            raise
        except Exception as error:
            # The node hears UNKNOWN, as of a real worker, and may go on: so the run is told too.
            self._loop.unhandled.append(f"the job {job} raised {error!r}")
            raise _failure(job, f"{type(error).__name__}: {error}") from error

    def _cost_ns(self, job: str, moved_bytes: int, bytes_per_second: int) -> int:
        cost_ns = self._random.between(*_STEP_NS)
        if bytes_per_second:
            cost_ns = max(cost_ns, moved_bytes * _NS_PER_S // bytes_per_second)
        if self._faults.fires(FaultKind.SLOW_DISK):
            cost_ns *= _SLOW_FACTOR
            self._faults.took_effect(FaultKind.SLOW_DISK, "worker", f"{cost_ns} ns", name=job)
        return cost_ns

    def _check_open(self, job: str) -> None:
        if self._is_closed:
            raise TidelogError(
                ErrorCode.CLOSED, tried=f"run {job}", happened="the worker was closed"
            )


def _result(job: str, result: object) -> bytes:
    if not isinstance(result, bytes):
        raise _failure(job, f"it returned {type(result).__name__}, not bytes")
    return result


def _failure(job: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.UNKNOWN, tried=f"run {job}", happened=happened)
