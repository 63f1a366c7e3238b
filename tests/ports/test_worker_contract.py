"""The promises of the Worker port and of the files that it hands to jobs, in every world."""

import asyncio
import zlib
from collections.abc import Awaitable

import pytest

from tests.ports.support.abilities import Ability
from tests.ports.support.adapters import World
from tidelog.ports import Append, Disk, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow

JOBS = "tests.ports.support.worker_jobs:"
COMPRESS = JOBS + "compress"


async def write(disk: Disk, path: str, data: bytes) -> None:
    """A file of the node, unflushed."""
    file = await disk.open(path, create=True)
    await disk.append([Append(file, [data])])


async def refused(work: Awaitable[bytes]) -> TidelogError:
    """What it raises."""
    with pytest.raises(TidelogError) as caught:
        await work
    return caught.value


def test_a_job_gets_bytes_and_returns_bytes(world: World) -> None:
    data = bytes(range(256)) * 1_000

    async def run() -> bytes:
        worker, disk = world.worker(), await world.disk()
        packed = await worker.run(COMPRESS, data, disk=disk)
        return await worker.run(JOBS + "decompress", packed, disk=disk)

    assert world.run(run()) == data


def test_1_jobs_run_one_at_a_time_in_the_order_submitted(world: World) -> None:
    submitted: list[int] = []
    ended: list[int] = []

    async def run() -> None:
        worker, disk = world.worker(), await world.disk()

        async def job(number: int) -> None:
            submitted.append(number)
            assert await worker.run(COMPRESS, b"x", disk=disk) == zlib.compress(b"x")
            ended.append(number)

        async with TaskScope() as scope:
            for number in range(10):
                scope.start(job(number), name=str(number))

    world.run(run())
    assert len(submitted) == 10
    assert sorted(ended) == list(range(10))


@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        (JOBS + "decompress", b"not compressed"),
        (JOBS + "nothing", b""),
        (JOBS + "answer_text", b"text"),
        ("no_such_module:function", b""),
    ],
)
def test_2_a_job_that_dies_raises_here_and_the_next_one_runs(
    world: World, job: str, arguments: bytes
) -> None:
    async def run() -> tuple[TidelogError, bytes]:
        worker, disk = world.worker(), await world.disk()
        error = await refused(worker.run(job, arguments, disk=disk))
        return error, await worker.run(COMPRESS, b"next", disk=disk)

    error, answer = world.run(run())
    assert error.code is ErrorCode.UNKNOWN
    assert job in error.tried
    assert answer == zlib.compress(b"next")


def test_2_an_error_that_a_job_raised_arrives_as_an_equal_one(world: World) -> None:
    async def run() -> TidelogError:
        worker, disk = world.worker(), await world.disk()
        return await refused(worker.run(JOBS + "refuse", b"read a segment", disk=disk))

    error = world.run(run())
    assert error.args == (
        ErrorCode.STORAGE_CORRUPT,
        "read a segment",
        "byte 7 is not what it was",
        "look at byte 7",
    )
    assert (error.code, error.hint) == (ErrorCode.STORAGE_CORRUPT, "look at byte 7")


def test_a_job_reads_what_the_node_has_written_and_the_node_what_the_job_made(
    world: World,
) -> None:
    data = bytes(range(251)) * 1_000

    async def run() -> tuple[bytes, bytes]:
        worker, disk = world.worker(), await world.disk()
        await disk.make_directory("topic")
        await write(disk, "topic/log", data)
        length = await worker.run(JOBS + "copy", b"topic/log topic/made.new", disk=disk)
        await disk.rename("topic/made.new", "topic/made")
        return length, await disk.read(await disk.open("topic/made"), 0, len(data) + 1)

    assert world.run(run()) == (str(len(data)).encode(), data)


def test_a_file_that_a_job_removes_is_gone(world: World) -> None:
    async def run() -> tuple[bytes, list[str]]:
        worker, disk = world.worker(), await world.disk()
        await write(disk, "log", b"a" * 100)
        answer = await worker.run(JOBS + "copy_and_remove", b"log made.new", disk=disk)
        return answer, await disk.list()

    assert world.run(run()) == (b"100 -1", ["log"])


def test_a_created_file_takes_the_place_of_one_left_behind(world: World) -> None:
    async def run() -> tuple[bytes, bytes]:
        worker, disk = world.worker(), await world.disk()
        await write(disk, "made.new", b"left behind by a job that died")
        await write(disk, "log", b"short")
        before = await disk.open("made.new")
        await worker.run(JOBS + "copy", b"log made.new", disk=disk)
        return await worker.run(JOBS + "read", b"made.new", disk=disk), await disk.read(
            before, 0, 11
        )

    assert world.run(run()) == (b"short", b"left behind")


