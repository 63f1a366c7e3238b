"""Stored batches as Arrow columns: what decode_records() reads, field by field."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.bulk.arrow_columns import (
    ArrowColumns,
    decode_columns,
    join_columns,
    one_array,
)
from tidelog.wire.batch import (
    Codec,
    CorruptBatch,
    decode_records,
    encode_batch,
    has_accelerator,
    stamp_append_time,
    use_accelerator,
)

CONTENTS = st.none() | st.binary(max_size=30)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
TIMES = st.integers(0, 2**40)
MIXED = st.lists(st.tuples(TIMES, CONTENTS, CONTENTS, HEADERS), min_size=1, max_size=60)


@st.composite
def alike(draw: st.DrawFn) -> list[Any]:
    """Runs of equal lengths, as bulk users have them; timestamps in order."""
    count = draw(st.integers(24, 9_000))
    key_bytes = draw(st.none() | st.integers(0, 20))
    value_bytes = draw(st.none() | st.integers(0, 20))
    step = draw(st.sampled_from([0, 1, 50]))
    base = draw(TIMES)

    def content(length: int | None, number: int) -> bytes | None:
        return None if length is None else (b"%08d" % number * 3)[:length]

    return [
        (base + step * number, content(key_bytes, number), content(value_bytes, number), ())
        for number in range(count)
    ]


@pytest.fixture(params=[True, False], ids=["accelerator", "python"], autouse=True)
def accelerator(request: pytest.FixtureRequest) -> Iterator[None]:
    use_accelerator(request.param)
    assert request.param or not has_accelerator()
    yield
    use_accelerator(True)


def rows(columns: ArrowColumns) -> list[Any]:
    """As decode_records() gives them."""
    assert columns.headers is not None
    fields = [one_array(field).to_pylist() for field in columns.fields()]
    offsets, times, types, keys, values, headers = fields
    times = [round(at.timestamp() * 1000) for at in times]
    headers = [tuple((each["key"], each["value"]) for each in found) for found in headers]
    assert len(offsets) == columns.records
    return list(zip(offsets, times, types, keys, values, headers, strict=True))


def expected(data: bytes) -> list[Any]:
    return [(*record[:5], tuple(record[5])) for record in decode_records(data)]


@given(records=st.one_of(MIXED, alike()), codec=st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_columns_hold_what_the_records_hold(records: list[Any], codec: Codec) -> None:
    data = encode_batch(records, codec=codec, base_offset=1_000)
    assert rows(decode_columns(data, with_headers=True)) == [
        (offset, at, 0, key, value, tuple(headers))
        for offset, (at, key, value, headers) in enumerate(records, 1_000)
    ]
    assert decode_columns(data).headers is None


@given(records=alike(), first=st.integers(-5, 9_100), length=st.integers(0, 9_100))
def test_a_range_of_offsets_is_cut_out(records: list[Any], first: int, length: int) -> None:
    data = encode_batch(records)
    found = decode_columns(data, with_headers=True).between(first, first + length)
    assert rows(found) == [each for each in expected(data) if first <= each[0] < first + length]


def test_times_whose_encoded_form_begins_alike_are_told_apart() -> None:
    times = [1_000] * 30 + [1_000 + 64 * number for number in range(1, 100)]
    found = decode_columns(encode_batch([(at, None, b"v", ()) for at in times]))
    assert len(found.times) > 1, "the batch was read in runs"
    assert one_array(found.times).cast("int64").to_pylist() == times


def test_the_brokers_time_stands_for_all_records() -> None:
    data = bytearray(encode_batch([(n, None, b"v", ()) for n in range(100)]))
    stamp_append_time(data, 0, timestamp_ms=77)
    found = decode_columns(bytes(data), with_headers=True)
    assert rows(found) == expected(bytes(data))
    assert one_array(found.types).to_pylist() == [1] * 100


def test_joined_columns_stand_one_behind_the_other() -> None:
    parts = [encode_batch([(n, b"k", b"%d" % n, [("h", None)])] * 3, base_offset=n) for n in (1, 7)]
    joined = join_columns([decode_columns(part, with_headers=True) for part in parts])
    assert rows(joined) == [*expected(parts[0]), *expected(parts[1])]


def test_a_damaged_batch_is_refused() -> None:
    data = bytearray(encode_batch([(n, None, b"v" * 10, ()) for n in range(100)]))
    data[-20] ^= 1
    with pytest.raises(CorruptBatch):
        decode_columns(bytes(data))
