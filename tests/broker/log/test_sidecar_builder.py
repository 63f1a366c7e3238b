"""What is derived from a segment: a function of its bytes, and only of undamaged ones."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.segment_bytes import (
    PARTITION,
    Batch,
    batch_bytes,
    batches,
    headers_of,
    markers_in,
    segment_bytes,
    segment_key,
)
from tidelog.broker.log.index import SparseIndex
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.producer_state import EXPIRATION_MS, ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.codec import PRODUCERS, check_section, find_section
from tidelog.broker.log.sidecar.contents import DIGEST_BYTES, NEVER_MS, Section, Summary
from tidelog.broker.log.sidecar.digests import DigestStream, digest_of
from tidelog.broker.log.sidecar.index import INDEX, encode_index
from tidelog.wire.batch import BATCH_BYTES_MAX, checksum
from tidelog.wire.errors import ErrorCode, TidelogError

KEY = segment_key(40)
FACTS = SegmentFacts(key=KEY)


def made(
    data: bytes,
    facts: SegmentFacts = FACTS,
    *,
    cuts: Sequence[int] = (),
    before: ProducerState | None = None,
) -> tuple[Summary, bytes]:
    """The sidecar of these bytes, fed in pieces."""
    builder = SidecarBuilder(facts, before)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        builder.feed(data[start:end])
    return builder.finish()


def happened(data: bytes, facts: SegmentFacts = FACTS) -> str:
    """What is said of the damage, behind the file's name."""
    with pytest.raises(TidelogError) as raised:
        made(data, facts, cuts=range(0, len(data), 100))
    assert raised.value.code is ErrorCode.STORAGE_CORRUPT
    assert raised.value.tried == f"verify {facts.key.path}"
    return raised.value.happened


def part_of(data: bytes, section: Section) -> bytes:
    return data[section.byte_position : section.byte_position + section.length_bytes]


@settings(max_examples=60)
@given(stored=batches(max_gap=3), cuts=st.lists(st.integers(0, 10**6), max_size=30))
def test_a_segment_in_any_pieces_gives_the_same_bytes(stored: list[Batch], cuts: list[int]) -> None:
    data = segment_bytes(stored, base_offset=40)
    facts = msgspec.structs.replace(FACTS, is_contiguous=False)
    whole = made(data, facts)
    assert made(data, facts, cuts=cuts) == whole


def test_a_segment_byte_by_byte_gives_the_same_bytes() -> None:
    data = segment_bytes([Batch(records=2, producer_id=4), Batch(), Batch(value_bytes=300)])
    facts = SegmentFacts(key=segment_key())
    assert made(data, facts, cuts=range(len(data))) == made(data, facts)


@settings(max_examples=60)
@given(stored=batches())
def test_the_summary_is_what_a_plain_reading_of_the_headers_says(stored: list[Batch]) -> None:
    data = segment_bytes(stored, base_offset=40)
    headers = headers_of(data)
    summary, _ = made(data)
    assert summary.key == KEY
    assert summary.next_offset == (headers[-1].next_offset if headers else 40)
    assert summary.size_bytes == len(data)
    assert summary.batch_count == len(headers)
    assert summary.record_count == sum(each.record_count for each in headers)
    highest = max((each.max_timestamp for each in headers), default=-1)
    assert summary.max_timestamp == highest
    holders = [each.base_offset for each in headers if each.max_timestamp == highest]
    assert summary.max_timestamp_offset == (holders[0] if holders else -1)
    assert [start.epoch for start in summary.leader_epochs] == sorted(
        {each.leader_epoch for each in headers}
    )
    assert not summary.is_compacted


@settings(max_examples=60)
@given(stored=batches())
def test_index_and_producers_are_equal_to_the_live_ones(stored: list[Batch]) -> None:
    data = segment_bytes(stored, base_offset=40)
    index, producers, position = SparseIndex(), ProducerState(), 0
    for header, marker in zip(headers_of(data), markers_in(data), strict=True):
        index.add(header.base_offset, position, header.max_timestamp)
        producers.note(header, marker)
        position += header.size_bytes
    producers.expire()
    summary, sidecar = made(data)
    assert find_section(summary, INDEX).checksum == checksum(encode_index(KEY, index.entries())[0])
    section = find_section(summary, PRODUCERS)
    assert section.checksum == checksum(producers.encode())
    stored_state = check_section(KEY, section, part_of(sidecar, section))
    assert ProducerState.decode(stored_state) == producers


