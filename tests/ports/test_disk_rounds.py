"""What is written while a round flushes, and what a round that failed leaves: real files only."""

import asyncio
import errno
import os
from pathlib import Path

from tests.ports.test_real_disk import GatedFlusher, append, fail, run_with_disk
from tidelog.ports.real.disk import RealDisk
from tidelog.ports.real.disk_descriptors import RealFile
from tidelog.ports.real.disk_flush import Flusher


def test_writes_go_on_while_a_round_is_in_flight_and_leave_their_file_dirty(tmp_path: Path) -> None:
    flushers: list[GatedFlusher] = []

    def make(root: str) -> Flusher:
        flushers.append(GatedFlusher(root))
        return flushers[0]

    async def work(disk: RealDisk) -> None:
        log, other = [await disk.open(name, create=True) for name in ("log", "other")]
        assert isinstance(log, RealFile)
        assert isinstance(other, RealFile)
        await append(disk, log, b"before")
        first = asyncio.create_task(disk.flush([log, other]))
        await asyncio.get_running_loop().run_in_executor(None, flushers[0].has_begun.wait)
        await append(disk, log, b", during")
        assert not first.done()
        flushers[0].may_go_on.release(2)
        await first
        assert (log.is_dirty, other.is_dirty) == (True, False)
        await disk.flush([log])
        assert not log.is_dirty

    run_with_disk(tmp_path, work, make_flusher=make)


def test_a_file_whose_flush_failed_stays_dirty(tmp_path: Path) -> None:
    def make(root: str) -> Flusher:
        def refuse(descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        return Flusher(root, flush_file=refuse)

    async def work(disk: RealDisk) -> None:
        log = await disk.open("log", create=True)
        assert isinstance(log, RealFile)
        await fail(disk.flush([log]))
        assert log.is_dirty

    run_with_disk(tmp_path, work, make_flusher=make)
