"""Opens a batch into records: the decoder that is always there.

Owns the way from bytes to tuples and its checks; the accelerated decoder must agree with it. Every
length is checked before it is used, every limit before memory is spent on it. Where records are
read one by one, whatever lies beyond the body ends in IndexError and whatever contradicts itself in
ValueError; both become CorruptBatch in one place. Numbers stay in zigzag form: twice the number,
and odd for a negative one, which as a length means null.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.wire.batch.checksum import verify_checksum
from tidelog.wire.batch.compression import decompress
from tidelog.wire.batch.errors import BatchTooLarge, CorruptBatch
from tidelog.wire.batch.header import BatchHeader, read_header
from tidelog.wire.batch.layout import (
    HEADER_BYTES,
    INT64_MIN,
    RECORD_BYTES_MIN,
    UINT64_MAX,
    Buffer,
    Codec,
    DecodedRecord,
    Header,
    TimestampType,
)
from tidelog.wire.batch.limits import DEFAULT_LIMITS, Limits
from tidelog.wire.batch.uniform import read_uniform
from tidelog.wire.batch.varint import counted_varints, decode_varint, decode_zigzag

_NULL: Final = 1
"""The length -1 in zigzag form."""

_BASE_MS_MAX: Final = 2**62
_TIME_MAX: Final = 2**62
"""In zigzag form: a delta of half that magnitude, which such a base cannot bring to overflow."""

_NO_HEADERS: Final[tuple[Header, ...]] = ()


def decode_batch(
    buffer: Buffer,
    position: int = 0,
    *,
    verify: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    is_compacted: bool = False,
) -> list[DecodedRecord]:
    """All records of the batch at `position`, in order."""
    header, body = open_batch(
        buffer, position, verify=verify, limits=limits, is_compacted=is_compacted
    )
    records = read_uniform(header, body)
    if records is None:
        return read_records(header, body, position, limits=limits)
    return records


def decode_parts(
    buffer: Buffer,
    position: int,
    *,
    from_offset: int,
    part_records: int,
    limits: Limits = DEFAULT_LIMITS,
    is_compacted: bool = False,
) -> Iterator[list[DecodedRecord]]:
    """The records from the offset on, so many at a time: for whoever may not want all of them.

    Those before it are passed over by their lengths; a batch with gaps is read from its beginning,
    and holds records before the offset.
    """
    header, body = open_batch(
        buffer, position, verify=True, limits=limits, is_compacted=is_compacted
    )
    is_whole = header.record_count == header.last_offset_delta + 1
    before = from_offset - header.base_offset if is_whole else 0
    return records_in_parts(
        header,
        body,
        position,
        limits=limits,
        part_records=part_records,
        skipped=min(max(before, 0), header.record_count),
    )


class OpenedBatch(NamedTuple):
    """A batch whose records can be read."""

    header: BatchHeader
    body: bytes
    """The records, decompressed."""


def open_batch(
    buffer: Buffer, position: int, *, verify: bool, limits: Limits, is_compacted: bool
) -> OpenedBatch:
    """The header, checked, and the records' bytes."""
    header = read_header(buffer, position, limits=limits, is_compacted=is_compacted)
    if verify:
        verify_checksum(buffer, header, position)
    return OpenedBatch(header, decompressed_body(buffer, header, position, limits))


def decompressed_body(buffer: Buffer, header: BatchHeader, position: int, limits: Limits) -> bytes:
    """The records' bytes after decompression."""
    data = bytes(buffer[position + HEADER_BYTES : position + header.size_bytes])
    if header.codec is Codec.NONE:
        return data
    tried = f"decompress {_where(header, position)}"
    body = decompress(header.codec, data, limits, tried)
    if len(body) < header.record_count * RECORD_BYTES_MIN:
        raise CorruptBatch(
            tried=tried,
            happened=f"{header.record_count} records cannot lie in {len(body)} bytes",
        )
    return body


def read_records(
    header: BatchHeader, body: bytes, position: int, *, limits: Limits
) -> list[DecodedRecord]:
    """The records of a decompressed body, one by one; `position` is the batch's, for errors."""
    (records,) = records_in_parts(
        header,
        body,
        position,
        limits=limits,
        part_records=header.record_count,
    )
    return records


def records_in_parts(
    header: BatchHeader,
    body: bytes,
    position: int,
    *,
    limits: Limits,
    part_records: int,
    skipped: int = 0,
) -> Iterator[list[DecodedRecord]]:
    """The records of a decompressed body, so many at a time, without the first `skipped`, which
    must be none of a batch with gaps. Whoever needs no more asks for no more.

    What is wrong with the end of a batch shows only when its end is read.
    """
    place = _Place(0, skipped, limits.headers_per_batch_max)
    records: list[DecodedRecord] = []
    try:
        place = place._replace(at=_after(body, skipped))
        left = header.record_count - skipped
        while True:
            records = []
            count = min(part_records, left)
            place = _read_into(records, header, body, place, count)
            left -= count
            if not left and place.at != len(body):
                raise ValueError(f"{len(body) - place.at} bytes follow the last record")
            yield records
            if not left:
                return
            skipped += count
    except BatchTooLarge as error:
        raise BatchTooLarge(
            tried=_tried_record(skipped + len(records), header, position), happened=error.happened
        ) from None
    except (IndexError, ValueError) as error:
        ended = isinstance(error, IndexError)
        raise CorruptBatch(
            tried=_tried_record(skipped + len(records), header, position),
            happened="the records end before it does" if ended else str(error),
        ) from None


