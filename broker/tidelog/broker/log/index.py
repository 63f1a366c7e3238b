"""A segment's sparse index in memory: offset and time → byte position. Pure.

Owns the rule which batches get an entry: the first, and each that begins `INTERVAL_BYTES` or more
behind the last entry. It is a function of the segment's bytes, so one rebuilt at open equals the
live one. It must never answer a position that is not the start of a batch.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

from tidelog.wire.ids import BytePosition, Offset

INTERVAL_BYTES: Final = 4096
"""As Kafka's index.interval.bytes: a lookup walks at most this much, and one batch."""


class Place(msgspec.Struct, frozen=True):
    """Where a batch begins."""

    base_offset: Offset
    byte_position: BytePosition


class SparseIndex:
    """Grows at the end only; 24 bytes an entry."""

    __slots__ = ("_max_timestamps", "_offsets", "_positions", "max_timestamp")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")
        self._max_timestamps = array("q")
        self.max_timestamp = -1
        """The highest timestamp of the segment; -1: it is empty."""

    def add(self, base_offset: int, byte_position: int, max_timestamp: int) -> None:
        """Take note of a batch that was appended."""
        positions = self._positions
        if not positions or byte_position - positions[-1] >= INTERVAL_BYTES:
            assert positions or byte_position == 0, "the first batch begins the segment"
            assert not positions or base_offset > self._offsets[-1], "offsets grow with positions"
            # With the highest timestamp before this batch: what lies below an entry can be
            # skipped by time.
            self._offsets.append(base_offset)
            positions.append(byte_position)
            self._max_timestamps.append(self.max_timestamp)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def floor(self, offset: int) -> Place:
        """The last indexed batch that begins at or below the offset."""
        assert self._offsets, "an empty segment has no place"
        found = max(0, bisect_right(self._offsets, offset) - 1)
        return Place(Offset(self._offsets[found]), BytePosition(self._positions[found]))

    def floor_of_position(self, byte_position: int) -> Place:
        """The last indexed batch that begins at or below the byte position."""
        assert self._positions, "an empty segment has no place"
        found = max(0, bisect_right(self._positions, byte_position) - 1)
        return Place(Offset(self._offsets[found]), BytePosition(self._positions[found]))

    def floor_of_time(self, timestamp_ms: int) -> Place:
        """From here on lies the first record at or after the time, if the segment has one."""
        assert self._offsets, "an empty segment has no place"
        # Entry k holds the highest timestamp before it: the last entry below which all is earlier.
        found = max(0, bisect_left(self._max_timestamps, timestamp_ms) - 1)
        return Place(Offset(self._offsets[found]), BytePosition(self._positions[found]))

    def highest_time_below(self, offset: int) -> tuple[Place, int]:
        """The last indexed batch that begins at or below the offset, and the highest timestamp
        of all before that batch."""
        assert self._offsets, "an empty segment has no place"
        found = max(0, bisect_right(self._offsets, offset) - 1)
        return Place(
            Offset(self._offsets[found]), BytePosition(self._positions[found])
        ), self._max_timestamps[found]

    def entries(self) -> list[tuple[int, int, int]]:
        """All entries, for comparing a rebuilt index with the live one."""
        return list(zip(self._offsets, self._positions, self._max_timestamps, strict=True))

    def packed(self) -> bytes:
        """All entries as a sidecar holds them: three big-endian numbers each."""
        numbers = array("q", bytes(3 * 8 * len(self._offsets)))
        numbers[0::3] = self._offsets
        numbers[1::3] = self._positions
        numbers[2::3] = self._max_timestamps
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers.tobytes()

    def __len__(self) -> int:
        return len(self._offsets)
