"""The Clock port in virtual time: ticks are the loop's, the wall's belong to the machine.

The wall may jump, by `Machine.wall_offset_ms`; the ticks never do.
"""

import asyncio
from typing import Final, Protocol

from tidelog.chaos.sim.base.loop import SimulatedLoop

WALL_START_MS: Final = 1_750_000_000_000
DAY_MS: Final = 86_400_000
WRONG_STARTS_MS: Final = (DAY_MS, -DAY_MS, -WALL_START_MS, 4_102_444_800_000 - WALL_START_MS)
"""How far ahead a machine's clock may be when it starts: a day either way, 1970, 2100."""
_NS_PER_MS: Final = 1_000_000


class WallClock(Protocol):
    """Where the wall clock of a machine stands apart from virtual time."""

    wall_offset_ms: int
    clock_rate: float
    clock_base_ns: int
    clock_set_ns: int


class SimulatedClock:
    """One node's view of time."""

    def __init__(self, loop: SimulatedLoop, machine: WallClock) -> None:
        self._loop = loop
        self._machine = machine

    def monotonic_ns(self) -> int:
        """Virtual nanoseconds, as the machine's quartz counts them."""
        machine = self._machine
        passed_ns = self._loop.now_ns - machine.clock_set_ns
        return machine.clock_base_ns + int(passed_ns * machine.clock_rate)

    def wall_ms(self) -> int:
        """Virtual time as the machine's wall clock shows it."""
        return WALL_START_MS + self._loop.now_ns // _NS_PER_MS + self._machine.wall_offset_ms

    def uptime_ns(self) -> int:
        """Machines of the simulator do not sleep; a crash begins a new boot, and no new count."""
        return self.monotonic_ns()

    async def sleep(self, duration_ms: int) -> None:
        """At least this long, to the nanosecond when nothing else is due."""
        await sleep_ns(self._loop, int(duration_ms * _NS_PER_MS / self._machine.clock_rate))


async def sleep_ns(loop: SimulatedLoop, duration_ns: int) -> None:
    """Let virtual time pass."""
    future: asyncio.Future[None] = asyncio.Future(loop=loop)
    timer = loop.call_at_ns(loop.now_ns + max(0, duration_ns), set_done, future)
    try:
        await future
    finally:
        timer.cancel()


def set_done(future: asyncio.Future[None]) -> None:
    """Wake a waiter that may have gone."""
    if not future.done():
        future.set_result(None)
