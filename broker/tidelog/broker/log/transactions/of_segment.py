"""What one segment tells of transactions: which were aborted in it, which are open behind it. Pure.

Owns the bytes of the section `transactions` of a sidecar. A segment without a transactional batch,
behind which none is open either, has none of this. It must never lose an entry whose marker the
segment holds: readers would take what was aborted for committed.

    i64 first offset of the earliest transaction that is open at the segment's end; -1: none is
    the entries of aborted transactions (`aborted`)
"""

import struct
from collections.abc import Set
from typing import Final

from tidelog.broker.log.transactions.aborted import AbortedIndex, AbortedTransaction
from tidelog.wire.errors import ErrorCode, TidelogError

NONE_OPEN: Final = -1

_HEAD: Final = struct.Struct(">q")


class SegmentTransactions:
    """Of a segment in memory until its sidecar is there, and of a sidecar that was read."""

    __slots__ = ("aborted", "first_open_offset")

    def __init__(
        self, aborted: AbortedIndex | None = None, first_open_offset: int = NONE_OPEN
    ) -> None:
        self.aborted = AbortedIndex() if aborted is None else aborted
        """The transactions whose abort markers it holds."""
        self.first_open_offset = first_open_offset
        """Where the earliest transaction begins that is open at its end, perhaps in a segment
        before. Known of a sealed segment only."""

    def note(self, aborted: AbortedTransaction | None) -> None:
        """Takes note of a transactional batch, and of the transaction that it has aborted."""
        if aborted is not None:
            self.aborted.add(aborted)

    def seal(self, first_open_offset: int) -> None:
        """The segment grows no more; this is open behind it."""
        self.first_open_offset = first_open_offset

    def forget(self, marker_offsets: Set[int]) -> None:
        """These markers are there no more, and no batch that they ended."""
        self.aborted = self.aborted.without(marker_offsets)

    def encode(self) -> bytes:
        """The section's bytes."""
        return _HEAD.pack(self.first_open_offset) + self.aborted.encode()

    @classmethod
    def decode(cls, data: bytes, *, where: str) -> "SegmentTransactions":
        """What `encode` has written; STORAGE_CORRUPT for anything else."""
        if len(data) < _HEAD.size:
            raise TidelogError(
                ErrorCode.STORAGE_CORRUPT,
                tried=f"read {where}",
                happened=f"it has {len(data)} bytes, its head alone {_HEAD.size}",
            )
        (first_open_offset,) = _HEAD.unpack_from(data)
        if first_open_offset < NONE_OPEN:
            raise TidelogError(
                ErrorCode.STORAGE_CORRUPT,
                tried=f"read {where}",
                happened=f"no transaction begins at offset {first_open_offset}",
            )
        return cls(AbortedIndex.decode(data[_HEAD.size :], where=where), first_open_offset)


def joined(
    first: SegmentTransactions | None, second: SegmentTransactions | None
) -> SegmentTransactions | None:
    """What one segment tells in the place of both, of which the second lies behind the first."""
    if first is None or second is None:
        # A segment that has to do with none lies in none either.
        return second if first is None else SegmentTransactions(first.aborted)
    both = AbortedIndex(first.aborted.encode() + second.aborted.encode())
    return SegmentTransactions(both, second.first_open_offset)
