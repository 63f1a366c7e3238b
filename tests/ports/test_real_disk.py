"""What only real files can show: system errors, eviction, shared rounds, the lock of a process."""

import asyncio
import contextlib
import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.ports.support.limits import open_files_limit
from tests.ports.support.mounts import can_mount, mounted
from tests.support.waiting import HANG_SECONDS
from tidelog.ports import Append, File, FileUnusable
from tidelog.ports.real.disk import io as disk_io
from tidelog.ports.real.disk.descriptors import RealFile
from tidelog.ports.real.disk.disk import RealDisk, open_disk
from tidelog.ports.real.disk.flush import SYNCFS_FILES_MIN, Flusher
from tidelog.wire.errors import ErrorCode, TidelogError


def run_with_disk(
    directory: Path,
    work: Callable[[RealDisk], Awaitable[None]],
    *,
    make_flusher: Callable[[str], Flusher] = Flusher,
    descriptors_max: int | None = None,
) -> None:
    """Open, work, shut down."""

    async def run() -> None:
        disk = await open_disk(
            directory, make_flusher=make_flusher, descriptors_max=descriptors_max
        )
        try:
            await asyncio.wait_for(_as_coroutine(work(disk)), HANG_SECONDS)
        finally:
            await disk.shutdown()

    asyncio.run(run())


async def _as_coroutine(work: Awaitable[None]) -> None:
    await work


async def append(disk: RealDisk, file: File, data: bytes) -> None:
    """One piece at the end of one file."""
    await disk.append([Append(file, [data])])


async def fail(work: Awaitable[object]) -> TidelogError:
    """The error that `work` ends with."""
    with pytest.raises(TidelogError) as caught:
        await work
    return caught.value


