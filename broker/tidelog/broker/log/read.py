"""Reads whole batches from a log: what a fetch answers and what a search by time walks.

Thin I/O around the plans of `PartitionLog`. It must never return a byte at or above the high
watermark, nor a part of a batch.
"""

from collections.abc import Awaitable, Callable

import msgspec

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state import PartitionLog, ReadPlan
from tidelog.wire.batch import HEADER_BYTES, peek_size
from tidelog.wire.batch.layout import HEADER_STRUCT
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
    end, next_offset = _whole_end(data[: start + max_bytes], start)
    if end > start:
        return Batches(data[start:end], next_offset)
    one = await _read_one(plan, read, data, start)
    return Batches(one, _next_offset(one, 0))


def _skip_before(data: bytes, offset: int) -> int:
    """Where the batch that holds the offset begins: its header lies in the data."""
    position = 0
    while _next_offset(data, position) <= offset:
        size_bytes = peek_size(data, position)
        assert size_bytes is not None, "a header holds its batch's length"
        position += size_bytes
    return position


def _whole_end(data: bytes, start: int) -> tuple[int, Offset]:
    """Where the last whole batch ends, and the offset behind it."""
    position, next_offset = start, Offset(0)
    while (size_bytes := peek_size(data, position)) is not None:
        if position + size_bytes > len(data):
            break
        next_offset = _next_offset(data, position)
        position += size_bytes
    return position, next_offset


def _next_offset(data: bytes, position: int) -> Offset:
    """The offset behind the batch; its body need not be there."""
    assert position + HEADER_BYTES <= len(data), f"no header at byte {position} of the read"
    fields = HEADER_STRUCT.unpack_from(data, position)
    return Offset(fields[0] + fields[6] + 1)


async def _read_one(plan: ReadPlan, read: ReadSegment, data: bytes, start: int) -> bytes:
    """One batch that is larger than what was asked for."""
    size_bytes = peek_size(data, start)
    assert size_bytes is not None, "the batch's header was read"
    assert start + size_bytes <= plan.readable_bytes, "no batch reaches over the high watermark"
    if start + size_bytes <= len(data):
        return data[start : start + size_bytes]
    return await read(plan.segment, plan.byte_position + start, size_bytes)
