"""What goes into a batch comes out of it, and nothing else does."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.chaos.fuzz.reference import plain
from tidelog.chaos.fuzz.seal import repair, seal_body
from tidelog.wire.batch import (
    HEADERS_PER_RECORD_MAX,
    BatchTooLarge,
    Codec,
    CorruptBatch,
    Limits,
    RecordTuple,
    decode_batch,
    decode_records,
    encode_batch,
    read_header,
    record_size_estimate,
)
from tidelog.wire.batch.uniform import read_uniform
from tidelog.wire.batch.varint import decode_varint, encode_varint
from tidelog.wire.errors import ErrorCode, TidelogError

CONTENTS = st.none() | st.binary(max_size=80)
RECORDS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300),
        CONTENTS,
        CONTENTS,
        st.lists(st.tuples(st.text(max_size=5), CONTENTS), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


def contents(records: list[RecordTuple]) -> list[tuple[object, ...]]:
    return [(time, key, value, tuple(headers)) for time, key, value, headers in records]


@settings(max_examples=20, deadline=None)
@given(records=RECORDS, codec=st.sampled_from(Codec))
def test_records_come_out_as_they_went_in(records: list[RecordTuple], codec: Codec) -> None:
    batch = encode_batch(records, codec=codec, base_offset=50)
    for decode in (decode_batch, decode_records):
        found = plain(decode(batch))
        assert [record[0] for record in found] == list(range(50, 50 + len(records)))
        assert [(record[1], *record[3:]) for record in found] == contents(records)


@settings(max_examples=20, deadline=None)
@given(records=RECORDS)
def test_the_estimate_is_never_below_the_size(records: list[RecordTuple]) -> None:
    estimates = (record_size_estimate(key, value, names) for _, key, value, names in records)
    assert len(encode_batch(records)) - 61 <= sum(estimates)


def test_the_estimate_of_a_small_record_is_close() -> None:
    value = bytes(100)
    batch = encode_batch([(0, None, value, ())])
    assert record_size_estimate(None, value, ()) - (len(batch) - 61) < 40


@pytest.mark.parametrize("count", [1, 23, 24, 63, 64, 65, 200, 8_193, 8_300])
@pytest.mark.parametrize("key", [None, b"", b"sixteen byte key"])
def test_equal_records_are_read_by_columns(count: int, key: bytes | None) -> None:
    records: list[RecordTuple] = [
        (1_000 + index // 3, key, b"value %06d" % index, ()) for index in range(count)
    ]
    batch = encode_batch(records, base_offset=7)
    columns = read_uniform(read_header(batch), batch[61:])
    assert (columns is None) == (count < 24)
    found = plain(decode_batch(batch))
    assert [(record[1], *record[3:]) for record in found] == contents(records)
    assert [record[0] for record in found] == list(range(7, 7 + count))


@pytest.mark.parametrize("index", [0, 1, 30, 63, 64, 65, 99])
@pytest.mark.parametrize(
    "other",
    [
        (1_000, None, b"longer than the others", ()),
        (1_000, None, None, ()),
        (1_000, b"", b"0123456789", ()),
        (1_000, None, b"0123456789", [("h", b"")]),
        (-9_999, None, b"0123456789", ()),
        (1_000, None, b"01234567", [("", None)]),
    ],
)
def test_one_other_record_among_equal_ones_is_read_right(index: int, other: RecordTuple) -> None:
    records: list[RecordTuple] = [(1_000, None, b"value %04d" % i, ()) for i in range(100)]
    records[index] = other
    found = plain(decode_batch(encode_batch(records)))
    assert [(record[1], *record[3:]) for record in found] == contents(records)


def test_columns_refuse_nothing_and_leave_wrong_offsets_to_the_judge() -> None:
    batch = encode_batch([(0, None, b"value", ()) for _ in range(50)])
    size = (len(batch) - 61) // 50
    data = bytearray(batch)
    data[61 + 20 * size + 3] = 2 * 21
    wrong = repair(data)
    assert read_uniform(read_header(wrong), wrong[61:]) is None
    with pytest.raises(CorruptBatch, match="offset delta is 21, after 19"):
        decode_records(wrong)


@pytest.mark.parametrize(
    ("body", "happened"),
    [
        (b"\x0e\x00\x00\x00\x01\x01\x00", "ends at byte 7 of the records, its length says 8"),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", "1 bytes follow the last record"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", "offset delta is 1"),
        (b"\x0c\x00\x00\x01\x01\x01\x00", "offset delta is -1"),
        (b"\x0c\x00\x00\x00\x02\x01\x00", "ends? before"),
        (b"\x0c\x00\x00\x00\x01\x02\x00", "ends? before"),
        (b"\x0c\x00\x00\x00\x01\x01\x01", "-1 headers"),
        (b"\x0c\x00\x00\x00\x01\x01\x02", "1 headers do not fit"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "name of a header"),
        (b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", "decode"),
        (b"\x80" * 11 + b"\x01", "longer than ten bytes"),
        (b"\x0c\x00" + b"\xff" * 11, "longer than ten bytes"),
        (b"\x0d\x00\x00\x00\x01\x01\x00", "ends at byte"),
        (b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00\x00\x00\x01\x01\x00", "ends at byte"),
    ],
)
def test_records_that_contradict_themselves_are_corrupt(body: bytes, happened: str) -> None:
    batch = seal_body(body, codec=Codec.NONE, record_count=1)
    with pytest.raises(CorruptBatch, match=happened) as caught:
        decode_records(batch)
    assert "batch at byte 0" in caught.value.tried


def test_needlessly_long_numbers_and_a_reserved_attribute_are_read() -> None:
    body = b"\x90\x00\x05\x80\x00\x80\x80\x00\x01\x01\x00"
    body = bytes((0x80 | 2 * (len(body) - 2), 0x00)) + body[2:]
    batch = seal_body(body, codec=Codec.NONE, record_count=1)
    assert plain(decode_records(batch)) == [(0, 1_000, 0, None, None, ())]


@pytest.mark.parametrize("field", range(6))
def test_a_number_may_take_ten_bytes_and_no_more(field: int) -> None:
    for size in (10, 11):
        numbers = [b"\x00", b"\x00", b"\x00", b"\x01", b"\x01", b"\x00"]
        numbers[field] = bytes((numbers[field][0] | 0x80, *[0x80] * (size - 2), 0))
        record = b"".join(numbers)
        body = encode_varint(len(record)) + record
        batch = seal_body(body, codec=Codec.NONE, record_count=1)
        if size == 10:
            assert plain(decode_records(batch)) == [(0, 1_000, 0, None, None, ())]
        else:
            with pytest.raises(CorruptBatch, match="longer than ten bytes"):
                decode_records(batch)


def test_timestamps_wrap_at_64_bits_as_in_java() -> None:
    record = b"\x00" + encode_varint(2**63 - 1) + b"\x00\x01\x01\x00"
    body = encode_varint(len(record)) + record
    batch = seal_body(body, codec=Codec.NONE, record_count=1)
    assert decode_records(batch)[0][1] == 1_000 + 2**63 - 1 - 2**64


def test_a_timestamp_beyond_64_bits_is_refused_when_sealed() -> None:
    for records in ([(2**63, None, b"", ())], [(0, None, b"", ()), (-(2**63) - 1, None, b"", ())]):
        with pytest.raises(TidelogError) as caught:
            encode_batch(records)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_sealing_stays_within_the_limits() -> None:
    record: RecordTuple = (0, None, bytes(100), ())
    with pytest.raises(BatchTooLarge, match="3 records, the limit is 2"):
        encode_batch([record] * 3, limits=Limits(records_per_batch_max=2))
    with pytest.raises(BatchTooLarge, match="bytes, the limit is 200"):
        encode_batch([record] * 3, limits=Limits(batch_bytes_max=200))
    many = [("h", None)] * (HEADERS_PER_RECORD_MAX + 1)
    with pytest.raises(BatchTooLarge, match=f"{len(many)} headers"):
        encode_batch([(0, None, None, many)])
    several = [(0, None, b"", [("h", b"")] * 3)] * 4
    assert encode_batch(several, limits=Limits(headers_per_batch_max=12))
    with pytest.raises(BatchTooLarge, match="12 headers, the limit is 11"):
        encode_batch(several, limits=Limits(headers_per_batch_max=11))


def test_a_name_of_a_header_that_is_no_text_is_refused_when_sealed() -> None:
    with pytest.raises(TidelogError) as caught:
        encode_batch([(0, None, b"", [("\ud800", b"")])])
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_more_headers_than_a_batch_may_have_are_refused_unread() -> None:
    batch = encode_batch([(0, None, b"", [("h", b"")] * 3), (0, None, b"", [("h", b"")] * 3)])
    assert len(decode_records(batch, limits=Limits(headers_per_batch_max=6))) == 2
    with pytest.raises(BatchTooLarge, match=r"record 1 of the batch at byte 0.*2 are admitted"):
        decode_records(batch, limits=Limits(headers_per_batch_max=5))


def test_a_checksum_is_checked_unless_the_caller_did() -> None:
    data = bytearray(encode_batch([(0, b"key", b"value", ())]))
    data[-2] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        decode_records(data)
    assert decode_records(data, verify=False)[0][4] == b"valud"


def test_gaps_are_read_in_a_compacted_log_only() -> None:
    batch = encode_batch([(0, None, b"v", ()) for _ in range(5)])
    size = (len(batch) - 61) // 5
    kept = bytearray(batch[: 61 + size] + batch[61 + 3 * size : 61 + 4 * size])
    struct.pack_into(">i", kept, 57, 2)
    compacted = repair(kept)
    assert [record[0] for record in decode_records(compacted, is_compacted=True)] == [0, 3]
    with pytest.raises(CorruptBatch):
        decode_records(compacted)
    struct.pack_into(">i", kept, 23, 2)
    with pytest.raises(CorruptBatch, match="offset delta is 3, after 0"):
        decode_records(repair(kept), is_compacted=True)
    swapped = bytearray(compacted[:61] + compacted[61 + size :] + compacted[61 : 61 + size])
    with pytest.raises(CorruptBatch, match="offset delta is 0, after 3"):
        decode_records(repair(swapped), is_compacted=True)


def test_no_offset_of_a_compacted_batch_is_above_its_last_one() -> None:
    batch = encode_batch([(0, None, b"v", ()) for _ in range(5)])
    size = (len(batch) - 61) // 5
    kept = bytearray(batch[:61] + batch[61 + 3 * size :])
    struct.pack_into(">i", kept, 57, 2)
    assert [record[0] for record in decode_records(repair(kept), is_compacted=True)] == [3, 4]
    struct.pack_into(">i", kept, 23, 3)
    with pytest.raises(CorruptBatch, match="above the last one, 3"):
        decode_records(repair(kept), is_compacted=True)


@given(number=st.integers(-(2**63), 2**63 - 1))
def test_numbers_come_back_from_their_encoded_form(number: int) -> None:
    assert decode_varint(encode_varint(number), 0) == (number, len(encode_varint(number)))