def _after(body: bytes, count: int) -> int:
    """Where the record after so many begins, by their lengths alone."""
    at = 0
    for _ in range(count):
        length, at = body[at], at + 1
        if length > 0x7F:
            length, at = decode_zigzag(body, at - 1)
        if length & 1:
            raise ValueError(f"a record has the length {-(length >> 1) - 1}")
        at += length >> 1
    return at


class _Place(NamedTuple):
    """Of the next record."""

    at: int
    """In the body."""
    expected: int
    """The least offset delta that it may have."""
    headers_left: int
    """How many headers it and those after it may have together."""


def _read_into(
    records: list[DecodedRecord], header: BatchHeader, body: bytes, place: _Place, count: int
) -> _Place:
    """The loop that decoding spends its time in; returns the place after the last record.

    Lengths that mostly take two bytes are read in place, since a call costs more than that.
    """
    base_offset, base_ms = header.base_offset, header.base_timestamp
    timestamp_type = int(header.timestamp_type)
    append_ms = header.max_timestamp if timestamp_type == TimestampType.APPEND else None
    # Beyond this a timestamp may overflow, and the sum is wrapped.
    time_max = _TIME_MAX if -_BASE_MS_MAX < base_ms < _BASE_MS_MAX else -1
    last_delta = header.last_offset_delta
    offsets = counted_varints(last_delta + 2)
    at, expected, headers_left = place
    gaps = header.record_count <= last_delta
    for _ in range(count):
        length, at = body[at], at + 1
        if length > 0x7F:
            more, at = body[at], at + 1
            length += (more << 7) - 0x80
            if more > 0x7F:
                length, at = decode_zigzag(body, at - 2)
        stop = at + (length >> 1)
        # The attributes are reserved: skipped as a number, which is one byte from 0 to 127.
        at = at + 1 if body[at] < 0x80 else decode_zigzag(body, at)[1]
        time, at = body[at], at + 1
        if time > 0x7F:
            time, at = decode_zigzag(body, at - 1)
        if body.startswith(offsets[expected], at):
            at += len(offsets[expected])
        else:
            expected, at = _read_offset(body, at, expected, last_delta if gaps else expected)
        key, at = None, at + 1
        if body[at - 1] != _NULL:
            key, at = _read_content(body, at - 1)
        size, at = body[at], at + 1
        if size > 0x7F:
            more, at = body[at], at + 1
            size += (more << 7) - 0x80
            if more > 0x7F:
                size, at = decode_zigzag(body, at - 2)
        value = None
        if not size & 1:
            start, at = at, at + (size >> 1)
            value = body[start:at]
        headers, at = _NO_HEADERS, at + 1
        if body[at - 1]:
            headers, at = _read_headers(body, at - 1, headers_left)
            headers_left -= len(headers)
        if at != stop or length & 1:
            raise ValueError(f"it ends at byte {at} of the records, its length says {stop}")
        ms = base_ms + ((time >> 1) ^ -(time & 1)) if append_ms is None else append_ms
        ms = ms if time <= time_max else _wrapped(ms)
        records.append((base_offset + expected, ms, timestamp_type, key, value, headers))
        expected += 1
    if expected > last_delta + 1:
        raise ValueError(f"its offset delta is above the last one, {last_delta}")
    return _Place(at, expected, headers_left)


def _read_offset(body: bytes, at: int, lowest: int, highest: int) -> tuple[int, int]:
    """An offset delta that is not simply the next one: in more bytes than needed, or after a gap,
    which only compaction leaves."""
    delta, at = decode_varint(body, at)
    if not lowest <= delta <= highest:
        raise ValueError(f"its offset delta is {delta}, after {lowest - 1}")
    return delta, at


def _read_content(body: bytes, at: int) -> tuple[bytes | None, int]:
    """A key, or the value of a header; null if its length is negative."""
    size, at = body[at], at + 1
    if size > 0x7F:
        size, at = decode_zigzag(body, at - 1)
    if size & 1:
        return None, at
    end = at + (size >> 1)
    return body[at:end], end


def _wrapped(timestamp_ms: int) -> int:
    """What the sum is in 64 bits, as every client in a language with such integers reads it."""
    return ((timestamp_ms - INT64_MIN) & UINT64_MAX) + INT64_MIN


def _read_headers(body: bytes, at: int, headers_left: int) -> tuple[tuple[Header, ...], int]:
    count, at = decode_varint(body, at)
    if count < 0 or 2 * count > len(body) - at:
        raise ValueError(f"{count} headers do not fit into the {len(body) - at} bytes that follow")
    if count > headers_left:
        raise BatchTooLarge(
            tried="read the headers of a batch's records",
            happened=f"a record has {count}, {headers_left} are admitted",
        )
    headers: list[Header] = []
    for _ in range(count):
        length, at = body[at], at + 1
        if length > 0x7F:
            length, at = decode_zigzag(body, at - 1)
        start, at = at, at + (length >> 1)
        if length & 1 or at > len(body):
            raise ValueError("the name of a header does not fit")
        name = body[start:at].decode()
        content, at = _read_content(body, at)
        headers.append((name, content))
    return tuple(headers), at


def _tried_record(index: int, header: BatchHeader, position: int) -> str:
    return f"read record {index} of {_where(header, position)}"


def _where(header: BatchHeader, position: int) -> str:
    return f"the batch at byte {position} (base offset {header.base_offset})"