@settings(max_examples=50)
@given(first=batches(max_size=10), second=batches(max_size=10))
def test_a_segment_goes_on_where_the_sidecar_before_ends(
    first: list[Batch], second: list[Batch]
) -> None:
    steps = sum(each.leader_epoch_step for each in first)
    before, data = made(segment_bytes(first, base_offset=40))
    section = find_section(before, PRODUCERS)
    state = ProducerState.decode(part_of(data, section))
    following = segment_key(before.next_offset)
    more = segment_bytes(second, base_offset=before.next_offset, leader_epoch=steps)
    facts = SegmentFacts(key=following, epochs_before=before.leader_epochs)
    after, data = made(more, facts, before=state)
    both, whole = made(segment_bytes([*first, *second], base_offset=40))
    assert after.leader_epochs == both.leader_epochs
    assert after.next_offset == both.next_offset
    assert part_of(data, find_section(after, PRODUCERS)) == part_of(
        whole, find_section(both, PRODUCERS)
    )


def test_what_came_before_is_not_changed() -> None:
    before = ProducerState()
    made(segment_bytes([Batch(producer_id=1)], base_offset=40), before=before)
    assert before == ProducerState()


def test_producers_are_expired_behind_the_last_batch() -> None:
    old = Batch(producer_id=1, timestamp=0)
    summary, data = made(segment_bytes([old, Batch(timestamp=EXPIRATION_MS)], base_offset=40))
    state = ProducerState.decode(part_of(data, find_section(summary, PRODUCERS)))
    assert state.find(1) is None
    assert state.log_time_ms == EXPIRATION_MS


def test_a_segment_without_a_batch_has_a_sidecar() -> None:
    summary, _ = made(b"")
    assert (summary.next_offset, summary.size_bytes, summary.batch_count) == (40, 0, 0)
    assert (summary.max_timestamp, summary.max_timestamp_offset) == (-1, -1)


@settings(max_examples=50)
@given(stored=batches(max_gap=3))
def test_gaps_are_damage_unless_they_are_allowed(stored: list[Batch]) -> None:
    data = segment_bytes(stored, base_offset=40)
    facts = msgspec.structs.replace(FACTS, is_contiguous=False)
    assert made(data, facts)[0].batch_count == len(stored)
    if any(each.gap for each in stored):
        assert "its base offset is" in happened(data)


def test_offsets_that_overlap_are_damage_also_where_gaps_are_allowed() -> None:
    data = batch_bytes(Batch(records=3), 40) + batch_bytes(Batch(), 42)
    facts = msgspec.structs.replace(FACTS, is_contiguous=False)
    assert happened(data, facts).endswith("its base offset is 42, not 43")
    assert "its base offset is 39, not 40" in happened(batch_bytes(Batch(), 39), facts)


def test_leader_epochs_that_fall_or_come_from_the_future_are_damage() -> None:
    data = batch_bytes(Batch(), 40, leader_epoch=5) + batch_bytes(Batch(), 41, leader_epoch=4)
    first_bytes = len(data) // 2
    assert happened(data) == (
        f"damage at byte {first_bytes}: its leader epoch is 4, not from 5 to {2**31 - 1}"
    )
    facts = msgspec.structs.replace(FACTS, leader_epoch_max=4)
    assert happened(data, facts).startswith("damage at byte 0: its leader epoch is 5")
    facts = msgspec.structs.replace(FACTS, epochs_before=(EpochStart(6, 0),))
    assert "its leader epoch is 5, not from 6" in happened(data, facts)


def test_a_segment_that_ends_elsewhere_is_damaged() -> None:
    data = batch_bytes(Batch(records=2), 40)
    assert made(data, msgspec.structs.replace(FACTS, next_offset=42))[0].next_offset == 42
    assert happened(data, msgspec.structs.replace(FACTS, next_offset=43)) == (
        f"damage at byte {len(data)}: it ends at offset 42, not 43"
    )


