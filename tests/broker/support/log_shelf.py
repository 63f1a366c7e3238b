"""A log in memory for readers: segments are rolled, sealed, compacted and trimmed by hand."""

import contextlib
from collections.abc import Callable, Iterator

from tidelog.broker.log.compaction.rewrite import empty_batch, rewrite_batch
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.wire.batch import (
    HEADER_BYTES,
    decode_batch,
    encode_batch,
    iterate_headers,
    read_header,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

TOPIC = TopicId(bytes(16))


def batch_at(*times_ms: int, size: int = 1_000) -> bytes:
    """A batch with a record for each time."""
    return encode_batch([(each, None, bytes(size), ()) for each in times_ms])


def _cleaned(batch: bytes, keep: Callable[[int], bool], *, is_last: bool) -> bytes:
    """The batch with the records that are kept; nothing or its header if none is."""
    header = read_header(batch, is_compacted=True)
    records = decode_batch(batch, is_compacted=True)
    kept = [keep(record[0]) for record in records]
    if all(kept) and kept:
        return batch
    if not any(kept):
        return empty_batch(header) if is_last else b""
    times = [record[1] for record, is_kept in zip(records, kept, strict=True) if is_kept]
    made = rewrite_batch(
        header,
        batch[HEADER_BYTES:],
        kept,
        max_timestamp=max(times),
        base_timestamp=header.base_timestamp,
        has_horizon=False,
    )
    assert made is not None, "no batch grows"
    return made


def missing(path: str) -> TidelogError:
    """What a disk says of a file that is not there."""
    return TidelogError(ErrorCode.STORAGE_FAILED, tried=f"open {path}", happened="ENOENT")


class LogShelf:
    """One log and its files; `on_read` is called before each read, with the segment."""

    def __init__(self, partition: int = 0) -> None:
        self.key = PartitionKey(TOPIC, PartitionId(partition))
        self.log = PartitionLog(self.key, LeaderEpoch(0))
        self.files: dict[SegmentKey, bytes] = {}
        self.sidecars: dict[SegmentKey, bytes] = {}
        self.pins: dict[SegmentKey, int] = {}
        self.removed: list[SegmentKey] = []
        self.failures: list[TidelogError] = []
        self.reads: list[tuple[SegmentKey, int, int]] = []
        self.sidecar_reads: list[tuple[SegmentKey, int, int]] = []
        self.on_read: Callable[[SegmentKey], None] = lambda key: None
        self.generation = 0

    def append(self, batch: bytes, *, epoch: int = 0) -> int:
        """Store a batch at the end; its base offset."""
        log = self.log
        if not log.segments or log.segments[-1].is_sealed:
            log.segments.append(Segment(SegmentKey(self.key, log.log_end_offset)))
            self.files[log.segments[-1].key] = b""
        base = log.log_end_offset
        stored = base.to_bytes(8, "big") + batch[8:12] + epoch.to_bytes(4, "big") + batch[16:]
        self.files[log.segments[-1].key] += stored
        header = read_header(stored)
        log.take_in(header, marker_of(stored, header))
        return base

    def commit(self, offset: int | None = None) -> None:
        """Move the high watermark; it is at a batch's start."""
        end = Offset(self.log.log_end_offset if offset is None else offset)
        self.log.flushed_offset = self.log.log_end_offset
        self.log.high_watermark = end
        self.log.high_watermark_position = self._position_of(end)
        self.log.begin_committed()

    def _position_of(self, end: int) -> tuple[int, int]:
        """The segment in which the watermark lies, and the byte behind it there."""
        for segment in self.log.segments:
            if end <= segment.next_offset:
                position = 0
                headers = iterate_headers(self.files[segment.key], is_compacted=True)
                for start, header in headers:
                    if header.next_offset <= end:
                        position = start + header.size_bytes
                return segment.base_offset, position
        return (0, 0)

    def begin_segment(self) -> None:
        """As a log does it: the last segment grows no more, and tells of producers."""
        key = SegmentKey(self.key, self.log.log_end_offset)
        self.log.begin_segment(key)
        self.files[key] = b""

    def roll(self) -> None:
        """The last segment grows no more."""
        if self.log.segments and not self.log.segments[-1].is_sealed:
            self.log.segments[-1].seal(None)

    def seal(self, segment: Segment) -> None:
        """Its sidecar takes the place of the index in memory."""
        segment.take_summary(self.sidecar_of(segment.key, self.files[segment.key]))

    def sidecar_of(
        self, key: SegmentKey, data: bytes, *, next_offset: int = -1, cleaned_below: int = 0
    ) -> Summary:
        """As the job makes it from the bytes."""
        facts = SegmentFacts(
            key=key,
            is_contiguous=not cleaned_below,
            next_offset=Offset(next_offset),
            cleaned_below=cleaned_below,
        )
        before = next((each for each in self.log.segments if each.key == key), None)
        told = None if before is None else before.producers_before
        builder = SidecarBuilder(facts, None if told is None else ProducerState.decode(told))
        builder.feed(data)
        summary, self.sidecars[key] = builder.finish()
        return summary

    def compact(self, first: int, last: int, keep: Callable[[int], bool]) -> None:
        """Put one segment with gaps in the place of these: without the records that are not kept,
        and without batches of which none is, but for the last one."""
        old = self.log.segments[first : last + 1]
        data = b"".join(self.files[each.key] for each in old)
        headers = list(iterate_headers(data, is_compacted=True))
        kept = b""
        for position, header in headers:
            is_last = header.next_offset == old[-1].next_offset
            kept += _cleaned(data[position : position + header.size_bytes], keep, is_last=is_last)
        self.generation += 1
        key = SegmentKey(self.key, old[0].key.base_offset, self.generation)
        self.files[key] = kept
        end = old[-1].next_offset
        made = Segment.from_summary(self.sidecar_of(key, kept, next_offset=end, cleaned_below=end))
        self.log.segments[first : last + 1] = [made]
        for each in old:
            self.remove(each.key)

    def trim(self, offset: int) -> None:
        """The log begins here; whole segments below it go."""
        self.log.log_start_offset = Offset(offset)
        self.log.leader_epochs.trim(offset)
        segments = self.log.segments
        while len(segments) > 1 and segments[0].next_offset <= offset:
            self.remove(segments.pop(0).key)

    def remove(self, key: SegmentKey) -> None:
        """Once nobody reads it."""
        if self.pins.get(key, 0):
            self.removed.append(key)
        else:
            self.files.pop(key, None)
            self.sidecars.pop(key, None)

    def batches(self) -> list[tuple[int, int, bytes]]:
        """Base offset, next offset and bytes of all that the log holds."""
        found = []
        for segment in self.log.segments:
            data = self.files[segment.key]
            for position, header in iterate_headers(data, is_compacted=True):
                content = data[position : position + header.size_bytes]
                found.append((header.base_offset, header.next_offset, content))
        return [each for each in found if each[1] > self.log.log_start_offset]

    @contextlib.contextmanager
    def reading(self, segment: SegmentKey) -> Iterator[None]:
        self.pins[segment] = self.pins.get(segment, 0) + 1
        try:
            yield
        finally:
            self.pins[segment] -= 1
            if not self.pins[segment] and segment in self.removed:
                self.removed.remove(segment)
                self.remove(segment)

    async def read(self, segment: SegmentKey, byte_position: int, length_bytes: int) -> bytes:
        assert self.pins.get(segment), f"{segment.path} is read without a pin"
        self.on_read(segment)
        if segment not in self.files:
            raise missing(segment.path)
        data = self.files[segment][byte_position : byte_position + length_bytes]
        self.reads.append((segment, byte_position, len(data)))
        return data

    async def read_sidecar(
        self, segment: SegmentKey, byte_position: int, length_bytes: int
    ) -> bytes:
        assert self.pins.get(segment), f"{segment.sidecar_path} is read without a pin"
        if segment not in self.sidecars:
            raise missing(segment.sidecar_path)
        data = self.sidecars[segment][byte_position : byte_position + length_bytes]
        self.sidecar_reads.append((segment, byte_position, len(data)))
        return data

    def fail(self, key: PartitionKey, error: TidelogError) -> None:
        assert key == self.key, "the partition that was read fails"
        self.failures.append(error)

    @property
    def read_bytes(self) -> int:
        """Of segments."""
        return sum(each[2] for each in self.reads)


def shelf_of(segments: list[list[bytes]], *, is_sealed: bool = False, number: int = 0) -> LogShelf:
    """A committed log; with `is_sealed` all segments have sidecars."""
    shelf = LogShelf(number)
    for batches in segments:
        shelf.roll()
        for batch in batches:
            shelf.append(batch)
    shelf.commit()
    if is_sealed:
        shelf.roll()
        for segment in shelf.log.segments:
            shelf.seal(segment)
    return shelf


def compacted(batches: list[bytes], kept: set[int]) -> LogShelf:
    """One compacted segment of the batches at these places."""
    shelf = shelf_of([batches], is_sealed=True)
    shelf.compact(0, 0, lambda offset: offset in kept)
    return shelf
