"""Opens a batch into records: the decoder that is always there.

Owns the way from bytes to tuples and its checks; the accelerated decoder must agree with it. Every
length is checked before it is used, every limit before memory is spent on it.
"""

from typing import Final, NoReturn

from tidelog.wire.batch.checksum import verify_checksum
from tidelog.wire.batch.compression import decompress
from tidelog.wire.batch.errors import BatchTooLarge, CorruptBatch
from tidelog.wire.batch.header import BatchHeader, read_header
from tidelog.wire.batch.layout import (
    HEADER_BYTES,
    INT64_MAX,
    INT64_MIN,
    RECORD_BYTES_MIN,
    Buffer,
    Codec,
    DecodedRecord,
    Header,
    TimestampType,
)
from tidelog.wire.batch.limits import DEFAULT_LIMITS, Limits
from tidelog.wire.batch.varint import decode_varint

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
    header = read_header(buffer, position, limits=limits, is_compacted=is_compacted)
    if verify:
        verify_checksum(buffer, header, position)
    body = decompressed_body(buffer, header, position, limits)
    return _RecordReader(header, body, position, limits, is_compacted).read()


def decompressed_body(buffer: Buffer, header: BatchHeader, position: int, limits: Limits) -> bytes:
    """The records' bytes after decompression."""
    data = buffer[position + HEADER_BYTES : position + header.size_bytes]
    if header.codec is Codec.NONE:
        return bytes(data)
    tried = f"decompress the batch at byte {position} (base offset {header.base_offset})"
    body = decompress(header.codec, data, limits, tried)
    if len(body) < header.record_count * RECORD_BYTES_MIN:
        raise CorruptBatch(
            tried=tried,
            happened=f"{header.record_count} records cannot lie in {len(body)} bytes",
        )
    return body


class _RecordReader:
    """One pass over a body; an error names the record and the byte of the body."""

    def __init__(
        self, header: BatchHeader, body: bytes, position: int, limits: Limits, is_compacted: bool
    ) -> None:
        self._header = header
        self._body = body
        self._position = position
        self._limits = limits
        self._is_compacted = is_compacted
        self._headers_left = limits.headers_per_batch_max

    def read(self) -> list[DecodedRecord]:
        header, body = self._header, self._body
        append_time = header.timestamp_type is TimestampType.APPEND
        timestamp_type = header.timestamp_type
        records: list[DecodedRecord] = []
        at = 0
        end = len(body)
        expected_delta = 0
        for index in range(header.record_count):
            try:
                length, start = decode_varint(body, at)
                stop = start + length
                if length < RECORD_BYTES_MIN - 1 or stop > end:
                    self._fail(index, at, f"a record of {length} bytes does not fit")
                if body[start] >= 0x80:
                    self._fail(index, start, "its attributes have an unknown bit")
                timestamp_delta, at = decode_varint(body, start + 1)
                offset_delta, at = decode_varint(body, at)
                key_length, at = decode_varint(body, at)
                key = None
                if key_length >= 0:
                    key = body[at : at + key_length]
                    at += key_length
                    if at > stop:
                        self._fail(index, at, "its key reaches beyond its end")
                value_length, at = decode_varint(body, at)
                value = None
                if value_length >= 0:
                    value = body[at : at + value_length]
                    at += value_length
                    if at > stop:
                        self._fail(index, at, "its value reaches beyond its end")
                header_count, at = decode_varint(body, at)
                headers: tuple[Header, ...] = _NO_HEADERS
                if header_count:
                    headers, at = self._read_headers(index, at, header_count)
            except IndexError:
                self._fail(index, at, "it is cut off")
            except ValueError as error:
                self._fail(index, at, str(error))
            if at != stop:
                self._fail(index, at, f"it ends at byte {at}, its length says {stop}")
            self._check_offset(index, at, offset_delta, expected_delta)
            expected_delta = offset_delta + 1
            timestamp_ms = header.base_timestamp + timestamp_delta
            if append_time:
                timestamp_ms = header.max_timestamp
            elif not INT64_MIN <= timestamp_ms <= INT64_MAX:
                self._fail(index, at, "its timestamp does not fit 64 bits")
            records.append(
                (
                    header.base_offset + offset_delta,
                    timestamp_ms,
                    timestamp_type,
                    key,
                    value,
                    headers,
                )
            )
        if at != end:
            self._fail(header.record_count, at, f"{end - at} bytes follow the last record")
        return records

    def _check_offset(self, index: int, at: int, offset_delta: int, expected_delta: int) -> None:
        if offset_delta == expected_delta:
            return
        if self._is_compacted and expected_delta < offset_delta <= self._header.last_offset_delta:
            return
        self._fail(index, at, f"its offset delta is {offset_delta} after {expected_delta - 1}")

    def _read_headers(self, index: int, at: int, count: int) -> tuple[tuple[Header, ...], int]:
        body = self._body
        if count < 0 or 2 * count > len(body) - at:
            self._fail(index, at, f"{count} headers do not fit")
        self._headers_left -= count
        if count > self._limits.headers_per_record_max or self._headers_left < 0:
            raise BatchTooLarge(
                tried=self._tried(index, at),
                happened=f"it has {count} headers, the limit is "
                f"{self._limits.headers_per_record_max} a record and "
                f"{self._limits.headers_per_batch_max} a batch",
            )
        headers: list[Header] = []
        for _ in range(count):
            name_length, at = decode_varint(body, at)
            if name_length < 0 or at + name_length > len(body):
                self._fail(index, at, f"a header name of {name_length} bytes does not fit")
            name = body[at : at + name_length].decode()
            at += name_length
            content_length, at = decode_varint(body, at)
            content = None
            if content_length >= 0:
                content = body[at : at + content_length]
                at += content_length
                if at > len(body):
                    self._fail(index, at, f"a header of {content_length} bytes does not fit")
            headers.append((name, content))
        return tuple(headers), at

    def _tried(self, index: int, at: int) -> str:
        return (
            f"read record {index} (byte {at} of the records) of the batch at byte "
            f"{self._position} (base offset {self._header.base_offset})"
        )

    def _fail(self, index: int, at: int, happened: str) -> NoReturn:
        raise CorruptBatch(tried=self._tried(index, at), happened=happened)