@contextlib.contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Writes beyond this size fail with EFBIG, after a short one that ends at it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class GatedFlusher(Flusher):
    """Counts rounds, and holds each one up until the test lets it go."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.rounds: list[list[str]] = []
        self.has_begun = threading.Event()
        self.may_go_on = threading.Semaphore(0)

    def flush(self, files: dict[RealFile, int], directories: dict[str, int]) -> None:
        """One round."""
        self.rounds.append(sorted(file.path for file in files))
        self.has_begun.set()
        assert self.may_go_on.acquire(timeout=HANG_SECONDS), "the test forgot the round"
        super().flush(files, directories)


def test_flushes_that_wait_while_a_round_is_in_flight_share_the_next_one(tmp_path: Path) -> None:
    flushers: list[GatedFlusher] = []

    def make(root: str) -> Flusher:
        flushers.append(GatedFlusher(root))
        return flushers[0]

    async def work(disk: RealDisk) -> None:
        files = [await disk.open(f"log-{number}", create=True) for number in range(5)]
        first = asyncio.create_task(disk.flush(files[:1]))
        await asyncio.get_running_loop().run_in_executor(None, flushers[0].has_begun.wait)
        others = [asyncio.create_task(disk.flush([file])) for file in files]
        await asyncio.sleep(0)
        flushers[0].may_go_on.release(2)
        for flush in [first, *others]:
            await flush

    run_with_disk(tmp_path, work, make_flusher=make)
    assert flushers[0].rounds == [["log-0"], [f"log-{number}" for number in range(5)]]


def test_few_files_are_flushed_one_by_one_and_many_by_one_call(tmp_path: Path) -> None:
    calls: list[str] = []

    def make(root: str) -> Flusher:
        flusher = Flusher(
            root,
            flush_file=lambda _: calls.append("file"),
            flush_file_system=lambda _: calls.append("file system"),
        )
        flusher.is_syncfs_trusted = True
        return flusher

    async def work(disk: RealDisk) -> None:
        files = [
            await disk.open(f"log-{number}", create=True) for number in range(SYNCFS_FILES_MIN)
        ]
        await disk.flush(files[1:])
        assert calls == ["file"] * (SYNCFS_FILES_MIN - 1)
        calls.clear()
        await disk.flush(files)
        assert calls == ["file system"]

    run_with_disk(tmp_path, work, make_flusher=make)


def test_directories_have_a_call_each_unless_the_whole_file_system_was_flushed(
    tmp_path: Path,
) -> None:
    calls: list[str] = []

    def make(root: str) -> Flusher:
        flusher = Flusher(
            root,
            flush_file=lambda _: None,
            flush_file_system=lambda _: calls.append("file system"),
            flush_directory=lambda _: calls.append("directory"),
        )
        flusher.is_syncfs_trusted = True
        return flusher

    async def work(disk: RealDisk) -> None:
        files = [
            await disk.open(f"log-{number}", create=True) for number in range(SYNCFS_FILES_MIN)
        ]
        await disk.flush(files[1:], directories=[""])
        assert calls == ["directory"]
        calls.clear()
        await disk.flush(files, directories=[""])
        assert calls == ["file system"]

    run_with_disk(tmp_path, work, make_flusher=make)


def test_without_a_trusted_syncfs_every_file_has_its_own_call(tmp_path: Path) -> None:
    calls: list[str] = []

    def make(root: str) -> Flusher:
        flusher = Flusher(
            root,
            flush_file=lambda _: calls.append("file"),
            flush_file_system=lambda _: calls.append("file system"),
        )
        flusher.is_syncfs_trusted = False
        return flusher

    async def work(disk: RealDisk) -> None:
        await disk.flush([await disk.open(f"log-{number}", create=True) for number in range(40)])

    run_with_disk(tmp_path, work, make_flusher=make)
    assert calls == ["file"] * 40


def test_a_failing_flush_names_the_error_of_the_system(tmp_path: Path) -> None:
    def make(root: str) -> Flusher:
        def refuse(descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        return Flusher(root, flush_file=refuse)

    async def work(disk: RealDisk) -> None:
        file = await disk.open("log", create=True)
        first = await fail(disk.flush([file]))
        later = await fail(append(disk, file, b"x"))
        assert first.code is later.code is ErrorCode.STORAGE_FAILED
        assert "EIO" in first.happened
        assert "EIO" in later.happened
        assert str(tmp_path) in first.tried
        assert "log" in later.tried

    run_with_disk(tmp_path, work, make_flusher=make)


def test_a_flush_that_cannot_be_prepared_fails_alone(tmp_path: Path) -> None:
    async def work(disk: RealDisk) -> None:
        file = await disk.open("log", create=True)
        closed = await disk.open("closed", create=True)
        await disk.close(closed)
        good = asyncio.create_task(disk.flush([file], directories=[""]))
        missing = await fail(disk.flush([file], directories=["missing"]))
        gone = await fail(disk.flush([file, closed]))
        await good
        await append(disk, file, b"the disk goes on")
        await disk.flush([file])
        assert (missing.code, gone.code) == (ErrorCode.STORAGE_FAILED, ErrorCode.CLOSED)

    run_with_disk(tmp_path, work)


def test_a_file_that_may_not_grow_is_told_alone_and_the_write_is_taken_back(
    tmp_path: Path,
) -> None:
    async def work(disk: RealDisk) -> None:
        short, file = await disk.open("short", create=True), await disk.open("log", create=True)
        await append(disk, file, b"0123456789")
        with file_size_limit(15):
            error = await fail(disk.append([Append(short, [b"s"]), Append(file, [b"abcdefghij"])]))
            await append(disk, short, b"t")
        assert isinstance(error, FileUnusable)
        assert error.paths == ("log",)
        assert "EFBIG" in error.happened
        assert "ulimit -f" in error.hint
        assert (tmp_path / "log").stat().st_size == file.size_bytes == 10
        await append(disk, file, b"whole")
        assert await disk.read(file, 0, 100) == b"0123456789whole"
        assert await disk.read(short, 0, 100) == b"t"

    run_with_disk(tmp_path, work)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EFBIG, "ulimit -f"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
        (errno.EDQUOT, "quota"),
        (errno.EPERM, "lsattr"),
        (errno.EACCES, "lsattr"),
        (errno.EIO, "replace the disk"),
    ],
)
def test_the_hint_of_an_error_sends_to_what_is_at_fault(number: int, told: str) -> None:
    error = disk_io.storage_error(OSError(number, os.strerror(number)), "append to log")
    assert told in error.hint
    assert ("replace the disk" in error.hint) == (number == errno.EIO)


def test_a_directory_that_may_not_be_written_fails_as_storage_failed(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")

    async def run() -> TidelogError:
        return await fail(open_disk(blocked / "data"))

    error = asyncio.run(run())
    assert error.code is ErrorCode.STORAGE_FAILED
    assert "ENOTDIR" in error.happened
    assert str(blocked) in error.tried


@pytest.mark.skipif(not can_mount(), reason="this process may not mount a file system")
def test_a_read_only_file_system_fails_as_storage_failed(tmp_path: Path) -> None:
    async def run(directory: Path) -> TidelogError:
        return await fail(open_disk(directory))

    with mounted(tmp_path / "read-only", "ro") as directory:
        error = asyncio.run(run(directory))
    assert error.code is ErrorCode.STORAGE_FAILED
    assert "EROFS" in error.happened


@pytest.mark.slow
def test_the_lock_names_the_process_that_holds_it_and_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import asyncio, pathlib, sys; from tidelog.ports.real.disk.disk import open_disk\n"
        "async def hold():\n"
        "    disk = await open_disk(pathlib.Path(sys.argv[1]))\n"
        "    print('held', flush=True); sys.stdin.read()\n"
        "asyncio.run(hold())\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        error = asyncio.run(fail(open_disk(tmp_path)))
        holder.kill()
        holder.wait(HANG_SECONDS)
    assert error.code is ErrorCode.STORAGE_IN_USE
    assert f"process {holder.pid} " in error.happened

    async def work(disk: RealDisk) -> None:
        assert await disk.list() == [], "the lock is not listed"

    run_with_disk(tmp_path, work)


def test_the_lock_file_is_out_of_reach(tmp_path: Path) -> None:
    async def work(disk: RealDisk) -> None:
        for refused in (disk.open(".lock"), disk.remove(".lock"), disk.rename(".lock", "x")):
            assert (await fail(refused)).code is ErrorCode.STORAGE_FAILED

    run_with_disk(tmp_path, work)


def test_a_path_with_a_nul_is_refused(tmp_path: Path) -> None:
    async def work(disk: RealDisk) -> None:
        assert (await fail(disk.open("a\0b", create=True))).code is ErrorCode.STORAGE_FAILED

    run_with_disk(tmp_path, work)


def test_descriptors_are_bounded_and_every_file_stays_usable(tmp_path: Path) -> None:
    async def work(disk: RealDisk) -> None:
        files = []
        for number in range(30):
            file = await disk.open(f"log-{number}", create=True)
            await append(disk, file, b"%d" % number)
            await disk.flush([file])
            files.append(file)
        assert open_descriptors(tmp_path) <= 4
        for number, file in enumerate(files):
            assert await disk.read(file, 0, 10) == b"%d" % number
            await append(disk, file, b"!")
            await disk.flush([file])
        assert open_descriptors(tmp_path) <= 4

    run_with_disk(tmp_path, work, descriptors_max=4)


def test_a_directory_keeps_a_quarter_of_the_files_that_a_process_may_have_open(
    tmp_path: Path,
) -> None:
    async def work(disk: RealDisk) -> None:
        for number in range(300):
            file = await disk.open(f"log-{number}", create=True)
            await append(disk, file, b"x")
            await disk.flush([file], directories=[""])
        assert open_descriptors(tmp_path) == 256

    with open_files_limit(1_024):
        run_with_disk(tmp_path, work)


def test_a_descriptor_with_unflushed_writes_is_never_evicted(tmp_path: Path) -> None:
    async def work(disk: RealDisk) -> None:
        dirty = [await disk.open(f"dirty-{number}", create=True) for number in range(11)]
        await disk.append([Append(file, [b"xy"]) for file in dirty])
        await disk.flush(dirty)
        for file in dirty[:5]:
            await append(disk, file, b"z")
        for file in dirty[5:10]:
            await disk.truncate(file, 1)
        for number in range(20):
            await disk.flush([await disk.open(f"clean-{number}", create=True)])
        kept = [file for file in dirty if isinstance(file, RealFile) and file.descriptor >= 0]
        assert len(kept) == 10
        await disk.flush(dirty)
        await disk.open("one-more", create=True)
        assert open_descriptors(tmp_path) <= 4, "clean now, they went"

    run_with_disk(tmp_path, work, descriptors_max=4)


def test_evicted_files_follow_a_rename_and_outlive_their_names(tmp_path: Path) -> None:
    async def work(disk: RealDisk) -> None:
        files = []
        for name in ("moved", "replaced", "removed"):
            file = await disk.open(name, create=True)
            await append(disk, file, name.encode())
            await disk.flush([file])
            files.append(file)
        for number in range(3):
            await disk.flush([await disk.open(f"other-{number}", create=True)])
        assert [file.descriptor for file in files if isinstance(file, RealFile)] == [-1] * 3
        await disk.rename("moved", "replaced")
        await disk.remove("removed")
        for number in range(3, 6):
            await disk.flush([await disk.open(f"other-{number}", create=True)])
        contents = [await disk.read(file, 0, 20) for file in files]
        assert contents == [b"moved", b"replaced", b"removed"]

    run_with_disk(tmp_path, work, descriptors_max=1)


def test_an_append_to_an_evicted_file_that_is_gone_writes_nothing_and_names_it(
    tmp_path: Path,
) -> None:
    async def work(disk: RealDisk) -> None:
        files = [await disk.open(name, create=True) for name in ("gone", "replaced", "stays")]
        await disk.flush(files, directories=[""])
        await disk.flush([await disk.open("other", create=True)])
        (tmp_path / "gone").unlink()
        (tmp_path / "new").touch()
        (tmp_path / "new").replace(tmp_path / "replaced")
        with pytest.raises(FileUnusable) as caught:
            await disk.append([Append(file, [b"1"]) for file in reversed(files)])
        assert caught.value.paths == ("replaced", "gone")
        await append(disk, files[2], b"2")
        assert await disk.read(files[2], 0, 9) == b"2"

    run_with_disk(tmp_path, work, descriptors_max=1)


def open_descriptors(directory: Path) -> int:
    """How many files below a directory this process has open, its lock and itself aside."""
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(entry.readlink())
    return sum(target.parent == directory and target.name != ".lock" for target in targets)


def test_shutdown_gives_every_descriptor_and_thread_back(tmp_path: Path) -> None:
    threads = threading.active_count()

    async def work(disk: RealDisk) -> None:
        for number in range(10):
            await append(disk, await disk.open(f"log-{number}", create=True), b"x")

    run_with_disk(tmp_path, work)
    assert open_descriptors(tmp_path) == 0
    assert not [
        entry
        for entry in Path("/proc/self/fd").iterdir()
        if entry.is_symlink() and str(tmp_path) in os.readlink(entry)
    ]
    assert threading.active_count() <= threads


def test_a_cancelled_opening_leaks_no_descriptor(tmp_path: Path) -> None:
    async def work(disk: RealDisk) -> None:
        for number in range(10):
            opening = asyncio.create_task(disk.open(f"log-{number}", create=True))
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        # Passes the writer after them, and its completion the loop after theirs.
        await disk.make_directory("done")
        assert open_descriptors(tmp_path) == 0

    run_with_disk(tmp_path, work)


def test_a_path_opened_twice_has_one_state(tmp_path: Path) -> None:
    async def work(disk: RealDisk) -> None:
        first = await disk.open("log", create=True)
        second = await disk.open("log")
        await append(disk, first, b"1")
        await append(disk, second, b"2")
        assert first.size_bytes == second.size_bytes == 2
        await disk.close(first)
        await append(disk, second, b"3")
        assert await disk.read(second, 0, 9) == b"123"
        await disk.close(second)
        assert open_descriptors(tmp_path) == 0

    run_with_disk(tmp_path, work)


def test_reads_beyond_what_the_loop_copies_come_from_a_thread(tmp_path: Path) -> None:
    data = os.urandom(3 * 1024 * 1024)

    async def work(disk: RealDisk) -> None:
        file = await disk.open("log", create=True)
        await append(disk, file, data)
        assert await disk.read(file, 1, len(data)) == data[1:]

    run_with_disk(tmp_path, work)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_nowait_reads_is_asked_once(number: int, tmp_path: Path) -> None:
    calls: list[int] = []

    def refuse(descriptor: int, buffers: object, position: int, flags: int) -> int:
        calls.append(flags)
        raise OSError(number, os.strerror(number))

    reader = disk_io.CachedReader(100, preadv=refuse)
    assert reader.read(0, 0, 10) is None
    assert reader.read(0, 0, 10) is None
    assert len(calls) == 1


def test_a_page_that_is_not_cached_is_left_to_a_thread() -> None:
    def wait(descriptor: int, buffers: object, position: int, flags: int) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def cut_short(descriptor: int, buffers: object, position: int, flags: int) -> int:
        return 7

    assert disk_io.CachedReader(100, preadv=wait).read(0, 0, 10) is None
    assert disk_io.CachedReader(100, preadv=cut_short).read(0, 0, 10) is None
    assert disk_io.CachedReader(100, preadv=cut_short).read(0, 0, 7) == bytes(7)


def test_the_storage_errors_of_the_system_are_told_apart() -> None:
    full = [errno.ENOSPC, errno.EDQUOT]
    failed = [errno.EIO, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EMFILE]
    for number in full + failed:
        error = disk_io.storage_error(OSError(number, os.strerror(number)), "write x")
        expected = ErrorCode.STORAGE_FULL if number in full else ErrorCode.STORAGE_FAILED
        assert error.code is expected
        assert errno.errorcode[number] in error.happened
