"""What a broker learns from a header, and what it refuses."""

import struct

import pytest

from tidelog.wire.batch import (
    HEADER_BYTES,
    BatchTooLarge,
    Codec,
    CorruptBatch,
    Limits,
    TimestampType,
    UnsupportedCodec,
    encode_batch,
    iterate_headers,
    peek_size,
    read_header,
    verify_checksum,
)

BATCH = encode_batch([(1_000, b"k", b"v", ()), (1_005, None, b"w", ())])


def damaged(position: int, form: str, value: int) -> bytes:
    data = bytearray(BATCH)
    struct.pack_into(form, data, position, value)
    return bytes(data)


def test_a_header_tells_size_offsets_and_times() -> None:
    batch = encode_batch(
        [(1_005, b"k", b"v", ()), (1_000, None, b"w", ())],
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        is_transactional=True,
        base_offset=100,
        leader_epoch=3,
    )
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 101, 102)
    assert (header.base_timestamp, header.max_timestamp) == (1_005, 1_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.codec is Codec.ZSTD
    assert header.timestamp_type is TimestampType.CREATE
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.leader_epoch == 3


def test_a_header_is_read_from_any_kind_of_buffer_at_any_position() -> None:
    wanted = read_header(BATCH)
    shifted = b"before" + BATCH + b"after"
    for buffer in (shifted, bytearray(shifted), memoryview(shifted)):
        header = read_header(buffer, 6)
        assert header == wanted
        verify_checksum(buffer, header, 6)


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, len(BATCH) - 1])
def test_a_batch_that_is_cut_off_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch, match="batch at byte 0"):
        read_header(BATCH[:size])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (damaged(8, ">i", 48), CorruptBatch),
        (damaged(8, ">i", -1), CorruptBatch),
        (damaged(8, ">i", 2**31 - 1), BatchTooLarge),
        (damaged(16, ">b", 1), CorruptBatch),
        (damaged(21, ">h", 5), UnsupportedCodec),
        (damaged(21, ">h", 7), UnsupportedCodec),
        (damaged(21, ">h", 0x80), CorruptBatch),
        (damaged(21, ">h", -1), CorruptBatch),
        (damaged(21, ">h", 0x10), CorruptBatch),
        (damaged(57, ">i", 1), CorruptBatch),
        (damaged(57, ">i", -1), CorruptBatch),
        (damaged(23, ">i", -1), CorruptBatch),
        (damaged(23, ">i", 2**31 - 1), BatchTooLarge),
        (damaged(57, ">i", 2**31 - 1), BatchTooLarge),
        (damaged(0, ">q", -1), CorruptBatch),
        (damaged(0, ">q", 2**63 - 1), CorruptBatch),
        (damaged(12, ">i", -2), CorruptBatch),
        (damaged(43, ">q", 5), CorruptBatch),
        (damaged(43, ">q", -2), CorruptBatch),
        (damaged(51, ">h", 0), CorruptBatch),
        (damaged(53, ">i", 0), CorruptBatch),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_header(data)


def test_more_records_than_bytes_are_refused_before_they_are_read() -> None:
    data = bytearray(BATCH)
    struct.pack_into(">i", data, 23, 9_999)
    struct.pack_into(">i", data, 57, 10_000)
    with pytest.raises(CorruptBatch, match="10000 records cannot lie in"):
        read_header(data)


def test_a_topic_may_admit_less_than_the_format() -> None:
    with pytest.raises(BatchTooLarge, match=f"{len(BATCH)} bytes, the limit is 70"):
        read_header(BATCH, limits=Limits(batch_bytes_max=70))
    with pytest.raises(BatchTooLarge, match="2 records"):
        read_header(BATCH, limits=Limits(records_per_batch_max=1))


def test_only_a_compacted_log_has_fewer_records_than_offsets() -> None:
    data = damaged(57, ">i", 1)
    assert read_header(data, is_compacted=True).record_count == 1
    assert read_header(damaged(57, ">i", 0), is_compacted=True).next_offset == 2
    with pytest.raises(CorruptBatch):
        read_header(damaged(57, ">i", 3), is_compacted=True)


def test_headers_are_iterated_until_the_buffer_ends_with_a_batch() -> None:
    found = list(iterate_headers(BATCH * 3))
    assert [position for position, _ in found] == [0, len(BATCH), 2 * len(BATCH)]
    headers = iterate_headers(BATCH + BATCH[:70])
    next(headers)
    with pytest.raises(CorruptBatch, match=f"batch at byte {len(BATCH)}"):
        next(headers)


def test_the_size_of_a_batch_is_known_from_twelve_bytes() -> None:
    assert peek_size(BATCH[:12]) == len(BATCH)
    assert peek_size(BATCH[:11]) is None
    assert peek_size(b"junk" + BATCH, 4) == len(BATCH)
    with pytest.raises(CorruptBatch):
        peek_size(bytes(12))


@pytest.mark.parametrize("position", [21, 30, 40, 60, 61, len(BATCH) - 1])
def test_a_flipped_bit_under_the_checksum_is_found(position: int) -> None:
    header = read_header(BATCH)
    data = bytearray(BATCH)
    data[position] ^= 4
    with pytest.raises(CorruptBatch, match="checksum"):
        verify_checksum(data, header)