def test_the_size_of_a_missing_file_is_minus_one(world: World) -> None:
    async def run() -> list[bytes]:
        worker, disk = world.worker(), await world.disk()
        await write(disk, "log", b"12345")
        return [
            await worker.run(JOBS + "size", path, disk=disk)
            for path in (b"log", b"missing", b"no/such/directory")
        ]

    assert world.run(run()) == [b"5", b"-1", b"-1"]


@pytest.mark.parametrize("path", ["/etc/hosts", "../outside", "a/../../b", ".lock", "a//b"])
@pytest.mark.parametrize("job", ["size", "read", "create"])
def test_no_path_leads_out_of_the_directory_or_to_its_lock(
    world: World, job: str, path: str
) -> None:
    async def run() -> TidelogError:
        worker, disk = world.worker(), await world.disk()
        return await refused(worker.run(JOBS + job, path.encode(), disk=disk))

    assert world.run(run()).code is ErrorCode.STORAGE_FAILED


def test_reading_or_creating_what_cannot_be_raises_storage_failed(world: World) -> None:
    async def run() -> list[ErrorCode]:
        worker, disk = world.worker(), await world.disk()
        return [
            (await refused(worker.run(JOBS + job, path, disk=disk))).code
            for job, path in (("read", b"missing"), ("create", b"missing/made.new"))
        ]

    assert world.run(run()) == [ErrorCode.STORAGE_FAILED] * 2


@pytest.mark.needs(Ability.FILL_DISK)
def test_a_job_on_a_full_disk_raises_storage_full(world: World) -> None:
    async def run() -> tuple[ErrorCode, bytes]:
        worker, disk = world.worker(), await world.full_disk()
        await write(disk, "log", b"a" * 150_000)
        error = await refused(worker.run(JOBS + "copy", b"log made.new", disk=disk))
        return error.code, await worker.run(JOBS + "size", b"log", disk=disk)

    assert world.run(run()) == (ErrorCode.STORAGE_FULL, b"150000")


def test_a_job_keeps_to_its_rate(world: World) -> None:
    async def run() -> int:
        worker, disk, clock = world.worker(), await world.disk(), world.clock()
        await write(disk, "log", b"a" * 200_000)
        await worker.run(COMPRESS, b"the process is there", disk=disk)
        before_ns = clock.monotonic_ns()
        await worker.run(JOBS + "copy", b"log made", disk=disk, bytes_per_second=1_000_000)
        return (clock.monotonic_ns() - before_ns) // 1_000_000

    assert world.run(run()) >= 390, "400,000 bytes were moved at 1,000,000 a second"


def test_a_cancelled_job_does_not_disturb_the_next_one(world: World) -> None:
    async def run() -> bytes:
        worker, disk = world.worker(), await world.disk()
        cancelled = asyncio.create_task(worker.run(COMPRESS, b"cancelled", disk=disk))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        return await worker.run(COMPRESS, b"next", disk=disk)

    assert world.run(run()) == zlib.compress(b"next")


def test_a_closed_worker_runs_nothing_more(world: World) -> None:
    async def run() -> ErrorCode:
        worker, disk = world.worker(), await world.disk()
        await worker.run(COMPRESS, b"x", disk=disk)
        await worker.close()
        await worker.close()
        return (await refused(worker.run(COMPRESS, b"x", disk=disk))).code

    assert world.run(run()) is ErrorCode.CLOSED


def test_a_job_in_progress_ends_as_closed_when_the_worker_is_closed(world: World) -> None:
    async def run() -> ErrorCode:
        worker, disk = world.worker(), await world.disk()
        await worker.run(COMPRESS, b"x", disk=disk)
        job = asyncio.create_task(worker.run(COMPRESS, bytes(16 * 1024 * 1024), disk=disk))
        await asyncio.sleep(0)
        await worker.close()
        return (await refused(job)).code

    assert world.run(run()) is ErrorCode.CLOSED


@pytest.mark.needs(Ability.CRASH_MACHINE)
def test_a_crash_keeps_what_a_job_has_flushed(world: World) -> None:
    async def run() -> tuple[bytes, int]:
        worker, disk = world.worker(), await world.disk()
        await worker.run(JOBS + "leave_unflushed", b"flushed unflushed", disk=disk)
        await disk.flush([], directories=[""])
        world.crash(is_machine=True)
        disk = await world.disk()
        kept = await disk.read(await disk.open("flushed"), 0, 2_000)
        return kept, len(await disk.list())

    kept, names = world.run(run())
    assert kept == b"a" * 1_000
    assert names == 2
