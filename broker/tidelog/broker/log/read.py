"""Reads whole batches from a log: what a fetch answers and what a search by time walks.

Thin I/O around the plans of `PartitionLog`. It must never return a byte at or above the high
watermark, nor a part of a batch.
"""

from collections.abc import Awaitable, Callable

import msgspec

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state import PartitionLog, ReadPlan
from tidelog.wire.batch import HEADER_BYTES, peek_size, read_header
from tidelog.wire.ids import Offset

ReadSegment = Callable[[SegmentKey, int, int], Awaitable[bytes]]
"""Segment, byte position, length → bytes."""


class Batches(msgspec.Struct, frozen=True):
    """Whole batches, one behind the other."""

    data: bytes
    next_offset: Offset
    """Where to go on."""

    @property
    def base_offset(self) -> int:
        """Of the first batch."""
        assert self.data, "there is a first batch"
        return int.from_bytes(self.data[:8], "big")


async def read_batches(
    log: PartitionLog, read: ReadSegment, offset: int, max_bytes: int
) -> Batches:
    """Whole batches from the one that holds `offset` on; empty at the high watermark.

    At most `max_bytes`, but at least one batch whatever its size.
    """
    plan = log.plan_read(offset, max_bytes)
    if plan is None:
        return Batches(b"", Offset(offset))
    data = await read(plan.segment, plan.byte_position, plan.length_bytes)
    start = _skip_before(data, offset)
    if plan.end_offset is not None:
        assert start < len(data), f"{log.key}: offset {offset} lies behind its own read"
        return Batches(data[start:] if start else data, plan.end_offset)
    end, next_offset = _whole_end(data, start)
    if end > start:
        return Batches(data[start:end], next_offset)
    one = await _read_one(plan, read, data, start)
    return Batches(one, read_header(one).next_offset)


def _skip_before(data: bytes, offset: int) -> int:
    """Where the batch that holds the offset begins."""
    position = 0
    while (size_bytes := peek_size(data, position)) is not None:
        if position + size_bytes > len(data) or _next_offset(data, position) > offset:
            break
        position += size_bytes
    return position


def _whole_end(data: bytes, start: int) -> tuple[int, Offset]:
    """Where the last whole batch ends, and the offset behind it."""
    position, next_offset = start, 0
    while (size_bytes := peek_size(data, position)) is not None:
        if position + size_bytes > len(data):
            break
        next_offset = _next_offset(data, position)
        position += size_bytes
    return position, Offset(next_offset)


def _next_offset(data: bytes, position: int) -> int:
    return read_header(data, position, is_compacted=True).next_offset


async def _read_one(plan: ReadPlan, read: ReadSegment, data: bytes, start: int) -> bytes:
    """One batch that is larger than what was read."""
    size_bytes = peek_size(data, start)
    position = plan.byte_position + start
    if size_bytes is None:
        size_bytes = peek_size(await read(plan.segment, position, HEADER_BYTES))
        assert size_bytes is not None, "a batch below the high watermark has a prefix"
    assert start + size_bytes <= plan.readable_bytes, "no batch reaches over the high watermark"
    return await read(plan.segment, position, size_bytes)
