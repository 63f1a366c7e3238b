"""The Worker port without a process: jobs run in turn, after a while of virtual time."""

import asyncio
import importlib
from collections.abc import Callable
from typing import cast

from tidelog.chaos.sim.clock import set_done, sleep_ns
from tidelog.chaos.sim.loop import SimulatedLoop
from tidelog.chaos.sim.seeds import SeededRandom
from tidelog.wire.errors import ErrorCode, TidelogError

_DURATION_NS_MAX = 50_000_000


class SimulatedWorker:
    """One job at a time, in the order in which they were submitted."""

    def __init__(self, loop: SimulatedLoop, random: SeededRandom) -> None:
        self._loop = loop
        self._random = random
        self._is_closed = False
        self._last: asyncio.Future[None] | None = None

    async def run(self, job: str, arguments: bytes) -> bytes:
        """Wait for the jobs before, let time pass, run it."""
        before, mine = self._last, asyncio.Future[None](loop=self._loop)
        self._last = mine
        try:
            if before is not None:
                await asyncio.shield(before)
            self._check_open(job)
            await sleep_ns(self._loop, self._random.below(_DURATION_NS_MAX))
            self._check_open(job)
            return self._run_now(job, arguments)
        finally:
            if before is not None and not before.done():
                before.add_done_callback(lambda _: set_done(mine))
            else:
                set_done(mine)

    async def close(self) -> None:
        """Give up what has not ended."""
        self._is_closed = True

    def _check_open(self, job: str) -> None:
        if self._is_closed:
            raise TidelogError(
                ErrorCode.CLOSED, tried=f"run {job}", happened="the worker was closed"
            )

    def _run_now(self, job: str, arguments: bytes) -> bytes:
        module_name, _, function_name = job.partition(":")
        try:
            function = cast(
                "Callable[[bytes], bytes]",
                getattr(importlib.import_module(module_name), function_name),
            )
            return function(arguments)
        except Exception as error:
            raise _failure(job, f"the job raised {error!r}") from error


def _failure(job: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.UNKNOWN, tried=f"run the job {job}", happened=happened)
