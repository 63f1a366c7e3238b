"""The same case on real files: the real disk and clock, jobs run in this process.

Owns the root that it was given. Time is real here, so that less housekeeping happens than in the
simulated world; what differs is who reads and writes.
"""

import asyncio
import importlib
from pathlib import Path
from typing import Final, cast

from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.replicas.directory import DirectoryLimits, LogDirectory
from tidelog.chaos.fuzz.log_corpus import Corpus, placed
from tidelog.chaos.fuzz.log_damage import Damage
from tidelog.chaos.fuzz.log_house import Events, Life
from tidelog.chaos.fuzz.log_judge import Judge
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.ports import Disk, TaskScope
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.worker.files import DirectoryFiles
from tidelog.ports.worker import Job
from tidelog.wire.errors import TidelogError

LIMITS: Final = HousekeepingLimits(
    check_interval_ms=10, bytes_per_second=0, scrub_interval_ms=100, free_bytes_min=0
)
_WORK_S: Final = 0.25
_EPOCH: Final = 3


class InlineWorker:
    """Runs jobs at once, over real files."""

    def __init__(self, root: str) -> None:
        self._root = root

    async def run(
        self, job: str, arguments: bytes, *, disk: Disk, bytes_per_second: int = 0
    ) -> bytes:
        """To its end, giving way now and then."""
        del disk, bytes_per_second
        module_name, _, function_name = job.partition(":")
        function = cast("Job", getattr(importlib.import_module(module_name), function_name))
        files = DirectoryFiles(self._root)
        try:
            steps = function(files, arguments)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return cast("bytes", end.value)
                await asyncio.sleep(0)
        finally:
            files.close()

    async def close(self) -> None:
        """There is no process."""


async def examine_real_files(root: str, corpus: Corpus, done: Damage, judge: Judge) -> None:
    """Two lives of the directory."""
    for path, content in {**corpus.files, done.path: done.content}.items():
        file = Path(root) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    await _live(root, judge, is_first=True)
    await _live(root, judge, is_first=False)


async def _live(root: str, judge: Judge, *, is_first: bool) -> None:
    disk, events, clock = await open_disk(Path(root)), Events(), RealClock()
    directory = LogDirectory(
        disk,
        InlineWorker(root),
        clock,
        time=SteadyTime(clock),
        sealer=InlineWorker(root),
        name=disk.name,
        events=events,
        limits=DirectoryLimits(housekeeping=LIMITS),
    )
    life = Life(directory, clock, events)
    try:
        await life.open(placed(epoch=_EPOCH, dirty_ratio=1.0))
    except TidelogError as error:
        judge.tell(error)
        await disk.shutdown()
        return
    async with TaskScope() as scope:
        running = scope.start(directory.run(), name="directory")
        await judge.look(life, is_compacting=False)
        if is_first:
            await asyncio.sleep(_WORK_S)
            await judge.append(life, 0)
            await judge.look(life, is_compacting=False)
            await directory.stop()
        running.cancel()
    await disk.shutdown()
