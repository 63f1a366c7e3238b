"""The bytes of a rewritten batch."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.support.compaction_log import batch, keyed
from tidelog.broker.log.compaction.rewrite import empty_batch, rewrite_batch
from tidelog.wire.batch import (
    DEFAULT_LIMITS,
    BatchHeader,
    Codec,
    decode_batch,
    encode_batch,
    read_header,
    verify_checksum,
)
from tidelog.wire.batch.decode import decompressed_body

THREE = [keyed("a", "1", 1_000), keyed("b", None, 1_005), keyed("c", "3", 998)]


def rewritten(data: bytes, kept: list[bool], base_timestamp: int, *, has_horizon: bool) -> bytes:
    header = read_header(data, is_compacted=True)
    records = decode_batch(data, is_compacted=True)
    made = rewrite_batch(
        header,
        decompressed_body(data, header, 0, DEFAULT_LIMITS),
        kept,
        max_timestamp=max(each[1] for each, is_kept in zip(records, kept, strict=True) if is_kept),
        base_timestamp=base_timestamp,
        has_horizon=has_horizon,
    )
    assert made is not None
    return made


def test_golden_bytes_of_a_batch_without_its_first_record() -> None:
    data = batch(THREE, 70, producer_id=5, base_sequence=9)
    made = rewritten(data, [False, True, True], 1_000, has_horizon=False)
    assert made.hex(" ", -4) == (
        "00000000 00000046 00000042 00000000 02592855 4a000000 00000200 00000000 0003e800 "
        "00000000 0003ed00 00000000 00000500 00000000 09000000 020e000a 02026201 00100003 "
        "04026302 3300"
    )


def test_golden_bytes_of_a_delete_horizon() -> None:
    data = batch(THREE, 70)
    made = rewritten(data, [False, True, False], 86_401_005, has_horizon=True)
    assert made.hex(" ", -4) == (
        "00000000 00000046 0000003c 00000000 02bfb694 57004000 00000200 00000005 265fed00 "
        "00000000 0003edff ffffffff ffffffff ffffffff ff000000 011400ff efb25202 02620100"
    )


def test_golden_bytes_of_an_empty_batch() -> None:
    data = batch(THREE, 70, codec=Codec.ZSTD, producer_id=5, base_sequence=9)
    assert empty_batch(read_header(data)).hex(" ", -4) == (
        "00000000 00000046 00000031 00000000 02e68f10 9c000000 000002ff ffffffff ffffff00 "
        "00000000 0003ed00 00000000 00000500 00000000 09000000 00"
    )


RECORDS = st.lists(
    st.tuples(
        st.integers(min_value=-(2**63), max_value=2**63 - 1)
        | st.integers(min_value=0, max_value=10_000),
        st.none() | st.binary(max_size=150),
        st.none() | st.binary(max_size=150),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=80,
)


@settings(max_examples=50)
@given(
    records=RECORDS,
    codec=st.sampled_from(list(Codec)),
    base_timestamp=st.none() | st.integers(min_value=0, max_value=2**63 - 1),
    data=st.data(),
)
def test_kept_records_are_as_they_were_and_the_header_keeps_its_place(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    base_timestamp: int | None,
    data: st.DataObject,
) -> None:
    sealed = encode_batch(
        records, codec=codec, base_offset=1_000, leader_epoch=4, producer_id=3, producer_epoch=2
    )
    kept = data.draw(
        st.lists(st.booleans(), min_size=len(records), max_size=len(records)).filter(any)
    )
    header = read_header(sealed)
    base = header.base_timestamp if base_timestamp is None else base_timestamp
    made = rewritten(sealed, kept, base, has_horizon=base_timestamp is not None)
    after = read_header(made, is_compacted=True)
    verify_checksum(made, after)
    expected = [each for each, is_kept in zip(decode_batch(sealed), kept, strict=True) if is_kept]
    assert decode_batch(made, is_compacted=True) == expected
    assert place(after) == place(header)
    assert after.base_timestamp == base
    assert after.has_delete_horizon == (base_timestamp is not None)
    assert after.codec in (codec, Codec.NONE)
    assert after.max_timestamp == max(each[1] for each in expected)


def place(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.base_offset,
        header.last_offset_delta,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        header.is_control,
        header.timestamp_type,
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_can_be_rewritten_again_and_again(codec: Codec) -> None:
    records = [keyed(f"k{number}", f"v{number}") for number in range(200)]
    data = batch(records, 50, codec=codec)
    while len(left := decode_batch(data, is_compacted=True)) > 1:
        kept = [number % 3 != 1 for number in range(len(left))]
        data = rewritten(data, kept, 7, has_horizon=False)
    assert [(each[0], each[1]) for each in decode_batch(data, is_compacted=True)] == [(50, 1_000)]


def test_an_empty_batch_can_be_read() -> None:
    data = batch(THREE, 70, codec=Codec.GZIP, producer_id=5, base_sequence=9)
    made = empty_batch(read_header(data))
    header = read_header(made, is_compacted=True)
    verify_checksum(made, header)
    assert decode_batch(made, is_compacted=True) == []
    assert place(header) == place(read_header(data))
    assert (header.codec, header.base_timestamp, header.max_timestamp) == (Codec.NONE, -1, 1_005)


def test_a_batch_that_would_be_too_large_is_not_made() -> None:
    data = batch([keyed("k" * 33, None, 0)] * 60, 0)
    body, count = data[61:] * 1_600, 60 * 1_600
    header = msgspec.structs.replace(read_header(data), record_count=count)
    sizes = []
    for base_timestamp in (0, 10**12):
        made = rewrite_batch(
            header,
            body,
            [True] * count,
            max_timestamp=0,
            base_timestamp=base_timestamp,
            has_horizon=True,
        )
        sizes.append(None if made is None else len(made))
    assert sizes == [61 + len(body), None]
