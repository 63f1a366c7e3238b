"""Seals records into a batch: stop 3 of a record's walk.

Owns the way from tuples to bytes. Pure: no clock, so every record brings its timestamp. The parts
of all records are joined once; numbers come encoded from a cache.
"""

from collections.abc import Sequence as SequenceOf
from typing import Final

from tidelog.wire.batch.checksum import checksum
from tidelog.wire.batch.compression import compress
from tidelog.wire.batch.errors import BatchTooLarge
from tidelog.wire.batch.layout import (
    ATTRIBUTES_POSITION,
    CHECKSUM_POSITION,
    CONTROL_BIT,
    HEADER_BYTES,
    HEADER_STRUCT,
    INT64_MAX,
    INT64_MIN,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL_BIT,
    Codec,
    Header,
    RecordTuple,
)
from tidelog.wire.batch.limits import DEFAULT_LIMITS, Limits
from tidelog.wire.batch.varint import VARINTS
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

RECORD_OVERHEAD_BYTES_MAX: Final = 36
"""Length 5, attributes 1, timestamp 10, offset 5, key length 5, value length 5, header count 5."""

HEADER_OVERHEAD_BYTES_MAX: Final = 10

_TRIED: Final = "seal a batch"


def record_size_estimate(
    key: bytes | None, value: bytes | None, headers: SequenceOf[Header]
) -> int:
    """No record takes more than this uncompressed; cheap, for the accumulator."""
    size_bytes = RECORD_OVERHEAD_BYTES_MAX
    if value is not None:
        size_bytes += len(value)
    if key is not None:
        size_bytes += len(key)
    for name, content in headers:
        # A character takes at most four bytes of UTF-8.
        size_bytes += HEADER_OVERHEAD_BYTES_MAX + 4 * len(name)
        if content is not None:
            size_bytes += len(content)
    return size_bytes


def encode_batch(
    records: SequenceOf[RecordTuple],
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """The sealed batch.

    Records that compress beyond what a reader admits are sealed uncompressed: the header says so.
    """
    assert records, "a batch holds at least one record"
    if len(records) > limits.records_per_batch_max:
        raise BatchTooLarge(
            tried=_TRIED,
            happened=f"{len(records)} records, the limit is {limits.records_per_batch_max}",
        )
    base_timestamp, max_timestamp = _timestamp_range(records)
    body = _encode_records(records, base_timestamp, limits)
    codec, body = _compress(codec, body, limits)
    size_bytes = HEADER_BYTES + len(body)
    if size_bytes > limits.batch_bytes_max:
        raise BatchTooLarge(
            tried=_TRIED, happened=f"{size_bytes} bytes, the limit is {limits.batch_bytes_max}"
        )
    attributes = int(codec)
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    head = HEADER_STRUCT.pack(
        base_offset,
        size_bytes - PREFIX_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    summed = head[ATTRIBUTES_POSITION:] + body
    return head[:CHECKSUM_POSITION] + checksum(summed).to_bytes(4, "big") + summed


def _compress(codec: Codec, body: bytes, limits: Limits) -> tuple[Codec, bytes]:
    if codec is Codec.NONE:
        return codec, body
    compressed = compress(codec, body)
    if len(body) > limits.decompressed_bytes_cap(len(compressed)):
        return Codec.NONE, body
    return codec, compressed


def _timestamp_range(records: SequenceOf[RecordTuple]) -> tuple[int, int]:
    timestamps = [record[0] for record in records]
    base, lowest, highest = timestamps[0], min(timestamps), max(timestamps)
    if (
        lowest < INT64_MIN
        or highest > INT64_MAX
        or highest - base > INT64_MAX
        or lowest - base < INT64_MIN
    ):
        raise TidelogError(
            ErrorCode.INVALID_TIMESTAMP,
            tried=_TRIED,
            happened=f"timestamps from {lowest} to {highest} do not fit 64 bits around {base}",
        )
    return base, highest


def _encode_records(records: SequenceOf[RecordTuple], base_timestamp: int, limits: Limits) -> bytes:
    parts: list[bytes] = []
    extend = parts.extend
    varints = VARINTS
    offset_delta = 0
    for timestamp_ms, key, value, headers in records:
        time_bytes = varints[timestamp_ms - base_timestamp]
        offset_bytes = varints[offset_delta]
        offset_delta += 1
        size = len(time_bytes) + len(offset_bytes) + 1
        if key is None:
            key_length, key = b"\x01", b""
            size += 1
        else:
            key_length = varints[len(key)]
            size += len(key_length) + len(key)
        if value is None:
            value_length, value = b"\x01", b""
            size += 1
        else:
            value_length = varints[len(value)]
            size += len(value_length) + len(value)
        tail = _encode_headers(headers, limits) if headers else b"\x00"
        size += len(tail)
        extend(
            (
                varints[size],
                b"\x00",
                time_bytes,
                offset_bytes,
                key_length,
                key,
                value_length,
                value,
                tail,
            )
        )
    return b"".join(parts)


def _encode_headers(headers: SequenceOf[Header], limits: Limits) -> bytes:
    if len(headers) > limits.headers_per_record_max:
        raise BatchTooLarge(
            tried=_TRIED,
            happened=f"a record with {len(headers)} headers, "
            f"the limit is {limits.headers_per_record_max}",
        )
    parts = [VARINTS[len(headers)]]
    for name, content in headers:
        encoded = name.encode()
        parts += (VARINTS[len(encoded)], encoded)
        if content is None:
            parts.append(b"\x01")
        else:
            parts += (VARINTS[len(content)], content)
    return b"".join(parts)
