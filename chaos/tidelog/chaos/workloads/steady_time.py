"""The time of a data directory that belongs to no node: nobody is there to be asked about clocks.

Owns the offset between the two clocks, taken once. For models and measurements of a directory by
itself; a node has `broker.node_time`.
"""

from typing import Final

from tidelog.broker.shared.node_time import HouseTime
from tidelog.ports import Clock

_NS_PER_MS: Final = 1_000_000


class SteadyTime(HouseTime):
    """The wall's time when this was made, and the monotonic time since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_wall_ms = clock.wall_ms()
        self._start_ns = clock.monotonic_ns()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as far as the wall was right at the start; never falls."""
        return self._start_wall_ms + (self._clock.monotonic_ns() - self._start_ns) // _NS_PER_MS

    @property
    def may_expire(self) -> bool:
        """Always: whoever made it says that the clock was right."""
        return True
