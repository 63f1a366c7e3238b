"""Time for comparing with records' timestamps, which a jump of the wall's clock does not move.

Owns the offset between the two clocks, taken once. It must never look at the wall again: what is
deleted by a wrong clock does not come back when the clock is put right.
"""

from typing import Final

from tidelog.ports import Clock

_NS_PER_MS: Final = 1_000_000


class SteadyTime:
    """The wall's time when this was made, and the monotonic time since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_wall_ms = clock.wall_ms()
        self._start_ns = clock.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since 1970, as far as the wall was right at the start; never falls."""
        return self._start_wall_ms + (self._clock.monotonic_ns() - self._start_ns) // _NS_PER_MS
