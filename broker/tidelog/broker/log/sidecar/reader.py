"""Looks into the sidecars of sealed segments: a bounded part of them is kept in memory.

Owns three caches, each with a named limit: the top level of indexes, index blocks and digests, and
the places where sequential reads go on. A lookup that finds nothing of its segment in memory costs
two small reads, one that finds the top level costs one. It must never keep an answer beyond the
bytes that it was true of: a segment whose tail was cut is sealed again under the same name, so the
caches go by the checksum of the segment's digests as well. Stop 10 of a record's walk.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from tidelog.broker.log.index import Place
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.blocks import block_range, corrupt_sidecar
from tidelog.broker.log.sidecar.codec import TRANSACTIONS, check_section, has_transactions
from tidelog.broker.log.sidecar.contents import Section, Summary
from tidelog.broker.log.sidecar.digests import DIGESTS, DIGESTS_PER_BLOCK, decode_digest_block
from tidelog.broker.log.sidecar.index import (
    ENTRY_BYTES,
    INDEX,
    INDEX_TOP,
    IndexEntries,
    decode_index_block,
    decode_index_top,
)
from tidelog.broker.log.transactions.of_segment import SegmentTransactions
from tidelog.wire.ids import BytePosition, Offset

INDEX_TOPS_BYTES_MAX: Final = 8 * 1024 * 1024
"""Top levels in memory, per data directory: those of 200 segments of 1 GiB of small batches."""
BLOCKS_MAX: Final = 512
"""Index and digest blocks in memory, 4 KiB each, per data directory."""
TRANSACTIONS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of what segments tell of transactions, in memory, per data directory: 170,000 aborted ones."""
RESUME_PLACES_MAX: Final = 16_384
"""Sequential readers that need no lookup, per data directory."""

ReadSidecar = Callable[[SegmentKey, int, int], Awaitable[bytes]]
"""Segment, byte position in its sidecar, length → bytes."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Identity = tuple[SegmentKey, int]


class IndexEntry(msgspec.Struct, frozen=True):
    """Where a batch begins, and the highest timestamp of all batches before it."""

    place: Place
    max_timestamp_before: int


class _Bisect(Protocol):
    def __call__(self, column: "array[int]", value: int, /) -> int: ...


class Recent(Generic[_Key, _Value]):
    """The most recently used values, up to a sum of weights."""

    def __init__(self, weight_max: int) -> None:
        assert weight_max > 0, "a cache without room serves nobody"
        self._values: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._weight_max = weight_max
        self.weight = 0

    def get(self, key: _Key) -> _Value | None:
        """The value, now the most recent; None: it is not there."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: _Key, value: _Value, weight: int = 1) -> None:
        """Keep it; the least recent ones go. The last one put stays, whatever its weight."""
        _, old = self._values.pop(key, (None, 0))
        self._values[key] = (value, weight)
        self.weight += weight - old
        while self.weight > self._weight_max and len(self._values) > 1:
            _, (_, gone) = self._values.popitem(last=False)
            self.weight -= gone

    def __len__(self) -> int:
        return len(self._values)


