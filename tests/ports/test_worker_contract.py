"""The promises of the Worker port, in every world. Jobs are functions of the standard library."""

import asyncio
import zlib

import pytest

from tests.ports.adapters import World
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow


def test_a_job_gets_bytes_and_returns_bytes(world: World) -> None:
    data = bytes(range(256)) * 1_000

    async def run() -> bytes:
        worker = world.worker()
        return await worker.run("zlib:decompress", await worker.run("zlib:compress", data))

    assert world.run(run()) == data


def test_1_jobs_run_one_at_a_time_in_the_order_submitted(world: World) -> None:
    submitted: list[int] = []
    ended: list[int] = []

    async def run() -> None:
        worker = world.worker()

        async def job(number: int) -> None:
            submitted.append(number)
            assert await worker.run("zlib:compress", b"x") == zlib.compress(b"x")
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
        ("zlib:decompress", b"not compressed"),
        ("no_such_module:function", b""),
        ("zlib:nothing", b""),
    ],
)
def test_2_a_job_that_raises_raises_here_and_the_next_one_runs(
    world: World, job: str, arguments: bytes
) -> None:
    async def run() -> tuple[TidelogError, bytes]:
        worker = world.worker()
        with pytest.raises(TidelogError) as caught:
            await worker.run(job, arguments)
        return caught.value, await worker.run("zlib:compress", b"next")

    error, answer = world.run(run())
    assert error.code is ErrorCode.UNKNOWN
    assert job in error.tried
    assert answer == zlib.compress(b"next")


def test_a_cancelled_job_does_not_disturb_the_next_one(world: World) -> None:
    async def run() -> bytes:
        worker = world.worker()
        cancelled = asyncio.create_task(worker.run("zlib:compress", b"cancelled"))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        return await worker.run("zlib:compress", b"next")

    assert world.run(run()) == zlib.compress(b"next")


def test_a_closed_worker_runs_nothing_more(world: World) -> None:
    async def run() -> ErrorCode:
        worker = world.worker()
        await worker.run("zlib:compress", b"x")
        await worker.close()
        await worker.close()
        with pytest.raises(TidelogError) as caught:
            await worker.run("zlib:compress", b"x")
        return caught.value.code

    assert world.run(run()) is ErrorCode.CLOSED


def test_a_job_in_progress_ends_as_closed_when_the_worker_is_closed(world: World) -> None:
    async def run() -> ErrorCode:
        worker = world.worker()
        await worker.run("zlib:compress", b"x")
        job = asyncio.create_task(worker.run("zlib:compress", bytes(16 * 1024 * 1024)))
        await asyncio.sleep(0)
        await worker.close()
        with pytest.raises(TidelogError) as caught:
            await job
        return caught.value.code

    assert world.run(run()) is ErrorCode.CLOSED
