"""Reads runs of records that differ only in what they hold: equal lengths, no headers.

Owns a way of decoding that spends its time in C: in a run of records of one size, the n-th bytes of
all records are one slice with a stride. Every byte that is not content is compared with what it
must be, so a run ends where a record has another shape. It refuses nothing: what it does not read,
corrupt batches included, is left to the decoders that go record by record.
"""

import struct
from collections.abc import Iterable
from itertools import chain, repeat
from typing import Final

import msgspec

from tidelog.wire.batch.header import BatchHeader
from tidelog.wire.batch.layout import DecodedRecord, TimestampType
from tidelog.wire.batch.varint import counted_varints, decode_varint

_RUN_RECORDS_MIN: Final = 24
"""A run costs about as much to set up as this many records cost one by one."""

_TIME_BYTES_MAX: Final = 4
"""Timestamps up to a day and a half around the first one's."""

_TIME_DELTAS_KEPT_MAX: Final = 65_536

_BASE_MS_MAX: Final = 2**62
"""Farther from zero a delta could overflow 64 bits, which is left to the other decoders."""

_FIRST_OF_WIDTH: Final = (0, 0, 64, 8_192, 1_048_576)
"""By number of bytes: the lowest offset delta that takes so many, for one byte to four."""

_IS_CONTINUED: Final = bytes(int(byte > 0x7F) for byte in range(256))
"""Translates a byte of a number into whether another byte of it follows."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where everything lies in each record of a run, counted from the record's first byte."""

    size: int
    time_at: int
    time_bytes: int
    offset_at: int
    offset_bytes: int
    key_at: int
    key_bytes: int
    value_at: int
    value_bytes: int

    def constant_positions(self) -> Iterable[int]:
        """The bytes that are the same in all records: lengths, attributes, header count."""
        key_length_at = self.offset_at + self.offset_bytes
        return chain(
            range(self.time_at),
            range(key_length_at, self.key_at),
            range(self.key_at + max(0, self.key_bytes), self.value_at),
            (self.size - 1,),
        )


class UniformRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Records of one shape that follow each other."""

    at: int
    """Of the first record's first byte in the body."""
    index: int
    """Of the first record in the batch: the others count on, and so do their offsets."""
    records: int
    shape: Shape


def read_uniform(header: BatchHeader, body: bytes) -> list[DecodedRecord] | None:
    """All records, if they form long runs and are whole; None if another decoder must judge."""
    runs = uniform_runs(header, body)
    if runs is None:
        return None
    records: list[DecodedRecord] = []
    for run in runs:
        records += _read_run(header, body, run)
    return records


def uniform_runs(header: BatchHeader, body: bytes) -> list[UniformRun] | None:
    """The runs that the records form, every byte of them checked; None as of `read_uniform`."""
    count = header.record_count
    if count < _RUN_RECORDS_MIN or not -_BASE_MS_MAX < header.base_timestamp < _BASE_MS_MAX:
        return None
    runs: list[UniformRun] = []
    at = index = 0
    while index < count:
        shape = _shape_at(body, at, index)
        if shape is None:
            return None
        records = _run_records(body, at, index, count, shape)
        if records < _RUN_RECORDS_MIN and index + records < count:
            return None
        if not _has_offsets(body, at, index, records, shape):
            return None
        runs.append(UniformRun(at=at, index=index, records=records, shape=shape))
        index += records
        at += records * shape.size
    return runs if at == len(body) else None


def _shape_at(body: bytes, at: int, index: int) -> Shape | None:
    try:
        length, attributes_at = decode_varint(body, at)
        time_at = attributes_at + 1
        _, offset_at = decode_varint(body, time_at)
        _, key_length_at = decode_varint(body, offset_at)
        key_bytes, key_at = decode_varint(body, key_length_at)
        value_bytes, value_at = decode_varint(body, key_at + max(0, key_bytes))
        end = value_at + max(0, value_bytes) + 1
        is_plain = body[attributes_at] == 0 and body[end - 1] == 0
    except (IndexError, ValueError):
        return None
    if not is_plain or end != attributes_at + length or offset_at - time_at > _TIME_BYTES_MAX:
        return None
    if min(key_bytes, value_bytes) < -1 or key_length_at - offset_at >= len(_FIRST_OF_WIDTH) - 1:
        return None
    return Shape(
        size=end - at,
        time_at=time_at - at,
        time_bytes=offset_at - time_at,
        offset_at=offset_at - at,
        offset_bytes=key_length_at - offset_at,
        key_at=key_at - at,
        key_bytes=key_bytes,
        value_at=value_at - at,
        value_bytes=value_bytes,
    )


