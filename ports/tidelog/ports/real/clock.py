"""The machine's clocks. Owns the only reading of time in a node; never compares the two kinds."""

import asyncio
import sys
import time

NS_PER_MS = 1_000_000
_UPTIME = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
"""Of macOS the latter counts sleep as well."""


class RealClock:
    """Monotonic ticks from CLOCK_MONOTONIC, the wall's from CLOCK_REALTIME."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start; never falls."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump in either direction."""
        return time.time_ns() // NS_PER_MS

    def uptime_ns(self) -> int:
        """Nanoseconds since the machine's start, its sleep included where the system counts it."""
        return time.clock_gettime_ns(_UPTIME)

    async def sleep(self, duration_ms: int) -> None:
        """Return after at least `duration_ms` of monotonic time.

        An event loop may wake up to its clock's resolution early, so the rest is slept again.
        """
        end_ns = time.monotonic_ns() + duration_ms * NS_PER_MS
        await asyncio.sleep(max(0, duration_ms) / 1000)
        if (rest_ns := end_ns - time.monotonic_ns()) > 0:
            await self.sleep(-(-rest_ns // NS_PER_MS))
