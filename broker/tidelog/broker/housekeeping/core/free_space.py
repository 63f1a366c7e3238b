"""Whether a data directory takes appends: the floor, with hysteresis. Pure.

Owns the two bounds. One that is crossed downwards is left only with a margin, so that a directory
at its floor does not change its mind with every segment that is removed.
"""

from tidelog.broker.housekeeping.core.limits import HousekeepingLimits


class FreeSpace:
    """`observe` what is free; `is_full` in between."""

    def __init__(self, limits: HousekeepingLimits) -> None:
        self._floor_bytes = limits.free_bytes_min
        self._leave_bytes = limits.free_bytes_min + limits.free_bytes_margin
        self.is_full = False
        self.free_bytes = -1
        """-1: not asked yet."""

    def observe(self, free_bytes: int) -> bool:
        """Whether `is_full` has changed."""
        assert free_bytes >= 0, f"a disk has {free_bytes} bytes left"
        self.free_bytes = free_bytes
        before = self.is_full
        if before:
            self.is_full = free_bytes < self._leave_bytes
        else:
            self.is_full = free_bytes < self._floor_bytes
        return self.is_full != before

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether so much may be written in the background without coming near the floor."""
        return not self.is_full and self.free_bytes - size_bytes >= self._leave_bytes

    def has_room_for_ballast(self, size_bytes: int) -> bool:
        """Whether so much may be held back; without a floor appends would eat it up."""
        return size_bytes <= self._floor_bytes and self.has_room_for(size_bytes)
