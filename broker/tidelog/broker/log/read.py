"""Reads whole batches from a log: what a fetch answers and what a search by time walks.

Thin I/O around the plans of `PartitionLog`. It must never return a byte at or above the high
watermark, a part of a batch, or a batch that is not where its header says: base offset, length and
leader epoch lie outside the batch's own checksum, so they are held against their neighbours here.
"""

import contextlib
import struct
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.recovery import corruption
from tidelog.broker.log.state import PartitionLog, ReadPlan
from tidelog.wire.batch import HEADER_BYTES
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset

ReadSegment = Callable[[SegmentKey, int, int], Awaitable[bytes]]
"""Segment, byte position, length → bytes."""

_PLACE: Final = struct.Struct(">qii7xi")
"""Of a header: base offset, length, leader epoch, last offset delta."""
_PREFIX_BYTES: Final = 12
"""What a batch's length does not count: the base offset and the length itself."""


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


class _Walk:
    """From batch to batch through read bytes, each held against the one before it."""

    def __init__(self, log: PartitionLog, plan: ReadPlan, data: bytes) -> None:
        self.data = data
        self.position = 0
        """Where the next batch begins in the data."""
        self.next_offset = plan.base_offset
        """The base offset that it must have."""
        self.size_bytes = 0
        """Of the batch that `peek` looked at."""
        self._end_offset = plan.base_offset
        self._leader_epoch = -1
        self._log = log
        self._plan = plan

    def peek(self) -> bool:
        """Look at the next batch; False if the data end before its header does."""
        if self.position + HEADER_BYTES > len(self.data):
            return False
        base_offset, length, epoch, last_delta = _PLACE.unpack_from(self.data, self.position)
        if base_offset != self.next_offset:
            raise self.damage(f"its base offset is {base_offset}, not {self.next_offset}")
        if not self._leader_epoch <= epoch <= self._log.leader_epoch:
            raise self.damage(f"its leader epoch is {epoch}, not {self._log.leader_epoch}")
        self.size_bytes = _PREFIX_BYTES + length
        left = self._plan.readable_bytes - self.position
        if last_delta < 0 or not HEADER_BYTES <= self.size_bytes <= left:
            raise self.damage(f"a batch of {self.size_bytes} bytes cannot lie there")
        self._end_offset = Offset(base_offset + last_delta + 1)
        self._leader_epoch = epoch
        return True

    @property
    def end_offset(self) -> Offset:
        """Behind the batch that `peek` looked at."""
        return self._end_offset

    def step(self) -> None:
        """Go behind the batch that `peek` looked at."""
        self.position += self.size_bytes
        self.next_offset = self._end_offset

    def damage(self, happened: str) -> TidelogError:
        """What is raised where a header contradicts its neighbours."""
        byte_position = self._plan.byte_position + self.position
        return corruption(self._plan.segment.path, byte_position, happened, verb="read")


async def read_batches(
    log: PartitionLog, read: ReadSegment, offset: int, max_bytes: int
) -> Batches:
    """Whole batches from the one that holds `offset` on; empty at the high watermark.

    At most `max_bytes`, but at least one batch whatever its size. Batches before a damaged one are
    returned; the read that begins at it raises STORAGE_CORRUPT.
    """
    plan = log.plan_read(offset, max_bytes)
    if plan is None:
        return Batches(b"", Offset(offset))
    data = await read(plan.segment, plan.byte_position, plan.length_bytes)
    walk = _Walk(log, plan, data)
    _skip_before(walk, offset)
    start = walk.position
    end = len(data) if plan.end_offset is not None else min(len(data), start + max_bytes)
    _take_whole(walk, end)
    if walk.position > start:
        whole = start == 0 and walk.position == len(data)
        return Batches(data if whole else data[start : walk.position], walk.next_offset)
    one = data[start : start + walk.size_bytes]
    if len(one) < walk.size_bytes:
        one = await read(plan.segment, plan.byte_position + start, walk.size_bytes)
    return Batches(one, walk.end_offset)


def _skip_before(walk: _Walk, offset: int) -> None:
    """Stop at the batch that holds the offset; the plan saw to it that its header was read."""
    while walk.peek():
        if walk.end_offset > offset:
            return
        walk.step()
    raise walk.damage(f"the read ends before the batch that holds offset {offset}")


def _take_whole(walk: _Walk, end: int) -> None:
    """Go on behind the last batch that lies before `end`; stop in front of a damaged one."""
    with contextlib.suppress(TidelogError):
        while walk.position + walk.size_bytes <= end:
            walk.step()
            if not walk.peek():
                return
