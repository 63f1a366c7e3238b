"""From stored batches to Arrow columns: stop 10 of a record's walk, many records at a time.

Owns the one way in which a batch becomes columns; what they are called and in which order they
stand is for whoever makes a table of them. Records of equal lengths are cut out by Arrow, no step
of it is one of Python a record. Only who was asked for Arrow imports this module: it needs pyarrow.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain, islice
from typing import Any, Final

import msgspec

from tidelog.client.bulk.arrow_modules import pa, pc
from tidelog.wire.batch import (
    RECORDS_PER_BATCH_MAX,
    BatchHeader,
    Buffer,
    DecodedRecord,
    Header,
    OpenedBatch,
    UniformRun,
    decode_uniform_runs,
    run_times,
)

BINARY: Final = pa.binary()
TIMES: Final = pa.timestamp("ms", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_REPEATED_BITS_MIN: Final = 12


Chunks = list[Any]
"""Arrow arrays of one type, one behind the other."""


class ArrowColumns(msgspec.Struct, frozen=True):
    """Records of one partition by field; the chunks of two fields need not end together."""

    records: int
    offsets: Chunks
    """int64."""
    times: Chunks
    """Milliseconds since 1970."""
    types: Chunks
    """int32: 0 set by the producer, 1 by the broker."""
    keys: Chunks
    values: Chunks
    headers: Chunks | None
    """Lists of (key, value); None: they were not asked for."""

    def fields(self) -> list[Chunks]:
        """All of them, headers last if they are there."""
        plain = [self.offsets, self.times, self.types, self.keys, self.values]
        return plain if self.headers is None else [*plain, self.headers]

    def between(self, first: int, end: int) -> "ArrowColumns":
        """The records of these offsets; nothing is copied."""
        if not self.records:
            return self
        if self.offsets[0][0].as_py() >= first and self.offsets[-1][-1].as_py() < end:
            return self
        offsets = [offset for chunk in self.offsets for offset in chunk.to_pylist()]
        start = bisect_left(offsets, first)
        length = bisect_left(offsets, end) - start
        sliced = [pa.chunked_array(each).slice(start, length).chunks for each in self.fields()]
        return _columns(length, sliced)


def decode_columns(
    buffer: Buffer, position: int = 0, *, verify: bool = True, with_headers: bool = False
) -> ArrowColumns:
    """All records of the batch at `position`, which compaction may have left none."""
    opened, runs, records = decode_uniform_runs(buffer, position, verify=verify, is_compacted=True)
    if runs is None:
        return _of_records(records, with_headers=with_headers)
    return _of_runs(opened, runs, with_headers=with_headers)


def join_columns(parts: Sequence[ArrowColumns]) -> ArrowColumns:
    """One behind the other; nothing is copied. All have headers or none has."""
    assert parts, "nothing to join"
    if len(parts) == 1:
        return parts[0]
    fields = zip(*(part.fields() for part in parts), strict=True)
    joined = [list(chain.from_iterable(field)) for field in fields]
    return _columns(sum(part.records for part in parts), joined)


def one_array(chunks: Chunks) -> Any:
    """The chunks as one; more than one are copied."""
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def repeated(value: object, kind: Any, count: int) -> Any:
    """An array of nothing but this value; those of the values last asked for are kept."""
    return _repeated(value, kind, 1 << max(_REPEATED_BITS_MIN, count.bit_length())).slice(0, count)


@lru_cache(maxsize=64)
def _repeated(value: object, kind: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(value, kind), count)


def _columns(records: int, fields: list[Chunks]) -> ArrowColumns:
    """As `fields` gives them."""
    offsets, times, types, keys, values, *headers = fields
    return ArrowColumns(
        records, offsets, times, types, keys, values, headers[0] if headers else None
    )


def _of_records(records: Sequence[DecodedRecord], *, with_headers: bool) -> ArrowColumns:
    empty: tuple[Sequence[Any], ...] = ((),) * 6
    offsets, times, types, keys, values, headers = zip(*records, strict=True) if records else empty
    return ArrowColumns(
        records=len(records),
        offsets=[pa.array(offsets, pa.int64())],
        times=[pa.array(times, TIMES)],
        types=[pa.array(types, pa.int32())],
        keys=[pa.array(keys, BINARY)],
        values=[pa.array(values, BINARY)],
        headers=[_headers(headers)] if with_headers else None,
    )


def _of_runs(
    opened: OpenedBatch, runs: Sequence[UniformRun], *, with_headers: bool
) -> ArrowColumns:
    header, body = opened
    count = header.record_count
    stored = pa.py_buffer(body)
    cut = [_cut(stored, run) for run in runs]
    base = pa.scalar(int(header.base_offset), pa.int64())
    return ArrowColumns(
        records=count,
        offsets=[pc.add(_count_to(count), base)],
        times=[_times(header, body, run) for run in runs],
        types=[repeated(int(header.timestamp_type), pa.int32(), count)],
        keys=[keys for keys, _ in cut],
        values=[values for _, values in cut],
        headers=[_headers([()] * count)] if with_headers else None,
    )


def _cut(stored: Any, run: UniformRun) -> tuple[Any, Any]:
    """Keys and values of a run: the same bytes of each record."""
    shape, records = run.shape, run.records
    window = stored.slice(run.at, records * shape.size)
    rows = pa.FixedSizeBinaryArray.from_buffers(pa.binary(shape.size), records, [None, window])
    return (
        _contents(rows, shape.key_at, shape.key_bytes),
        _contents(rows, shape.value_at, shape.value_bytes),
    )


def _contents(rows: Any, at: int, content_bytes: int) -> Any:
    if content_bytes < 0:
        return pa.nulls(len(rows), BINARY)
    if content_bytes == 0:
        return repeated(b"", BINARY, len(rows))
    return pc.binary_slice(rows, at, at + content_bytes).cast(BINARY)


def _times(header: BatchHeader, body: bytes, run: UniformRun) -> Any:
    times: Iterable[int] = run_times(header, body, run)
    if isinstance(times, list):
        return pa.array(times, TIMES)
    return repeated(next(islice(times, 1)), TIMES, run.records)


def _count_to(count: int) -> Any:
    """0, 1, 2 …: made once, since Python's numbers cost more than all else here."""
    assert count <= RECORDS_PER_BATCH_MAX, f"a batch of {count} records"
    return _numbers().slice(0, count)


@cache
def _numbers() -> Any:
    return pa.array(range(RECORDS_PER_BATCH_MAX), pa.int64())


def _headers(headers: Iterable[Sequence[Header]]) -> Any:
    return pa.array(
        [[{"key": key, "value": value} for key, value in of_record] for of_record in headers],
        HEADERS,
    )
