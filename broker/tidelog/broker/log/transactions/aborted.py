"""The aborted transactions whose markers lie in one segment: entries and their bytes. Pure.

Owns the form of a sidecar's section of aborted transactions. Bytes are fixed in size and in the
order of the markers, so that a reader finds by bisection what ends at or behind the offsets that it
reads, without making an object of each entry. What begins behind them too is passed over by the
lowest first offset of each `BLOCK_ENTRIES`: a reader of a log's start does not pay for each of a
million transactions that were aborted later.

    i64 producer id | i64 first offset | i64 the marker's offset                 = 24 bytes an entry
"""

import struct
from array import array
from collections.abc import Iterable, Iterator, Set
from itertools import pairwise
from typing import Final

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

_ENTRY: Final = struct.Struct(">qqq")
ENTRY_BYTES: Final = _ENTRY.size
BLOCK_ENTRIES: Final = 256


class AbortedTransaction(msgspec.Struct, frozen=True):
    """One transaction that readers of committed records skip."""

    producer_id: int
    first_offset: Offset
    """Of its first batch here. What the producer wrote before it was of another one."""
    marker_offset: int
    """Where it ended. What the producer wrote behind it is of another one."""


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """In the order of their markers, as the segment holds them."""
    entries = tuple(entries)
    assert all(before.marker_offset < after.marker_offset for before, after in pairwise(entries)), (
        "entries ascend with their markers"
    )
    return b"".join(
        _ENTRY.pack(each.producer_id, each.first_offset, each.marker_offset) for each in entries
    )


class AbortedIndex:
    """The entries of one segment, as bytes: of the section, or of a segment that still grows."""

    __slots__ = ("_data", "_lowest")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self._data = bytearray(data)
        self._lowest = array("q")
        """No entry of a block has a lower first offset: the lowest one, until the end is cut."""
        for place in range(0, len(self), BLOCK_ENTRIES):
            self._lowest.append(self._lowest_from(place))

    @classmethod
    def decode(cls, data: bytes, *, where: str) -> "AbortedIndex":
        """What `encode_aborted` has written; STORAGE_CORRUPT for anything else."""
        if len(data) % ENTRY_BYTES:
            raise _corrupt(where, f"it has {len(data)} bytes, an entry takes {ENTRY_BYTES}")
        newest = -1
        for producer_id, first_offset, marker_offset in _ENTRY.iter_unpack(data):
            if producer_id < 0 or not 0 <= first_offset < marker_offset or marker_offset <= newest:
                raise _corrupt(
                    where,
                    f"producer {producer_id} from {first_offset} to {marker_offset}, "
                    f"behind {newest}, cannot be",
                )
            newest = marker_offset
        return cls(data)

    def add(self, entry: AbortedTransaction) -> None:
        """A transaction that has just been aborted: its marker lies behind all others."""
        assert not self._data or self._marker_at(len(self) - 1) < entry.marker_offset, (
            f"the marker at {entry.marker_offset} is not the last one"
        )
        if len(self) % BLOCK_ENTRIES:
            self._lowest[-1] = min(self._lowest[-1], entry.first_offset)
        else:
            self._lowest.append(entry.first_offset)
        self._data += encode_aborted((entry,))

    def overlapping(self, begin_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those with a batch or their marker between the offsets, the second one exclusive."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._marker_at(middle) < begin_offset:
                low = middle + 1
            else:
                high = middle
        found: list[AbortedTransaction] = []
        for block in range(low // BLOCK_ENTRIES, len(self._lowest)):
            if self._lowest[block] < end_offset:
                first = max(low, block * BLOCK_ENTRIES)
                entries = self._unpacked(first, (block + 1) * BLOCK_ENTRIES)
                found += [AbortedTransaction(*entry) for entry in entries if entry[1] < end_offset]
        return found

    def entries(self) -> list[AbortedTransaction]:
        """All of them, in the order of their markers."""
        return [AbortedTransaction(*entry) for entry in _ENTRY.iter_unpack(self._data)]

    def without(self, marker_offsets: Set[int]) -> "AbortedIndex":
        """Another one, without those whose markers are gone."""
        return AbortedIndex(
            encode_aborted(
                each for each in self.entries() if each.marker_offset not in marker_offsets
            )
        )

    def cut(self, end_offset: int) -> None:
        """The segment ends at the offset now: markers at or above it are gone."""
        count = len(self)
        while count and self._marker_at(count - 1) >= end_offset:
            count -= 1
        del self._data[count * ENTRY_BYTES :]
        del self._lowest[-(-count // BLOCK_ENTRIES) :]

    def encode(self) -> bytes:
        """As `encode_aborted` writes the same entries."""
        return bytes(self._data)

    def _unpacked(self, first: int, end: int) -> Iterator[tuple[int, Offset, int]]:
        return _ENTRY.iter_unpack(memoryview(self._data)[first * ENTRY_BYTES : end * ENTRY_BYTES])

    def _lowest_from(self, place: int) -> int:
        return min(entry[1] for entry in self._unpacked(place, place + BLOCK_ENTRIES))

    def _marker_at(self, place: int) -> int:
        marker_offset: int = _ENTRY.unpack_from(self._data, place * ENTRY_BYTES)[2]
        return marker_offset

    def __len__(self) -> int:
        return len(self._data) // ENTRY_BYTES


def _corrupt(where: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.STORAGE_CORRUPT, tried=f"read {where}", happened=happened)
