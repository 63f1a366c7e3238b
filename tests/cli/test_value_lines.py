"""What is printed of a batch: the fast way and the way record by record give the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.records.consume import Printing
from tidelog.cli.records.format import RecordFormat
from tidelog.cli.show.value_lines import open_values
from tidelog.client import RawBatch, TopicPartition
from tidelog.wire.batch import Codec, encode_batch, read_header

Records = list[tuple[int, bytes | None, bytes | None, tuple[()]]]


def raw(records: Records, *, base: int = 0, first: int = 0, codec: Codec = Codec.NONE) -> RawBatch:
    data = encode_batch(records, codec=codec, base_offset=base)
    return RawBatch(
        topic_partition=TopicPartition("t", 0),
        data=data,
        high_watermark=10_000_000,
        first_offset=max(base, first),
        next_offset=read_header(data).next_offset,
        leader_epoch=1,
    )


def printed(batch: RawBatch, *, count: int | None = None, end: int | None = None) -> bytes:
    made = RecordFormat(b"%v\\n")
    return Printing(made.render, count, made.value_end).take(batch, end)[0]


def one_by_one(records: Records) -> bytes:
    return b"".join((value or b"") + b"\n" for _, _, value, _ in records)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.none() | st.binary(max_size=3),
            st.none() | st.sampled_from([b"", b"same", b"size", b"other size"]),
            st.just(()),
        ),
        min_size=1,
        max_size=80,
    ),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
)
def test_mixed_records_are_printed_as_they_are(records: Records, codec: Codec) -> None:
    assert printed(raw(records, codec=codec)) == one_by_one(records)


@pytest.mark.parametrize("value", [b"x" * 80, b"", None])
def test_records_of_one_shape_are_printed_as_they_are(value: bytes | None) -> None:
    records: Records = [(number, b"key", value, ()) for number in range(1_000)]
    assert printed(raw(records)) == one_by_one(records)
    lines, rest = open_values(raw(records).data, b"\n")
    assert (lines is None) == (value is None), "only nulls need a look at each record"
    assert len(rest) == (1_000 if value is None else 0)


def test_what_was_not_asked_for_is_not_printed() -> None:
    records: Records = [(0, None, b"%04d" % number, ()) for number in range(100)]
    assert printed(raw(records, base=50, first=60)) == one_by_one(records[10:])
    assert printed(raw(records, base=50), end=60) == one_by_one(records[:10])
    assert printed(raw(records, base=50), end=150) == one_by_one(records)
    assert printed(raw(records), count=7) == one_by_one(records[:7])


def test_a_cut_count_says_where_it_was_cut() -> None:
    records: Records = [(0, None, b"%d" % number, ()) for number in range(10)]
    printing = Printing(RecordFormat(b"%v\\n").render, 14)
    assert printing.take(raw(records, base=100), None)[1] == 110
    assert printing.take(raw(records, base=110), None) == (one_by_one(records[:4]), 114)
    assert printing.is_full
    assert printing.take(raw(records, base=120), None) == (b"", None)
