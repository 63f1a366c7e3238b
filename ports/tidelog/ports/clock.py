"""Time, in its two kinds: ticks that only go forward, and the wall's, which may jump.

Decisions are made by monotonic time. Wall time enters as a field of a record or message and is
never compared with monotonic time.
"""

from typing import Protocol


class Clock(Protocol):
    """1. monotonic_ns never falls. 2. sleep ends no sooner than asked."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start; never falls."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump in either direction."""
        ...

    async def sleep(self, duration_ms: int) -> None:
        """Return after at least `duration_ms` of monotonic time."""
        ...
