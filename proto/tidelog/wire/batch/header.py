"""Reads the fixed 61-byte header: all that a broker needs to know of a batch.

Owns `BatchHeader` and the checks on it. It must never look behind byte 61 of a batch: the records
are opaque here. Stops 5 and 6 of a record's walk: epoch and sequence check, segment append.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from tidelog.wire.batch.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec
from tidelog.wire.batch.layout import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    HEADER_STRUCT,
    INT64_MAX,
    KNOWN_ATTRIBUTE_BITS,
    LENGTH_POSITION,
    MAGIC,
    PREFIX_BYTES,
    RECORD_BYTES_MIN,
    TRANSACTIONAL_BIT,
    Buffer,
    Codec,
    TimestampType,
)
from tidelog.wire.batch.limits import DEFAULT_LIMITS, Limits
from tidelog.wire.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence

_CODECS: Final = tuple(Codec)
_KNOWN_CODEC_MAX: Final = max(Codec)


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The header as it stands in the bytes; fields in the order of the format."""

    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: Sequence
    record_count: int

    @property
    def codec(self) -> Codec:
        """How the records are compressed."""
        return _CODECS[self.attributes & CODEC_MASK]

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether `max_timestamp` replaces the records' own timestamps."""
        if self.attributes & APPEND_TIME_BIT:
            return TimestampType.APPEND
        return TimestampType.CREATE

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker, which no consumer sees."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether compaction put its delete horizon into the base timestamp."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def size_bytes(self) -> int:
        """The whole batch, the 12-byte prefix included."""
        return self.batch_length + PREFIX_BYTES

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record that the batch held when it was sealed."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """The offset after the batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)


def peek_size(buffer: Buffer, position: int = 0) -> int | None:
    """Bytes of the batch that begins here, prefix included; None if its prefix is cut off.

    Checks nothing but that the length can be one: a reader uses it to know how much to read.
    """
    assert position >= 0, f"a byte position is not negative: {position}"
    if position + PREFIX_BYTES > len(buffer):
        return None
    start = position + LENGTH_POSITION
    batch_length = int.from_bytes(buffer[start : start + 4], "big", signed=True)
    if batch_length < HEADER_BYTES - PREFIX_BYTES:
        raise _corrupt(position, f"batch length {batch_length} is shorter than a header")
    return batch_length + PREFIX_BYTES


def read_header(
    buffer: Buffer,
    position: int = 0,
    *,
    limits: Limits = DEFAULT_LIMITS,
    is_compacted: bool = False,
) -> BatchHeader:
    """The header of the batch at `position`, checked; the whole batch must lie in the buffer.

    `is_compacted` admits a batch of which compaction has removed records.
    """
    assert position >= 0, f"a byte position is not negative: {position}"
    if position + HEADER_BYTES > len(buffer):
        have = max(0, len(buffer) - position)
        raise _corrupt(position, f"a header has {HEADER_BYTES} bytes, only {have} are there")
    header = BatchHeader(*HEADER_STRUCT.unpack_from(buffer, position))
    _check_frame(header, len(buffer), position, limits)
    _check_counts(header, position, limits, is_compacted)
    _check_producer(header, position)
    return header


def iterate_headers(
    buffer: Buffer, *, limits: Limits = DEFAULT_LIMITS, is_compacted: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Byte position and header of each batch in the buffer, which must end with a batch's end."""
    position = 0
    end = len(buffer)
    while position < end:
        header = read_header(buffer, position, limits=limits, is_compacted=is_compacted)
        yield position, header
        position += header.size_bytes


def _check_frame(header: BatchHeader, buffer_bytes: int, position: int, limits: Limits) -> None:
    if header.magic != MAGIC:
        raise _corrupt(position, f"magic is {header.magic}, only {MAGIC} is known")
    if header.batch_length < HEADER_BYTES - PREFIX_BYTES:
        raise _corrupt(position, f"batch length {header.batch_length} is shorter than a header")
    size_bytes = header.size_bytes
    if size_bytes > limits.batch_bytes_max:
        raise BatchTooLarge(
            tried=_tried(position),
            happened=f"it has {size_bytes} bytes, the limit is {limits.batch_bytes_max}",
        )
    if position + size_bytes > buffer_bytes:
        missing = position + size_bytes - buffer_bytes
        raise _corrupt(position, f"it has {size_bytes} bytes, the last {missing} are missing")
    if header.attributes & ~KNOWN_ATTRIBUTE_BITS:
        raise _corrupt(position, f"attributes {header.attributes & 0xFFFF:#06x} have unknown bits")
    codec = header.attributes & CODEC_MASK
    if codec > _KNOWN_CODEC_MAX:
        raise UnsupportedCodec(tried=_tried(position), happened=f"its codec is number {codec}")


def _check_counts(header: BatchHeader, position: int, limits: Limits, is_compacted: bool) -> None:
    count, last_offset_delta = header.record_count, header.last_offset_delta
    if header.base_offset < 0 or header.base_offset > INT64_MAX - limits.records_per_batch_max:
        raise _corrupt(position, f"base offset {header.base_offset} is out of range")
    if header.leader_epoch < -1:
        raise _corrupt(position, f"leader epoch {header.leader_epoch} is out of range")
    if count > limits.records_per_batch_max or last_offset_delta >= limits.records_per_batch_max:
        raise BatchTooLarge(
            tried=_tried(position),
            happened=f"it has {count} records up to offset delta {last_offset_delta}, "
            f"the limit is {limits.records_per_batch_max}",
        )
    fits = 0 <= count <= last_offset_delta + 1 if is_compacted else count == last_offset_delta + 1
    if not fits or last_offset_delta < 0:
        raise _corrupt(
            position, f"record count {count} contradicts last offset delta {last_offset_delta}"
        )
    body_bytes = header.size_bytes - HEADER_BYTES
    if header.attributes & CODEC_MASK == 0 and body_bytes < count * RECORD_BYTES_MIN:
        raise _corrupt(position, f"{count} records cannot lie in {body_bytes} bytes")


def _check_producer(header: BatchHeader, position: int) -> None:
    identity = (header.producer_id, header.producer_epoch, header.base_sequence)
    has_producer = header.producer_id >= 0
    contradicts = (
        min(identity) < -1
        or has_producer != (header.producer_epoch >= 0)
        or (not has_producer and (header.base_sequence >= 0 or header.is_transactional))
    )
    if contradicts:
        raise _corrupt(
            position, f"producer id, epoch and sequence {identity} contradict each other"
        )


def _tried(position: int) -> str:
    return f"read the batch at byte {position}"


def _corrupt(position: int, happened: str) -> CorruptBatch:
    return CorruptBatch(tried=_tried(position), happened=happened)
