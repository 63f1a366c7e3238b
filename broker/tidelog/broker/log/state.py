"""One partition's log as its owner knows it: segments and the four offsets. Pure.

Owns the arithmetic of positions. Changed by the directory's core only; read by fetches. It must
never plan a read beyond the high watermark. Stops 6, 8 and 10 of a record's walk.
"""

from bisect import bisect_right
from typing import Final

import msgspec

from tidelog.broker.log.index import INTERVAL_BYTES, Place
from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.names import PartitionKey, SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.segments import Segment
from tidelog.wire.batch import HEADER_BYTES, BatchHeader
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset

LOOKUP_BYTES: Final = INTERVAL_BYTES + HEADER_BYTES


NO_GAPS: Final = Offset(-1)


class ReadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to read: they begin and end with whole batches."""

    segment: SegmentKey
    base_offset: Offset
    """Of the batch that begins at `byte_position`."""
    byte_position: int
    length_bytes: int
    """Within the limit that was asked for if it can be; at least up to the next indexed batch."""
    readable_bytes: int
    """What lies between `byte_position` and the high watermark in this segment."""
    end_offset: Offset | None
    """The offset behind the bytes; None if they end inside a batch."""


class PartitionLog:
    """log_start_offset ≤ high_watermark ≤ flushed_offset ≤ log_end_offset (with one replica)."""

    __slots__ = (
        "failure",
        "flushed_offset",
        "gaps_from",
        "high_watermark",
        "high_watermark_position",
        "key",
        "leader_epoch",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "segments",
    )

    def __init__(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.segments: list[Segment] = []
        """Ascending, each begins where the one before it ends. Only the last may be unsealed."""
        self.log_start_offset = Offset(0)
        self.log_end_offset = Offset(0)
        self.flushed_offset = Offset(0)
        self.high_watermark = Offset(0)
        self.high_watermark_position: tuple[int, int] = (0, 0)
        """Base offset of the segment that holds the watermark, and the byte behind it there."""
        self.leader_epochs = LeaderEpochs()
        self.producers = ProducerState()
        self.gaps_from = NO_GAPS
        """From this offset on offsets may ascend with gaps; -1: they are contiguous but for
        segments that were compacted here."""
        self.failure: TidelogError | None = None
        """Set once the partition has stopped: nothing is appended or served any more."""

    def lead(self, leader_epoch: LeaderEpoch) -> None:
        """What is appended from now on carries this epoch."""
        assert leader_epoch >= self.leader_epoch, (
            f"{self.key}: leader epoch {leader_epoch} comes after {self.leader_epoch}"
        )
        self.leader_epoch = leader_epoch

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def begin_segment(self, key: SegmentKey) -> Segment:
        """Seal the active segment, if there is one, and go on in a new, empty one."""
        assert key.base_offset == self.log_end_offset, (
            f"{self.key}: a segment begins at its log's end"
        )
        if self.segments and not self.segments[-1].is_sealed:
            self.seal_active()
        self.segments.append(Segment(key))
        return self.segments[-1]

    def seal_active(self) -> None:
        """The active segment grows no more. Producers are forgotten at a roll only, so that their
        state behind a segment is a function of the segments up to it."""
        self.producers.expire()
        self.segments[-1].seal(self.producers.encode())

    def take_in(self, header: BatchHeader) -> None:
        """A batch with this header, as it is stored, lies at the end of the active segment."""
        next_offset = header.next_offset
        self.segments[-1].add(
            header.base_offset, next_offset, header.size_bytes, header.max_timestamp
        )
        self.leader_epochs.note(header.leader_epoch, header.base_offset)
        self.producers.note(header)
        self.log_end_offset = next_offset

    def end_position(self) -> tuple[int, int]:
        """Base offset of the active segment, and its length."""
        if not self.segments:
            return (0, 0)
        return (self.segments[-1].base_offset, self.segments[-1].size_bytes)

    def advance(self, flushed_offset: Offset, position: tuple[int, int]) -> None:
        """With one replica what is flushed is committed."""
        assert self.flushed_offset <= flushed_offset <= self.log_end_offset, (
            f"{self.key}: flushed up to {flushed_offset}, was {self.flushed_offset}, "
            f"ends at {self.log_end_offset}"
        )
        self.flushed_offset = flushed_offset
        self.high_watermark = flushed_offset
        self.high_watermark_position = position

    def segment_of(self, offset: int) -> Segment:
        """The segment that holds the offset, or would."""
        assert self.segments, "an empty log holds no offset"
        bases = [segment.base_offset for segment in self.segments]
        return self.segments[max(0, bisect_right(bases, offset) - 1)]

    def readable_bytes_of(self, segment: Segment) -> int:
        """How much of the segment lies below the high watermark."""
        base_offset, position = self.high_watermark_position
        if segment.base_offset < base_offset:
            return segment.size_bytes
        return position if segment.base_offset == base_offset else 0

    def plan_read(self, offset: int, max_bytes: int) -> ReadPlan | None:
        """Where to read from; None at the high watermark."""
        assert self.log_start_offset <= offset <= self.high_watermark, (
            f"{self.key}: offset {offset} was checked against the log"
        )
        if offset >= self.high_watermark:
            return None
        segment = self.segment_of(offset)
        assert segment.index is not None, f"{segment.key.path}: its sidecar is to be asked"
        return self._plan_from(segment, segment.index.floor(offset), max_bytes)

    def _plan_from(self, segment: Segment, first: Place, max_bytes: int) -> ReadPlan:
        """A read from a batch's start up to an indexed start or the watermark, if it can be."""
        assert segment.index is not None, f"{segment.key.path}: its sidecar is to be asked"
        start = first.byte_position
        readable = self.readable_bytes_of(segment)
        assert start < readable, f"{self.key}: byte {start} is not below the high watermark"
        end, end_offset = readable, self._end_offset_of(segment)
        if start + max_bytes < readable:
            place = segment.index.floor_of_position(start + max_bytes)
            end, end_offset = place.byte_position, Offset(place.base_offset)
        is_whole = end > start
        return ReadPlan(
            segment=segment.key,
            base_offset=Offset(first.base_offset),
            byte_position=start,
            # A batch without an entry begins within the interval behind one: its header is read.
            length_bytes=min(
                readable - start, end - start if is_whole else max(max_bytes, LOOKUP_BYTES)
            ),
            readable_bytes=readable - start,
            end_offset=end_offset if is_whole else None,
        )

    def available_bytes(self, offset: int, enough_bytes: int) -> int:
        """About how much can be read from the offset on; stops counting at enough."""
        if offset >= self.high_watermark:
            return 0
        first = self.segment_of(offset)
        total = self._bytes_from(first, offset)
        for segment in reversed(self.segments):
            if total >= enough_bytes or segment is first:
                break
            total += self.readable_bytes_of(segment)
        return total

    def _bytes_from(self, segment: Segment, offset: int) -> int:
        """How much of the segment lies at or behind the offset; estimated if it is sealed."""
        if segment.index is not None and segment.size_bytes:
            return self.readable_bytes_of(segment) - segment.index.floor(offset).byte_position
        offsets = segment.next_offset - segment.base_offset
        return segment.size_bytes * (segment.next_offset - offset) // offsets if offsets else 0

    def _end_offset_of(self, segment: Segment) -> Offset:
        """The offset behind the readable part of the segment."""
        base_offset, _ = self.high_watermark_position
        if segment.base_offset == base_offset:
            return self.high_watermark
        place = self.segments.index(segment)
        return Offset(self.segments[place + 1].base_offset)