def _column(body: bytes, at: int, records: int, size: int) -> bytes:
    """The byte at this place of each record of a run; `at` is where the first record's lies."""
    return body[at : at + (records - 1) * size + 1 : size]


def _run_records(body: bytes, at: int, index: int, count: int, shape: Shape) -> int:
    """How many records, from the one at `at`, have this shape."""
    size = shape.size
    run = min(count, _FIRST_OF_WIDTH[shape.offset_bytes + 1]) - index
    run = min(run, (len(body) - at) // size)
    for place in shape.constant_positions():
        column = _column(body, at + place, run, size)
        run -= len(column.lstrip(column[:1]))
    for place in range(shape.time_at, shape.time_at + shape.time_bytes):
        column = _column(body, at + place, run, size).translate(_IS_CONTINUED)
        run -= len(column.lstrip(column[:1]))
    return run


_offset_bytes: Final[dict[int, bytes]] = {}


def _has_offsets(body: bytes, at: int, index: int, run: int, shape: Shape) -> bool:
    """Whether the records count on from `index`, each in the fewest bytes."""
    width = shape.offset_bytes
    first = _FIRST_OF_WIDTH[width]
    if index < first:
        return False
    encoded = _offset_bytes.get(width, b"")
    if len(encoded) < (index + run - first) * width:
        encoded = b"".join(counted_varints(index + run)[first : _FIRST_OF_WIDTH[width + 1]])
        _offset_bytes[width] = encoded
    start = (index - first) * width
    return all(
        _column(body, at + shape.offset_at + place, run, shape.size)
        == _column(encoded, start + place, run, width)
        for place in range(width)
    )


def _read_run(header: BatchHeader, body: bytes, run: UniformRun) -> Iterable[DecodedRecord]:
    shape, first_offset = run.shape, header.base_offset + run.index
    records = memoryview(body)[run.at : run.at + run.records * shape.size]
    return zip(
        range(first_offset, first_offset + run.records),
        run_times(header, body, run),
        repeat(int(header.timestamp_type)),
        _contents(records, shape.size, shape.key_at, shape.key_bytes),
        _contents(records, shape.size, shape.value_at, shape.value_bytes),
        repeat(()),
        strict=False,
    )


def _contents(
    records: memoryview, size: int, at: int, content_bytes: int
) -> Iterable[bytes | None]:
    """The keys or the values of a run, cut out in C."""
    if content_bytes < 0:
        return repeat(None)
    rest = size - at - content_bytes
    return chain.from_iterable(struct.iter_unpack(f"{at}x{content_bytes}s{rest}x", records))


class _TimeDeltas(dict[int, int]):
    """Deltas by the bytes that encode them, read as a little-endian number."""

    def __missing__(self, encoded: int) -> int:
        delta, _ = decode_varint(encoded.to_bytes(_TIME_BYTES_MAX, "little"), 0)
        if len(self) < _TIME_DELTAS_KEPT_MAX:
            self[encoded] = delta
        return delta


_time_deltas: Final = _TimeDeltas()


def run_times(header: BatchHeader, body: bytes, run: UniformRun) -> Iterable[int]:
    """The timestamp of each record of a run; one that all share is repeated without an end."""
    if header.timestamp_type == TimestampType.APPEND:
        return repeat(header.max_timestamp)
    shape, records = run.shape, run.records
    at = run.at + shape.time_at
    columns = [_column(body, at + place, records, shape.size) for place in range(shape.time_bytes)]
    base_ms = header.base_timestamp
    if all(column.count(column[:1]) == records for column in columns):
        delta, _ = decode_varint(body, at)
        return repeat(base_ms + delta)
    encoded: Iterable[int] = columns[0]
    if len(columns) > 1:
        words = bytearray(_TIME_BYTES_MAX * records)
        for place, column in enumerate(columns):
            words[place::_TIME_BYTES_MAX] = column
        encoded = struct.unpack(f"<{records}I", words)
    return [base_ms + delta for delta in map(_time_deltas.__getitem__, encoded)]
