"""From a caller's columns to batches: the same batches as record by record, and parts that tell."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.arguments.options import ProducerOptions
from tidelog.client.arguments.records import accumulator_limits
from tidelog.client.bulk.appending import Appending, Part
from tidelog.client.bulk.pieces import Chooser, pieces
from tidelog.client.bulk.records import GivenRecords
from tidelog.client.engine.produce.accumulator import Accumulator, Route
from tidelog.client.engine.produce.batch import Batch
from tidelog.client.errors import ErrorCode, TidelogError
from tidelog.client.shared.checked import check_of
from tidelog.client.writing.producer_base import by_key
from tidelog.wire.batch import decode_records, encode_batch, record_size_estimate
from tidelog.wire.partitioner import partition_for_key

CONTENTS = st.none() | st.binary(max_size=40)
HEADERS = st.none() | st.lists(
    st.tuples(st.text("ab", max_size=3), st.none() | st.binary(max_size=3)), max_size=3
)
MIXED = st.lists(st.tuples(CONTENTS, CONTENTS, HEADERS, st.integers(0, 2**40)), max_size=120)
EVEN = st.builds(
    lambda count, key, value: [(key, value, None, 7)] * count,
    st.integers(0, 300),
    st.sampled_from([None, b"", b"key"]),
    st.sampled_from([None, b"", b"v" * 20]),
)
ALMOST = st.tuples(EVEN, EVEN).map(lambda parts: parts[0] + parts[1])
"""Neighbours that take the same room and are not alike, perhaps."""
RECORDS = st.one_of(MIXED, EVEN, ALMOST)
Record = tuple[bytes | None, bytes | None, Any, int]


def accumulator_of(options: ProducerOptions) -> Accumulator:
    found = Accumulator(accumulator_limits(options), lambda: 0)
    found.set_route("t", b"i" * 16, 3)
    return found


def columns_of(records: list[Record], options: ProducerOptions) -> GivenRecords:
    keys, values, headers, times = zip(*records, strict=True) if records else ((), (), (), ())
    return GivenRecords("t", values, keys, headers, times, options)


def append_all(
    accumulator: Accumulator, source: GivenRecords, choose: Chooser | None
) -> tuple[Appending, list[Batch]]:
    """As a driver does it; whenever there is no room all that was begun is acknowledged."""
    route = accumulator.routes["t"]
    appending = Appending(pieces(source, None, choose))
    done: list[Batch] = []
    while appending.has_more():
        while appending.step(accumulator, route) is None:
            accumulator.seal_all()
            assert accumulator.sealed, "an empty buffer has room for any record"
            for batch in accumulator.take_sealed():
                accumulator.release(batch)
                done.append(batch)
    return appending, done


def one_by_one(accumulator: Accumulator, records: list[Record], route: Route) -> None:
    for key, value, headers, at in records:
        partition = route.sticky if key is None else partition_for_key(key, 3)
        size = record_size_estimate(key, value, headers or ())
        batch = accumulator.append(route, partition, at, key, value, tuple(headers or ()), size)
        assert batch is not None, "the buffer of this test has room"


def size_of(row: Any) -> int:
    _, key, value, headers = row
    return record_size_estimate(key, value, headers)


@given(records=RECORDS, batch_size=st.integers(60, 2_000), splits=st.lists(st.integers(0, 120)))
def test_batches_are_filled_before_the_next_partition_takes_over(
    records: list[Record], batch_size: int, splits: list[int]
) -> None:
    """Calls go on in the batch that the call before them left open, as send() does."""
    options = ProducerOptions(batch_size=batch_size)
    records = [(None, value, headers, at) for _, value, headers, at in records]
    bounds = sorted({0, len(records), *(at for at in splits if at < len(records))})
    bulk = accumulator_of(options)
    for start, end in itertools.pairwise(bounds):
        append_all(bulk, columns_of(records[start:end], options), None)
    bulk.seal_all()
    stored: list[Any] = []
    for batch in bulk.sealed:
        rows = list(batch.columns.rows())
        assert batch.size_bytes == sum(map(size_of, rows))
        assert batch.size_bytes <= max(batch_size, max(map(size_of, rows)))
        stored += rows
    assert stored == [(at, None, value, tuple(headers or ())) for _, value, headers, at in records]
    for batch, follower in zip(bulk.sealed, bulk.sealed[1:], strict=False):
        assert batch.size_bytes + size_of(next(iter(follower.columns.rows()))) > batch_size


@given(records=RECORDS, batch_size=st.integers(60, 2_000))
def test_each_partition_gets_its_keys_in_order(records: list[Record], batch_size: int) -> None:
    options = ProducerOptions(batch_size=batch_size)
    records = [(key or b"", value, headers, at) for key, value, headers, at in records]
    bulk, single = accumulator_of(options), accumulator_of(options)
    append_all(bulk, columns_of(records, options), keyed(bulk))
    one_by_one(single, records, single.routes["t"])
    by_partition: list[dict[int, list[Any]]] = []
    for accumulator in (bulk, single):
        accumulator.seal_all()
        found: dict[int, list[Any]] = {}
        for batch in accumulator.sealed:
            found.setdefault(batch.partition, []).extend(batch.columns.rows())
        by_partition.append(found)
    assert by_partition[0] == by_partition[1]


def keyed(accumulator: Accumulator) -> Chooser:
    return lambda keys: by_key(accumulator.routes["t"], keys)


def places(parts: list[Part]) -> Iterator[tuple[int, Any, int]]:
    """Of each record that was given: its position, what is stored of it, in which partition."""
    for part in parts:
        rows = list(part.batch.columns.rows())[part.first_index : part.next_index]
        for position, row in zip(part.positions, rows, strict=True):
            yield part.base + position, row, part.batch.partition


@settings(max_examples=200)
@given(
    records=RECORDS,
    batch_size=st.integers(60, 2_000),
    buffer_memory=st.integers(100, 60_000),
    slice_records=st.integers(1, 50),
)
def test_the_parts_tell_where_every_record_went_and_nothing_goes_twice(
    records: list[Record], batch_size: int, buffer_memory: int, slice_records: int
) -> None:
    options = ProducerOptions(batch_size=batch_size, buffer_memory=buffer_memory)
    accumulator = accumulator_of(options)
    source = columns_of(records, options)
    source.slice_records = slice_records
    appending, _ = append_all(accumulator, source, keyed(accumulator))
    assert appending.count == len(records)
    found = sorted(places(appending.parts), key=lambda place: place[0])
    assert [position for position, _, _ in found] == list(range(len(records)))
    for batch in {part.batch.number: part.batch for part in appending.parts}.values():
        sealed = [
            (at, key, value, tuple(headers))
            for _, at, _, key, value, headers in decode_records(encode_batch(batch.columns))
        ]
        assert sealed == list(batch.columns.rows())
    for (_, row, partition), (key, value, headers, at) in zip(found, records, strict=True):
        assert row == (at, key, value, tuple(headers or ()))
        assert key is None or partition == partition_for_key(key, 3)


def refusal(options: ProducerOptions | None = None, **columns: Any) -> TidelogError:
    wanted = {"keys": None, "headers": None, "timestamps_ms": None, **columns}
    with pytest.raises(TidelogError) as caught:
        GivenRecords("t", options=options or ProducerOptions(), **wanted)
    return caught.value


def test_columns_of_unequal_lengths_are_refused() -> None:
    error = refusal(values=[b"a", b"b"], keys=[b"k"])
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert "2 values and 1 keys" in error.happened
    assert refusal(values=[b"a"], headers=[]).code is ErrorCode.INVALID_ARGUMENT
    assert refusal(values=[b"a"], timestamps_ms=[1, 2]).code is ErrorCode.INVALID_ARGUMENT


def test_one_value_instead_of_a_list_is_refused() -> None:
    with pytest.raises(TidelogError) as caught:
        check_of("send_batch", "values")(b"abc", "produce", "values")
    assert "send()" in caught.value.hint


def test_a_record_that_fits_no_request_is_refused_with_its_size() -> None:
    options = ProducerOptions(max_request_size=100)
    error = refusal(options, values=[b"a", b"b" * 100])
    assert error.code is ErrorCode.BATCH_TOO_LARGE
    assert "136 bytes" in error.happened
    assert refusal(options, values=[b""], headers=[[("h" * 20, None)]]).code is error.code


def test_a_timestamp_that_no_record_holds_is_refused() -> None:
    error = refusal(values=[b"a", b"b"], timestamps_ms=[1, 1 << 62])
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    with pytest.raises(TypeError, match="milliseconds"):
        GivenRecords("t", [b"a", b"b"], None, None, [1, 1.5], ProducerOptions())  # type: ignore[list-item]


def test_what_is_not_bytes_needs_a_serializer() -> None:
    with pytest.raises(TypeError, match="value_serializer"):
        GivenRecords("t", [b"a", "b"], None, None, None, ProducerOptions())
    options = ProducerOptions(value_serializer=str.encode, key_serializer=bytes)
    source = GivenRecords("t", ["a"], [bytearray(b"k")], None, 5, options)
    columns, _ = source.take(0, 1, 9)
    assert list(columns.rows()) == [(5, b"k", b"a", ())]


def sealed_rows(batch: Batch) -> list[Any]:
    """What a reader finds in the batch."""
    return [
        (at, key, value, tuple(headers))
        for _, at, _, key, value, headers in decode_records(encode_batch(batch.columns))
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((None, b"v"), (b"", b"v")),
        ((b"", b"v"), (None, b"v")),
        ((b"k", b""), (b"k", None)),
        ((b"k", b"vv"), (b"kk", b"v")),
    ],
)
def test_records_of_one_size_that_are_not_alike_stay_what_they_are(first: Any, second: Any) -> None:
    """Long enough to be encoded by columns if all were alike."""
    records = [(*entry, None, 7) for entry in [first] * 40 + [second] * 40]
    accumulator = accumulator_of(ProducerOptions())
    appending = Appending(pieces(columns_of(records, ProducerOptions()), 0, None))
    while appending.has_more():
        appending.step(accumulator, accumulator.routes["t"])
    (batch,) = accumulator.open.values()
    assert sealed_rows(batch) == [(7, key, value, ()) for key, value, _, _ in records]


@pytest.mark.parametrize("single", [(b"key", b"v" * 9), (None, b"longer than before")])
def test_calls_with_a_single_record_between_them_share_a_batch(single: Any) -> None:
    options, (key, value) = ProducerOptions(), single
    accumulator = accumulator_of(options)
    route = accumulator.routes["t"]
    run: list[Record] = [(None, b"v" * 9, None, 7)] * 40
    for is_last in (False, True):
        appending = Appending(pieces(columns_of(run, options), 0, None))
        while appending.has_more():
            appending.step(accumulator, route)
        if not is_last:
            accumulator.append(route, 0, 7, key, value, (), 100)
    (batch,) = accumulator.open.values()
    of_run = [(7, None, b"v" * 9, ())] * 40
    assert sealed_rows(batch) == [*of_run, (7, key, value, ()), *of_run]
