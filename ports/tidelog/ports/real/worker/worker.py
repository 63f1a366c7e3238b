"""The Worker port over one child process, started at the first job and again after one that died.

Owns that process, which opens files of the data directory by itself. It must never leave one
behind: `close` kills it, and a node that dies without closing ends it by the end of its standard
input.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

import msgspec

from tidelog.ports.disk import Disk
from tidelog.ports.real.worker.process import (
    JOB_BYTES_MAX,
    LENGTH_BYTES,
    Order,
    Outcome,
    frame,
    raise_failure,
)
from tidelog.wire.errors import ErrorCode, TidelogError

_outcome_decoder: Final = msgspec.msgpack.Decoder(Outcome)


class ProcessWorker:
    """Jobs take turns; each is given up when its task is cancelled."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._is_closed = False

    @property
    def process_id(self) -> int:
        """Of the process that runs jobs; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    async def run(
        self, job: str, arguments: bytes, *, disk: Disk, bytes_per_second: int = 0
    ) -> bytes:
        """Run the job that `job` names (`package.module:function`) on the files of `disk`."""
        assert bytes_per_second >= 0, f"no job moves {bytes_per_second} bytes a second"
        if len(arguments) > JOB_BYTES_MAX:
            raise _failed(job, f"its arguments have {len(arguments)} bytes", _TOO_MUCH)
        async with self._turn:
            if self._is_closed:
                raise _closed(job)
            is_answered = False
            try:
                outcome = await self._exchange(Order(job, arguments, disk.name, bytes_per_second))
                is_answered = True
            except (OSError, asyncio.IncompleteReadError):
                if self._is_closed:
                    raise _closed(job) from None
                raise _failed(job, await self._describe_death()) from None
            finally:
                if not is_answered:
                    # Cancelled, or dead: its next answer would belong to this job.
                    await self._end_process()
        raise_failure(outcome)
        if outcome.failure:
            raise _failed(job, outcome.failure)
        return outcome.result

    async def close(self) -> None:
        """End the process; a job in progress is given up."""
        self._is_closed = True
        await self._end_process()

    async def _exchange(self, order: Order) -> Outcome:
        process = self._process
        if process is None:
            process = self._process = await _start_process()
        assert process.stdin is not None, "the process is started with pipes"
        assert process.stdout is not None, "the process is started with pipes"
        process.stdin.write(frame(order))
        await process.stdin.drain()
        prefix = await process.stdout.readexactly(LENGTH_BYTES)
        answer = await process.stdout.readexactly(int.from_bytes(prefix, "big"))
        return _outcome_decoder.decode(answer)

    async def _describe_death(self) -> str:
        if self._process is None:
            return "its process could not be started"
        status = await self._process.wait()
        end = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"its process died with {end}"

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.shield(process.wait())


async def _start_process() -> Process:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "tidelog.ports.real.worker.process",
        stdin=PIPE,
        stdout=PIPE,
        env=environment,
    )


_TOO_MUCH: Final = f"Hand over at most {JOB_BYTES_MAX} bytes; put more into a file."


def _failed(job: str, happened: str, hint: str = "") -> TidelogError:
    return TidelogError(ErrorCode.UNKNOWN, tried=f"run {job}", happened=happened, hint=hint)


def _closed(job: str) -> TidelogError:
    return TidelogError(ErrorCode.CLOSED, tried=f"run {job}", happened="the worker was closed")