def test_every_flipped_bit_of_a_segment_is_found_or_told_by_a_digest() -> None:
    batches_there = [Batch(records=2, producer_id=4, leader_epoch_step=1), Batch(records=3)]
    data = segment_bytes(batches_there, base_offset=40)
    digests = digests_of(data)
    missed = []
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        builder = SidecarBuilder(msgspec.structs.replace(FACTS, next_offset=45))
        try:
            builder.feed(bytes(flipped))
            builder.finish()
        except TidelogError:
            continue
        missed.append(bit // 8)
        assert builder.digests != digests
    # Only a later leader epoch of the last batches, which no checksum of theirs covers.
    first_bytes = headers_of(data)[0].size_bytes
    assert set(missed) <= {*range(12, 16), *range(first_bytes + 12, first_bytes + 16)}


def digests_of(data: bytes) -> list[int]:
    return [
        digest_of(PARTITION, start, data[start : start + DIGEST_BYTES])
        for start in range(0, len(data), DIGEST_BYTES)
    ]


def test_every_cut_of_a_segment_is_found() -> None:
    data = segment_bytes([Batch(records=2), Batch(records=3)], base_offset=40)
    for length in range(len(data)):
        facts = msgspec.structs.replace(FACTS, next_offset=45)
        assert happened(data[:length], facts).startswith("damage at byte ")
    assert "the batch is cut off after 11 bytes" in happened(data[:11])
    assert "the batch is cut off after 1 bytes" in happened(data + b"\x00")


def test_a_length_beyond_all_batches_is_damage_at_once() -> None:
    data = bytearray(batch_bytes(Batch(), 40))
    data[8:12] = (BATCH_BYTES_MAX).to_bytes(4, "big")
    builder = SidecarBuilder(FACTS)
    with pytest.raises(TidelogError, match="damage at byte 0: it has"):
        builder.feed(bytes(data))


@given(
    cuts=st.lists(st.integers(0, 200_000), max_size=12),
    length=st.sampled_from([0, 1, DIGEST_BYTES - 1, DIGEST_BYTES, DIGEST_BYTES + 1, 200_000]),
)
def test_digests_of_pieces_are_those_of_the_whole(cuts: list[int], length: int) -> None:
    data = bytes(range(256)) * 800
    data = data[:length]
    stream = DigestStream(PARTITION)
    places = sorted({0, length, *(cut % (length + 1) for cut in cuts)})
    for start, end in pairwise(places):
        stream.feed(data[start:end])
    assert stream.finish() == digests_of(data)


HORIZON_BIT = 1 << 6


def with_horizon(data: bytes, horizon_ms: int) -> bytes:
    """The batch as compaction leaves it: the base timestamp is the delete horizon."""
    changed = bytearray(data)
    changed[21:23] = HORIZON_BIT.to_bytes(2, "big")
    changed[27:35] = horizon_ms.to_bytes(8, "big")
    changed[17:21] = checksum(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def test_the_tombstone_horizon_is_the_earliest_of_all_batches() -> None:
    facts = msgspec.structs.replace(FACTS, is_contiguous=False, cleaned_below=60)
    plain = batch_bytes(Batch(), 40)
    assert made(plain, facts)[0].tombstone_horizon_ms == NEVER_MS
    data = (
        plain
        + with_horizon(batch_bytes(Batch(), 45), 900)
        + with_horizon(batch_bytes(Batch(), 50), 700)
        + with_horizon(batch_bytes(Batch(), 55), 800)
    )
    summary, _ = made(data, facts)
    assert summary.tombstone_horizon_ms == 700
    assert summary.is_compacted


def emptied(data: bytes) -> bytes:
    """The batch as compaction leaves it when all of its records are gone."""
    changed = bytearray(data[:61])
    changed[8:12] = (61 - 12).to_bytes(4, "big")
    changed[57:61] = bytes(4)
    changed[17:21] = checksum(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def test_a_batch_without_records_counts_for_offsets_and_not_for_time() -> None:
    facts = msgspec.structs.replace(FACTS, is_contiguous=False, cleaned_below=60)
    data = batch_bytes(Batch(timestamp=5), 41) + emptied(batch_bytes(Batch(records=4), 50))
    summary, _ = made(data, facts)
    assert (summary.next_offset, summary.record_count, summary.batch_count) == (54, 1, 2)
    assert (summary.max_timestamp, summary.max_timestamp_offset) == (5, 41)


def test_a_compacted_segment_keeps_the_epochs_of_batches_that_were_dropped() -> None:
    history = (EpochStart(0, 0), EpochStart(2, 41), EpochStart(5, 44))
    facts = msgspec.structs.replace(
        FACTS, is_contiguous=False, cleaned_below=60, epochs_at_end=history
    )
    data = batch_bytes(Batch(), 42, leader_epoch=2) + batch_bytes(Batch(), 50, leader_epoch=5)
    assert made(data, facts)[0].leader_epochs == history
    assert happened(batch_bytes(Batch(), 42, leader_epoch=5), facts) == (
        "damage at byte 0: its leader epoch is 5, the one of its offset is 2"
    )


def test_a_history_may_begin_behind_the_first_batches_of_a_compacted_segment() -> None:
    facts = msgspec.structs.replace(
        FACTS,
        is_contiguous=False,
        epochs_at_end=(EpochStart(2, 43), EpochStart(5, 44)),
    )
    last = batch_bytes(Batch(), 50, leader_epoch=5)
    data = batch_bytes(Batch(), 41, leader_epoch=1) + batch_bytes(Batch(), 42, leader_epoch=2)
    assert made(data + last, facts)[0].leader_epochs == (
        EpochStart(1, 41),
        EpochStart(2, 42),
        EpochStart(5, 44),
    )
    assert happened(batch_bytes(Batch(), 41, leader_epoch=5) + last, facts) == (
        "damage at byte 0: its leader epoch is 5, the one of its offset is -1"
    )
    unknown = msgspec.structs.replace(facts, epochs_at_end=())
    assert made(last, unknown)[0].leader_epochs == (EpochStart(5, 50),)
