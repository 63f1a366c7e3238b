"""Time, in its two kinds: ticks that only go forward, and the wall's, which may jump.

Decisions are made by monotonic time. Wall time enters as a field of a record or message and is
never compared with monotonic time.
"""

from typing import Protocol


class Clock(Protocol):
    """1. monotonic_ns never falls. 2. sleep ends no sooner than asked. 3. uptime_ns never falls as
    long as the machine is up, and is the same for all of its processes."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start; never falls."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump in either direction."""
        ...

    def uptime_ns(self) -> int:
        """Nanoseconds since the machine's start, its sleep included."""
        ...

    async def sleep(self, duration_ms: int) -> None:
        """Return after at least `duration_ms` of monotonic time."""
        ...
