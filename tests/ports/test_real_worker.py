"""What only a worker with a process of its own can show: that the process dies, and of what."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tidelog.ports.real.worker import ProcessWorker
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow

EVALUATE = "builtins:eval"
DEADLINE_S = 30


async def wait_until_running(started: Path) -> None:
    """Until the job opens the other end of this pipe."""
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.get_running_loop().run_in_executor(None, started.read_bytes)


def lingering_job(started: Path) -> bytes:
    """A job that opens a named pipe and then never ends."""
    os.mkfifo(started)
    return f"open({str(started)!r}, 'w').close() or __import__('threading').Event().wait()".encode()


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
            await worker.run(EVALUATE, job)
        answer = await worker.run(EVALUATE, b"b'alive'")
        await worker.close()
        return caught.value, answer

    error, answer = asyncio.run(run())
    assert error.code is ErrorCode.UNKNOWN
    assert end in error.happened
    assert answer == b"alive"


def test_close_kills_the_process_and_gives_the_job_up(tmp_path: Path) -> None:
    async def run() -> tuple[ErrorCode, int]:
        worker = ProcessWorker()
        job = asyncio.create_task(worker.run(EVALUATE, lingering_job(tmp_path / "started")))
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
        job = asyncio.create_task(worker.run(EVALUATE, lingering_job(tmp_path / "started")))
        await wait_until_running(tmp_path / "started")
        process_id = worker.process_id
        waiting = asyncio.create_task(worker.run(EVALUATE, b"b'next'"))
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
        answer = await worker.run(EVALUATE, b"print('noise') or b'answer'")
        await worker.close()
        return answer

    assert asyncio.run(run()) == b"answer"


def test_a_job_that_returns_anything_but_bytes_is_refused() -> None:
    async def run() -> str:
        worker = ProcessWorker()
        with pytest.raises(TidelogError) as caught:
            await worker.run("builtins:len", b"four")
        await worker.close()
        return caught.value.happened

    assert "int" in asyncio.run(run())


def test_the_process_ends_with_its_parent_even_in_a_job(tmp_path: Path) -> None:
    """A node that is killed leaves no job behind that would meet its next start."""

    async def run() -> int:
        worker = ProcessWorker()
        job = asyncio.create_task(worker.run(EVALUATE, lingering_job(tmp_path / "started")))
        await wait_until_running(tmp_path / "started")
        # The end of its standard input is all that the process sees of its parent's death.
        process = worker._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(DEADLINE_S):
            status = await process.wait()
        with pytest.raises(TidelogError):
            await job
        await worker.close()
        return status

    assert asyncio.run(run()) not in (-signal.SIGKILL, -signal.SIGTERM)
