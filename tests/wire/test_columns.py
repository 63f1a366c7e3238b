"""Records that are alike are encoded by columns: the bytes are those of the other way."""

from random import Random

import pytest

from tidelog.wire.batch import Columns, RecordTuple, decode_batch, encode_batch
from tidelog.wire.batch.uniform_encode import encode_uniform

HEAD_BYTES = 61
DAY_MS = 86_400_000


def alike(
    count: int, *, key_bytes: int | None = None, value_bytes: int = 10, span_ms: int = 0
) -> list[RecordTuple]:
    random = Random(count)
    times = sorted(1_790_000_000_000 + random.randrange(span_ms + 1) for _ in range(count))
    return [
        (time, None if key_bytes is None else random.randbytes(key_bytes), value, ())
        for time, value in zip(times, (random.randbytes(value_bytes) for _ in times), strict=True)
    ]


@pytest.mark.parametrize("count", [24, 64, 65, 300, 8_193])
@pytest.mark.parametrize("key_bytes", [None, 0, 3, 70])
@pytest.mark.parametrize("span_ms", [0, 2, 64, 100, 20_000, DAY_MS])
def test_both_ways_give_the_same_bytes(count: int, key_bytes: int | None, span_ms: int) -> None:
    records = alike(count, key_bytes=key_bytes, span_ms=span_ms)
    body = encode_uniform(Columns.of(records))
    assert body is not None, "records that are alike were left to the loop"
    # One more record of another length sends the whole batch the other way.
    other = encode_batch([*records, (records[-1][0], None, b"", ())])
    assert other[HEAD_BYTES:].startswith(body)
    assert encode_batch(records)[HEAD_BYTES:] == body


@pytest.mark.parametrize("value_bytes", [0, 1, 63, 64, 100, 9_000])
def test_values_of_any_one_length_come_back(value_bytes: int) -> None:
    records = alike(100, value_bytes=value_bytes, span_ms=90)
    found = [
        (time, key, value, ()) for _, time, _, key, value, _ in decode_batch(encode_batch(records))
    ]
    assert found == records


@pytest.mark.parametrize(
    "odd",
    [
        (1_790_000_000_000, None, None, ()),
        (1_790_000_000_000, b"key", b"v" * 10, ()),
        (1_790_000_000_000, None, b"v" * 11, ()),
        (1_790_000_000_000, None, b"v" * 10, (("name", b"content"),)),
        (1_790_000_000_000 + 2 * DAY_MS, None, b"v" * 10, ()),
    ],
)
@pytest.mark.parametrize("keyed", [False, True])
def test_one_record_that_is_not_alike_takes_all_the_other_way(
    odd: RecordTuple, keyed: bool
) -> None:
    records = [*alike(30, key_bytes=4 if keyed else None), odd]
    assert encode_uniform(Columns.of(records)) is None
    found = decode_batch(encode_batch(records))[-1]
    assert (found[1], found[3], found[4], tuple(found[5])) == odd


def test_time_may_run_backwards() -> None:
    records = alike(40, span_ms=500)[::-1]
    found = [time for _, time, *_ in decode_batch(encode_batch(records))]
    assert found == [record[0] for record in records]


def test_columns_are_the_records_turned() -> None:
    records: list[RecordTuple] = [(1, b"k", b"v", ()), (2, None, None, (("h", b"x"),))]
    assert list(Columns.of(records).rows()) == records
    assert len(Columns.of(records)) == 2
