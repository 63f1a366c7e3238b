"""What only a worker with a process of its own can show: that the process dies, and of what."""

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.ports import Disk
from tidelog.ports.real.disk import io as disk_io
from tidelog.ports.real.worker.files import DirectoryFiles
from tidelog.ports.real.worker.process import Order, Pace, run_order
from tidelog.ports.real.worker.worker import ProcessWorker
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow

EVALUATE = "tests.ports.support.worker_jobs:evaluate"


class Nowhere:
    """A data directory by its name alone, as the worker takes it."""

    name = "/"


NOWHERE = cast(Disk, Nowhere())


async def wait_until_running(started: Path) -> None:
    """Until the job opens the other end of this pipe."""
    async with asyncio.timeout(HANG_SECONDS):
        await asyncio.get_running_loop().run_in_executor(None, started.read_bytes)


def lingering_job(started: Path) -> bytes:
    """A job that opens a named pipe and then never ends."""
    os.mkfifo(started)
    return f"open({str(started)!r}, 'w').close() or __import__('threading').Event().wait()".encode()


def start_lingering(worker: ProcessWorker, started: Path) -> asyncio.Task[bytes]:
    """Run such a job."""
    return asyncio.create_task(worker.run(EVALUATE, lingering_job(started), disk=NOWHERE))


