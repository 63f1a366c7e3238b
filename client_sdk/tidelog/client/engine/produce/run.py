"""Records of one partition in a row, handed over at once: what a bulk call appends.

Owns how many of them fit into so much room. Records of one size are counted, others are looked up
in their running sum, so that nothing here costs Python a step per record. It must never change or
reorder what it was given.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from tidelog.wire.batch import Columns

SLAB_BYTES_MAX: Final = 512 * 1024
"""Of memory that a run reserves at a time: fewer records than `append` may put into a slab."""


class Run:
    """Records by field; `sizes` tell what each takes at most, one number if all take the same."""

    __slots__ = ("_ends", "_size_bytes", "columns", "count")

    def __init__(self, columns: Columns, sizes: int | Sequence[int]) -> None:
        self.columns = columns
        self.count = len(columns)
        self._size_bytes = sizes if isinstance(sizes, int) else 0
        self._ends: list[int] = [] if isinstance(sizes, int) else list(accumulate(sizes))
        """How many bytes all records up to this one take, itself included."""
        assert self.count > 0, "a run holds at least one record"
        assert not self._ends or len(self._ends) == self.count, "each record has one size"

    def bytes_between(self, start: int, end: int) -> int:
        """What the records from `start` up to `end` take."""
        if self._size_bytes:
            return (end - start) * self._size_bytes
        return self._ends[end - 1] - self._before(start) if end > start else 0

    def fitting(self, start: int, room_bytes: int) -> int:
        """The end of those from `start` on that fit into the room, `start` if none does."""
        if self._size_bytes:
            return min(self.count, start + max(0, room_bytes) // self._size_bytes)
        return bisect_right(self._ends, self._before(start) + room_bytes, start)

    def slab_bytes(self, start: int) -> int:
        """How much memory those from `start` on ask for at a time."""
        return min(SLAB_BYTES_MAX, self.bytes_between(start, self.count))

    def copy_into(self, columns: Columns, start: int, end: int) -> None:
        """Put the records from `start` up to `end` behind those of an open batch."""
        ours = self.columns
        if ours.headers:
            shift = len(columns) - start
            for place in range(start, end):
                headers = ours.headers.get(place)
                if headers:
                    columns.headers[place + shift] = headers
        even = ours.even
        if even is not None:
            before = columns.even
            if not len(columns):
                columns.even = even._replace(records=end - start)
            elif before is not None and before == even._replace(records=len(columns)):
                columns.even = even._replace(records=len(columns) + end - start)
        columns.timestamps += ours.timestamps[start:end]
        columns.keys += ours.keys[start:end]
        columns.values += ours.values[start:end]

    def _before(self, start: int) -> int:
        return self._ends[start - 1] if start else 0
