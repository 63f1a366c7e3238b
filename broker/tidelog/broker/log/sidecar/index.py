"""The index sections of a sidecar: offset and time → byte position in the segment. Pure.

    index      blocks of entries: i64 base offset, i64 byte position, i64 highest timestamp before
    index_top  the first entry of each block, all in one piece

A lookup needs index_top, which is small, and one block of 4 KiB. The entries are those of
`tidelog.broker.log.index`, by the same rule. It must never hand out entries that do not ascend.
"""

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Final

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.blocks import (
    PAYLOAD_BYTES_MAX,
    block_count,
    block_seed,
    corrupt_sidecar,
    frame_blocks,
    open_block,
)
from tidelog.broker.log.sidecar.contents import Section
from tidelog.wire.batch import checksum

INDEX: Final = "index"
INDEX_TOP: Final = "index_top"
ENTRY_BYTES: Final = 24
ENTRIES_PER_BLOCK: Final = PAYLOAD_BYTES_MAX // ENTRY_BYTES

Entry = tuple[int, int, int]
"""Base offset, byte position, highest timestamp before (-1: there is none)."""


class IndexEntries:
    """Entries in three columns, ascending: made for bisecting."""

    __slots__ = ("byte_positions", "max_timestamps_before", "offsets")

    def __init__(self, numbers: "array[int]") -> None:
        assert len(numbers) % 3 == 0, "three numbers make an entry"
        self.offsets = numbers[0::3]
        self.byte_positions = numbers[1::3]
        self.max_timestamps_before = numbers[2::3]

    def entries(self) -> list[Entry]:
        """As `SparseIndex.entries`."""
        columns = (self.offsets, self.byte_positions, self.max_timestamps_before)
        return list(zip(*columns, strict=True))

    def __len__(self) -> int:
        return len(self.offsets)


def encode_index(key: SegmentKey, entries: Sequence[Entry]) -> tuple[bytes, bytes]:
    """The bytes of the sections index and index_top."""
    blocks = frame_blocks(block_seed(key, INDEX), _packed(entries))
    return blocks, _packed(entries[::ENTRIES_PER_BLOCK])


def decode_index_block(key: SegmentKey, section: Section, number: int, data: bytes) -> IndexEntries:
    """The entries of one block, whose bytes are at `block_range(section, number)`."""
    payload = open_block(key, section, number, data, entry_bytes=ENTRY_BYTES)
    entries = _unpacked(payload)
    if not _ascends(entries):
        raise corrupt_sidecar(key, section.byte_position, f"block {number} does not ascend")
    return entries


def decode_index_top(
    key: SegmentKey, index: Section, section: Section, data: bytes
) -> IndexEntries:
    """The first entry of each block; `data` are the bytes of the whole section index_top."""
    position = section.byte_position
    if len(data) != section.length_bytes or checksum(data) != section.checksum:
        raise corrupt_sidecar(key, position, "its index_top contradicts its checksum")
    if len(data) != block_count(index) * ENTRY_BYTES:
        raise corrupt_sidecar(key, position, "its index_top has not an entry for each block")
    entries = _unpacked(data)
    if not _ascends(entries):
        raise corrupt_sidecar(key, position, "its index_top does not ascend")
    return entries


def _packed(entries: Iterable[Entry]) -> bytes:
    numbers = array("q", chain.from_iterable(entries))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _unpacked(data: bytes) -> IndexEntries:
    numbers = array("q", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return IndexEntries(numbers)


def _ascends(entries: IndexEntries) -> bool:
    offsets, positions = entries.offsets, entries.byte_positions
    times = entries.max_timestamps_before
    return (
        all(before < after for before, after in pairwise(offsets))
        and all(before < after for before, after in pairwise(positions))
        and all(before <= after for before, after in pairwise(times))
        and (not offsets or (offsets[0] >= 0 and positions[0] >= 0 and times[0] >= -1))
    )
