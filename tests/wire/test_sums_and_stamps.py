"""What is bound to what by a checksum, and what a leader may write."""

import struct

import google_crc32c
import pytest
from msgspec.structs import replace

from tidelog.wire.batch import (
    PLACE_BYTES,
    CorruptBatch,
    TimestampType,
    batch_checksum,
    checksum,
    decode_records,
    encode_batch,
    fetch_sum,
    place,
    read_header,
    route_sum,
    stamp,
    stamp_append_time,
    verify_checksum,
)
from tidelog.wire.ids import TopicId

TOPIC_ID = TopicId(bytes(range(16)))
BATCH = encode_batch([(1_000, b"k", b"v", ()), (1_005, None, b"w", ())])


def test_the_checksum_is_crc_32c() -> None:
    assert checksum(b"123456789") == 0xE3069283
    assert checksum(bytearray(b"123456789")) == 0xE3069283
    assert checksum(memoryview(b"0123456789")[1:]) == 0xE3069283


def test_the_checksum_is_computed_in_c() -> None:
    assert google_crc32c.implementation == "c", "in Python it costs a thousand times as much"


def test_a_batch_holds_the_checksum_of_all_that_follows_it() -> None:
    header = read_header(BATCH)
    assert header.crc == batch_checksum(BATCH, header) == checksum(BATCH[21:])


def test_a_stamp_changes_base_offset_and_leader_epoch_and_nothing_else() -> None:
    data = bytearray(b"before" + BATCH + b"after")
    stamp(data, 6, base_offset=2**40, leader_epoch=9)
    header = read_header(data, 6)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    verify_checksum(data, header, 6)
    stamp(data, 6, base_offset=0, leader_epoch=-1)
    assert data == b"before" + BATCH + b"after"


@pytest.mark.parametrize(("base_offset", "leader_epoch"), [(0, -1), (7, 0), (2**40, 9)])
def test_a_place_in_front_of_the_rest_is_the_stamped_batch(
    base_offset: int, leader_epoch: int
) -> None:
    stamped = bytearray(BATCH)
    stamp(stamped, 0, base_offset=base_offset, leader_epoch=leader_epoch)
    header = replace(read_header(BATCH), base_offset=base_offset, leader_epoch=leader_epoch)
    assert place(header) + BATCH[PLACE_BYTES:] == stamped


def test_append_time_replaces_all_timestamps_and_the_checksum() -> None:
    data = bytearray(b"before" + BATCH)
    stamp_append_time(data, 6, 2_000)
    header = read_header(data, 6)
    assert header.timestamp_type is TimestampType.APPEND
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 2_000)
    assert header.crc != read_header(BATCH).crc
    assert [record[1:3] for record in decode_records(data, 6)] == [(2_000, 1), (2_000, 1)]
    data[-2] ^= 1
    with pytest.raises(CorruptBatch):
        decode_records(data, 6)


def test_stamps_outside_the_format_are_bugs() -> None:
    data = bytearray(BATCH)
    with pytest.raises(AssertionError):
        stamp(data, 0, base_offset=-1, leader_epoch=0)
    with pytest.raises(AssertionError):
        stamp(data, 40, base_offset=0, leader_epoch=0)
    assert data == BATCH
    for outside in ({"base_offset": -1}, {"leader_epoch": -2}):
        with pytest.raises(AssertionError):
            place(replace(read_header(BATCH), **outside))


def test_a_route_sum_is_over_topic_id_partition_and_checksum() -> None:
    crc = read_header(BATCH).crc
    wanted = google_crc32c.value(TOPIC_ID + struct.pack(">II", 5, crc))
    assert route_sum(TOPIC_ID, 5, crc) == wanted
    others = {
        route_sum(TopicId(bytes(16)), 5, crc),
        route_sum(TOPIC_ID, 6, crc),
        route_sum(TOPIC_ID, 5, crc ^ 1),
    }
    assert wanted not in others


def test_a_stamp_leaves_the_route_sum_alone() -> None:
    data = bytearray(BATCH)
    stamp(data, 0, base_offset=77, leader_epoch=3)
    crc = read_header(data).crc
    assert route_sum(TOPIC_ID, 0, crc) == route_sum(TOPIC_ID, 0, read_header(BATCH).crc)


def test_a_fetch_sum_is_over_place_first_offset_and_all_bytes() -> None:
    crc = checksum(BATCH + BATCH)
    wanted = google_crc32c.value(TOPIC_ID + struct.pack(">IqI", 5, 1_000, crc))
    assert fetch_sum(TOPIC_ID, 5, 1_000, crc) == wanted
    assert fetch_sum(TOPIC_ID, 5, 1_001, crc) != wanted


def test_a_topic_id_of_another_length_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        route_sum(TopicId(b"short"), 0, 0)
    with pytest.raises(AssertionError):
        fetch_sum(TopicId(b"short"), 0, 0, 0)
