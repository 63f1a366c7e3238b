"""What to read of one segment for a fetch. Pure.

Owns the choice of the segment and of the bytes. A plan is made from a log at one moment, and the
log may change while its bytes are read: a segment is replaced by a compaction, removed by
retention, or cut. Whoever reads a plan asks afterwards whether it was overtaken.
"""

from bisect import bisect_right
from typing import Final

import msgspec

from tidelog.broker.log.index import INTERVAL_BYTES, Place
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.batch import HEADER_BYTES
from tidelog.wire.ids import BytePosition, Offset

LOOKUP_BYTES: Final = INTERVAL_BYTES + HEADER_BYTES
"""From an indexed batch on, the header of every batch before the next indexed one lies herein."""


class ReadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a segment that begin with a batch."""

    segment: SegmentKey
    base_offset: Offset
    """Of the batch that begins at `byte_position`; with gaps it may begin behind it."""
    byte_position: BytePosition
    length_bytes: int
    readable_bytes: int
    """What lies between `byte_position` and the segment's end."""
    end_offset: Offset
    """Where the segment ends: no batch in it reaches beyond."""
    has_gaps: bool = False
    """Offsets ascend, but not each batch begins where the one before it ends."""

    def behind(self, skipped_bytes: int, base_offset: int, length_bytes: int) -> "ReadPlan":
        """The same segment from a later batch on."""
        readable = self.readable_bytes - skipped_bytes
        assert 0 < readable <= self.readable_bytes, f"{skipped_bytes} bytes are not in the plan"
        return msgspec.structs.replace(
            self,
            byte_position=self.byte_position + skipped_bytes,
            base_offset=base_offset,
            length_bytes=min(length_bytes, readable),
            readable_bytes=readable,
        )


def segment_holding(log: PartitionLog, offset: int) -> Segment | None:
    """The segment that the offset's batch lies in, or the gap before a batch; None: there is none.

    Empty segments hold nothing: a full disk may leave some behind.
    """
    segments = log.segments
    found = max(0, bisect_right(segments, offset, key=_base_offset_of) - 1)
    for segment in segments[found:]:
        if segment.next_offset > offset and segment.size_bytes:
            return segment
    return None


def plan_of(segment: Segment, first: Place, max_bytes: int, *, has_gaps: bool) -> ReadPlan:
    """A read from the place on, long enough to meet the header that is sought.

    Where the index is in memory it ends with a whole batch, so that nothing is read in vain.
    """
    start = first.byte_position
    readable = segment.size_bytes - start
    assert readable > 0, f"{segment.key.path}: byte {start} is not below its end"
    length = max(max_bytes, LOOKUP_BYTES)
    if segment.index is not None and max_bytes < readable:
        end = segment.index.floor_of_position(start + max_bytes).byte_position
        length = end - start if end > start else length
    return ReadPlan(
        segment=segment.key,
        base_offset=first.base_offset,
        byte_position=start,
        length_bytes=min(readable, length),
        readable_bytes=readable,
        end_offset=segment.next_offset,
        has_gaps=has_gaps,
    )


def is_current(log: PartitionLog, segment: Segment) -> bool:
    """Whether the log still consists of this very segment: else a plan of it was overtaken."""
    return any(each is segment for each in log.segments)


def _base_offset_of(segment: Segment) -> int:
    return segment.base_offset
