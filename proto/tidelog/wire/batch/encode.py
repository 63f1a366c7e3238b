"""Seals records into a batch: stop 3 of a record's walk.

Owns the way from records to bytes. Pure: no clock, so every record brings its timestamp. Records of
equal lengths are encoded by columns (uniform_encode.py). Of others the parts are joined once;
numbers come encoded from a cache.
"""

from collections.abc import Sequence as SequenceOf
from functools import lru_cache
from typing import Final

from tidelog.wire.batch.checksum import checksum, extend_checksum
from tidelog.wire.batch.columns import Columns
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
    RECORD_HEADER_BYTES_MIN,
    TRANSACTIONAL_BIT,
    Codec,
    Header,
    RecordTuple,
)
from tidelog.wire.batch.limits import DEFAULT_LIMITS, Limits
from tidelog.wire.batch.uniform_encode import encode_uniform
from tidelog.wire.batch.varint import (
    LEADS,
    LEADS_AFTER_PLAIN,
    NULL_THEN_VARINTS,
    VARINTS,
    counted_varints,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

RECORD_OVERHEAD_BYTES_MAX: Final = 36
"""Length 5, attributes 1, timestamp 10, offset 5, key length 5, value length 5, header count 5."""

HEADER_OVERHEAD_BYTES_MAX: Final = 10

_TRIED: Final = "seal a batch"
_NULL: Final = b"\x01"
_NONE: Final = -1
_CACHED_HEADER_NAMES: Final = 1_024


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
    records: SequenceOf[RecordTuple] | Columns,
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
    assert len(records) > 0, "a batch holds at least one record"
    if len(records) > limits.records_per_batch_max:
        raise BatchTooLarge(
            tried=_TRIED,
            happened=f"{len(records)} records, the limit is {limits.records_per_batch_max}",
        )
    columns = records if isinstance(records, Columns) else Columns.of(records)
    times_ms = columns.timestamps
    is_one_time = times_ms.count(times_ms[0]) == len(times_ms)
    in_order_ms = times_ms if is_one_time else sorted(times_ms)
    _check_timestamps(in_order_ms[0], in_order_ms[-1])
    body = encode_uniform(columns) if in_order_ms == times_ms else None
    if body is None:
        body = _encode_records(columns, limits)
    _check_header_count(columns, body, limits)
    codec, body = _compress(codec, body, limits)
    size_bytes = HEADER_BYTES + len(body)
    if size_bytes > limits.batch_bytes_max:
        raise BatchTooLarge(
            tried=_TRIED, happened=f"{size_bytes} bytes, the limit is {limits.batch_bytes_max}"
        )
    attributes = codec | is_transactional * TRANSACTIONAL_BIT | is_control * CONTROL_BIT
    head = HEADER_STRUCT.pack(
        base_offset,
        size_bytes - PREFIX_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(columns) - 1,
        columns.timestamps[0],
        in_order_ms[-1],
        producer_id,
        producer_epoch,
        base_sequence,
        len(columns),
    )
    summed = head[ATTRIBUTES_POSITION:]
    crc = extend_checksum(checksum(summed), body)
    return b"".join((head[:CHECKSUM_POSITION], crc.to_bytes(4, "big"), summed, body))


def _check_header_count(columns: Columns, body: bytes, limits: Limits) -> None:
    """A reader would refuse more; they are counted only where so many can be."""
    if len(body) <= RECORD_HEADER_BYTES_MIN * limits.headers_per_batch_max:
        return
    count = sum(map(len, columns.headers.values()))
    if count > limits.headers_per_batch_max:
        raise BatchTooLarge(
            tried=_TRIED,
            happened=f"records with {count} headers, the limit is {limits.headers_per_batch_max}",
        )


def _compress(codec: Codec, body: bytes, limits: Limits) -> tuple[Codec, bytes]:
    if codec is Codec.NONE:
        return codec, body
    compressed = compress(codec, body)
    if len(body) > limits.decompressed_bytes_cap(len(compressed)):
        return Codec.NONE, body
    return codec, compressed


def _encode_records(columns: Columns, limits: Limits) -> bytes:
    """The records' bytes, whatever they are: the loop for those that are not alike.

    Each part that is looked up comes with all constant bytes around it (varint.py). A record
    without headers leaves its last byte, the header count 0, to the lead of the record after it.
    Neighbours of equal lengths share a lead, which begins the record: its length and attributes.
    Records with headers or without a value take the general way.
    """
    parts: list[bytes] = []
    varints, null_then, next_leads = VARINTS, NULL_THEN_VARINTS, LEADS_AFTER_PLAIN
    leads = LEADS
    base_ms = last_ms = columns.timestamps[0]
    time = lead = keyed_lead = lengths = key_length = value_length = b""
    offset_bytes = numbers_bytes = 0
    last_value_bytes = last_key_bytes = last_keyed_bytes = _NONE
    # There may be more offset deltas than records: the list is shared and only grows.
    offsets = counted_varints(len(columns))
    for (timestamp_ms, key, value, headers), offset in zip(columns.rows(), offsets, strict=False):
        if timestamp_ms != last_ms or len(offset) != offset_bytes:
            time = varints[timestamp_ms - base_ms]
            offset_bytes = len(offset)
            numbers_bytes = 1 + len(time) + offset_bytes
            last_ms = timestamp_ms
            last_value_bytes = last_key_bytes = _NONE
        if headers or value is None:
            ending = _encode_headers(headers, limits)
            parts += _general_parts(leads, time, offset, key, value, ending)
            leads = LEADS
            last_value_bytes = last_key_bytes = _NONE
        elif key is None:
            size = len(value)
            if size != last_value_bytes:
                lengths = null_then[size]
                lead = leads[1 + numbers_bytes + len(lengths) + size]
                last_value_bytes = size if leads is next_leads else _NONE
                leads = next_leads
            parts += (lead, time, offset, lengths, value)
        else:
            size = len(value)
            if size != last_keyed_bytes or len(key) != last_key_bytes:
                key_length = varints[len(key)]
                value_length = varints[size]
                lengths_bytes = len(key_length) + len(value_length)
                keyed_lead = leads[1 + numbers_bytes + lengths_bytes + len(key) + size]
                last_keyed_bytes = size
                last_key_bytes = len(key) if leads is next_leads else _NONE
                leads = next_leads
            parts += (keyed_lead, time, offset, key_length, key, value_length, value)
    if leads is next_leads:
        parts.append(b"\x00")
    return b"".join(parts)


def _general_parts(
    leads: dict[int, bytes],
    time: bytes,
    offset: bytes,
    key: bytes | None,
    value: bytes | None,
    headers: bytes,
) -> tuple[bytes, ...]:
    key_length = VARINTS[-1 if key is None else len(key)]
    value_length = VARINTS[-1 if value is None else len(value)]
    key = key or b""
    value = value or b""
    size = 1 + len(time) + len(offset) + len(key_length) + len(key)
    size += len(value_length) + len(value) + len(headers)
    return leads[size], time, offset, key_length, key, value_length, value, headers


def _encode_headers(headers: SequenceOf[Header], limits: Limits) -> bytes:
    if len(headers) > limits.headers_per_record_max:
        raise BatchTooLarge(
            tried=_TRIED,
            happened=f"a record with {len(headers)} headers, "
            f"the limit is {limits.headers_per_record_max}",
        )
    parts = [VARINTS[len(headers)]]
    for name, content in headers:
        parts.append(_encode_header_name(name))
        if content is None:
            parts.append(_NULL)
        else:
            parts += (VARINTS[len(content)], content)
    return b"".join(parts)


@lru_cache(maxsize=_CACHED_HEADER_NAMES)
def _encode_header_name(name: str) -> bytes:
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=_TRIED,
            happened=f"a header's name is no Unicode text: {error}",
        ) from None
    return VARINTS[len(encoded)] + encoded


def _check_timestamps(lowest_ms: int, highest_ms: int) -> None:
    if lowest_ms < INT64_MIN or highest_ms > INT64_MAX:
        raise TidelogError(
            ErrorCode.INVALID_TIMESTAMP,
            tried=_TRIED,
            happened=f"timestamps from {lowest_ms} to {highest_ms} do not fit 64 bits",
        )