def is_alive(process_id: int) -> bool:
    """Whether the process is still there."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("job", "end"),
    [
        (b"__import__('os')._exit(3)", "exit status 3"),
        (b"__import__('os').kill(__import__('os').getpid(), 9)", "signal 9"),
    ],
)
def test_a_job_whose_process_dies_raises_and_the_next_one_has_a_new_process(
    job: bytes, end: str
) -> None:
    async def run() -> tuple[TidelogError, bytes]:
        worker = ProcessWorker()
        with pytest.raises(TidelogError) as caught:
            await worker.run(EVALUATE, job, disk=NOWHERE)
        answer = await worker.run(EVALUATE, b"b'alive'", disk=NOWHERE)
        await worker.close()
        return caught.value, answer

    error, answer = asyncio.run(run())
    assert error.code is ErrorCode.UNKNOWN
    assert end in error.happened
    assert answer == b"alive"


def test_close_kills_the_process_and_gives_the_job_up(tmp_path: Path) -> None:
    async def run() -> tuple[ErrorCode, int]:
        worker = ProcessWorker()
        job = start_lingering(worker, tmp_path / "started")
        await wait_until_running(tmp_path / "started")
        process_id = worker.process_id
        await worker.close()
        with pytest.raises(TidelogError) as caught:
            await job
        return caught.value.code, process_id

    code, process_id = asyncio.run(run())
    assert code is ErrorCode.CLOSED
    assert not is_alive(process_id)


def test_a_cancelled_job_is_killed_and_the_waiting_one_runs(tmp_path: Path) -> None:
    async def run() -> tuple[bytes, int]:
        worker = ProcessWorker()
        job = start_lingering(worker, tmp_path / "started")
        await wait_until_running(tmp_path / "started")
        process_id = worker.process_id
        waiting = asyncio.create_task(worker.run(EVALUATE, b"b'next'", disk=NOWHERE))
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        answer = await waiting
        await worker.close()
        return answer, process_id

    answer, process_id = asyncio.run(run())
    assert answer == b"next"
    assert not is_alive(process_id)


def test_what_a_job_prints_does_not_reach_its_answer() -> None:
    async def run() -> bytes:
        worker = ProcessWorker()
        answer = await worker.run(EVALUATE, b"print('noise') or b'answer'", disk=NOWHERE)
        await worker.close()
        return answer

    assert asyncio.run(run()) == b"answer"


def test_the_process_ends_with_its_parent_even_in_a_job(tmp_path: Path) -> None:
    """A node that is killed leaves no job behind that would meet its next start."""

    async def run() -> int:
        worker = ProcessWorker()
        job = start_lingering(worker, tmp_path / "started")
        await wait_until_running(tmp_path / "started")
        # The end of its standard input is all that the process sees of its parent's death.
        process = worker._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(HANG_SECONDS):
            status = await process.wait()
        with pytest.raises(TidelogError):
            await job
        await worker.close()
        return status

    assert asyncio.run(run()) not in (-signal.SIGKILL, -signal.SIGTERM)


@contextlib.contextmanager
def files_of(root: Path, *, is_flush_failing: bool = False) -> Iterator[DirectoryFiles]:
    """What a job of this directory gets."""
    flushes: list[int] = []

    def fail_once(descriptor: int) -> None:
        flushes.append(descriptor)
        if len(flushes) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        raise AssertionError("a failed flush is never tried again")

    files = DirectoryFiles(
        str(root), flush_file=fail_once if is_flush_failing else disk_io.flush_file
    )
    try:
        yield files
    finally:
        files.close()


def test_a_file_whose_flush_failed_takes_no_other_write_or_flush(tmp_path: Path) -> None:
    with files_of(tmp_path, is_flush_failing=True) as files:
        files.create("made.new")
        files.append("made.new", [b"abc"])
        for _ in range(2):
            with pytest.raises(TidelogError) as caught:
                files.flush("made.new")
            assert caught.value.code is ErrorCode.STORAGE_FAILED
        with pytest.raises(TidelogError):
            files.append("made.new", [b"abc"])


def test_a_new_file_in_the_place_of_a_failed_one_has_another_inode(tmp_path: Path) -> None:
    with files_of(tmp_path) as files:
        files.create("made.new")
        before = os.open(tmp_path / "made.new", os.O_RDONLY)
        files.create("made.new")
        files.append("made.new", [b"abc"])
        files.flush("made.new")
        assert os.fstat(before).st_size == 0
        assert (tmp_path / "made.new").read_bytes() == b"abc"
        os.close(before)


@pytest.mark.parametrize("path", ["link", "directory/file"])
def test_no_link_is_followed(tmp_path: Path, path: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "file").write_bytes(b"another's")
    (root / "link").symlink_to(outside / "file")
    (root / "directory").symlink_to(outside)
    with files_of(root) as files:
        with pytest.raises(TidelogError) as caught:
            files.read(path, 0, 10)
        assert caught.value.code is ErrorCode.STORAGE_FAILED
        if path == "link":
            files.create(path)
            files.append(path, [b"ours"])
    assert (outside / "file").read_bytes() == b"another's"


def test_more_files_than_descriptors_are_kept_are_read_all_the_same(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / str(number)).write_bytes(b"%d" % number)
    with files_of(tmp_path) as files:
        for _ in range(2):
            assert [files.read(str(number), 0, 10) for number in range(40)] == [
                b"%d" % number for number in range(40)
            ]
        assert len(os.listdir("/proc/self/fd")) < 100


def test_a_read_that_reaches_beyond_the_end_is_shorter(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(range(256)) * 1_000)
    with files_of(tmp_path) as files:
        assert files.read("log", 255_999, 10) == b"\xff"
        assert files.read("log", 256_000, 10) == b""
        assert files.read("log", 0, 300_000) == bytes(range(256)) * 1_000


def test_a_directory_that_is_gone_is_a_storage_failure(tmp_path: Path) -> None:
    outcome = run_order(
        Order("tests.ports.support.worker_jobs:size", b"x", str(tmp_path / "gone"), 0)
    )
    assert outcome.code == ErrorCode.STORAGE_FAILED.value
    assert "gone" in outcome.tried


def test_a_rate_that_was_not_used_is_not_saved_up() -> None:
    now_s = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_s[0] += seconds

    pace = Pace(1_000, monotonic=lambda: now_s[0], sleep=sleep)
    pace.spend(1_000)
    now_s[0] += 3_600
    pace.spend(1_000)
    assert slept == pytest.approx([1.0, 0.75])