class SidecarReader:
    """One a data directory. A damaged sidecar raises STORAGE_CORRUPT: it is never believed."""

    def __init__(
        self,
        read: ReadSidecar,
        *,
        index_tops_bytes_max: int = INDEX_TOPS_BYTES_MAX,
        blocks_max: int = BLOCKS_MAX,
        resume_places_max: int = RESUME_PLACES_MAX,
    ) -> None:
        self._read = read
        self._tops: Recent[_Identity, IndexEntries] = Recent(index_tops_bytes_max)
        self._blocks: Recent[tuple[_Identity, int], IndexEntries] = Recent(blocks_max)
        self._digests: Recent[tuple[_Identity, int], array[int]] = Recent(blocks_max)
        self._places: Recent[tuple[_Identity, int], int] = Recent(resume_places_max)
        self._transactions: Recent[_Identity, SegmentTransactions] = Recent(TRANSACTIONS_BYTES_MAX)

    async def floor(self, summary: Summary, offset: int) -> IndexEntry:
        """The last indexed batch that begins at or below the offset, else the first one."""
        return await self._find(summary, _offsets, bisect_right, offset)

    async def floor_of_position(self, summary: Summary, byte_position: int) -> IndexEntry:
        """The last indexed batch that begins at or below the byte position."""
        return await self._find(summary, _byte_positions, bisect_right, byte_position)

    async def floor_of_time(self, summary: Summary, timestamp_ms: int) -> IndexEntry:
        """From here on lies the first record at or after the time, if the segment has one."""
        return await self._find(summary, _timestamps, bisect_left, timestamp_ms)

    async def digests(self, summary: Summary, first: int, count: int) -> list[int]:
        """The digests of `count` pieces of the segment, from piece number `first` on."""
        found: list[int] = []
        while len(found) < count:
            number, start = divmod(first + len(found), DIGESTS_PER_BLOCK)
            block = await self._digest_block(summary, number)
            taken = block[start : start + count - len(found)]
            if not taken:
                position = section_of(summary, DIGESTS).byte_position
                raise corrupt_sidecar(summary.key, position, "a digest is missing")
            found.extend(taken)
        return found

    async def transactions(self, summary: Summary) -> SegmentTransactions | None:
        """What the segment tells of transactions; None: it has to do with none."""
        if not has_transactions(summary):
            return None
        section = section_of(summary, TRANSACTIONS)
        # The segment's bytes do not tell what was open before it, so its digests are no name of it.
        identity = (summary.key, section.checksum)
        told = self._transactions.get(identity)
        if told is None:
            data = await self._read(summary.key, section.byte_position, section.length_bytes)
            where = f"the transactions in {summary.key.sidecar_path}"
            told = SegmentTransactions.decode(
                check_section(summary.key, section, data), where=where
            )
            self._transactions.put(identity, told, section.length_bytes)
        return told

    def resume(self, summary: Summary, offset: int) -> Place | None:
        """Where the read goes on that ended before this offset, if it is remembered."""
        position = self._places.get((_identity(summary), offset))
        return None if position is None else Place(Offset(offset), BytePosition(position))

    def remember(self, summary: Summary, offset: int, byte_position: int) -> None:
        """A read ended here: the next one may begin here."""
        if byte_position < summary.size_bytes:
            self._places.put((_identity(summary), offset), byte_position)

    async def _find(
        self,
        summary: Summary,
        column: Callable[[IndexEntries], "array[int]"],
        bisect: _Bisect,
        value: int,
    ) -> IndexEntry:
        top = await self._top(summary)
        number = max(0, bisect(column(top), value) - 1)
        block = await self._block(summary, number, top)
        found = max(0, bisect(column(block), value) - 1)
        return IndexEntry(
            Place(Offset(block.offsets[found]), BytePosition(block.byte_positions[found])),
            block.max_timestamps_before[found],
        )

    async def _top(self, summary: Summary) -> IndexEntries:
        identity = _identity(summary)
        top = self._tops.get(identity)
        if top is None:
            section = section_of(summary, INDEX_TOP)
            data = await self._read(summary.key, section.byte_position, section.length_bytes)
            top = decode_index_top(summary.key, section_of(summary, INDEX), section, data)
            if not len(top):
                raise corrupt_sidecar(summary.key, section.byte_position, "it has no entry")
            self._tops.put(identity, top, len(top) * ENTRY_BYTES)
        return top

    async def _block(self, summary: Summary, number: int, top: IndexEntries) -> IndexEntries:
        identity = _identity(summary)
        block = self._blocks.get((identity, number))
        if block is None:
            section = section_of(summary, INDEX)
            data = await self._read(summary.key, *block_range(section, number))
            block = decode_index_block(summary.key, section, number, data)
            if block.offsets[0] != top.offsets[number]:
                position = block_range(section, number)[0]
                raise corrupt_sidecar(summary.key, position, "a block contradicts the top level")
            self._blocks.put((identity, number), block)
        return block

    async def _digest_block(self, summary: Summary, number: int) -> "array[int]":
        identity = _identity(summary)
        block = self._digests.get((identity, number))
        if block is None:
            section = section_of(summary, DIGESTS)
            data = await self._read(summary.key, *block_range(section, number))
            block = decode_digest_block(summary.key, section, number, data)
            self._digests.put((identity, number), block)
        return block


def section_of(summary: Summary, name: str) -> Section:
    """The section of that name; STORAGE_CORRUPT if the sidecar has none."""
    for section in summary.sections:
        if section.name == name:
            return section
    raise corrupt_sidecar(summary.key, 0, f"it has no section {name}")


def _identity(summary: Summary) -> _Identity:
    """The segment and its very bytes."""
    return summary.key, section_of(summary, DIGESTS).checksum


def _offsets(entries: IndexEntries) -> "array[int]":
    return entries.offsets


def _byte_positions(entries: IndexEntries) -> "array[int]":
    return entries.byte_positions


def _timestamps(entries: IndexEntries) -> "array[int]":
    return entries.max_timestamps_before
