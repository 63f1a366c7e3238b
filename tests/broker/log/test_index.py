"""The sparse index: every lookup lands on the start of a batch that is not too far."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.log.index import INTERVAL_BYTES, SparseIndex
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.blocks import block_seed, frame_blocks
from tidelog.broker.log.sidecar.index import INDEX, encode_index
from tidelog.wire.ids import Offset, PartitionId, PartitionKey, TopicId

BATCHES = st.lists(
    st.tuples(st.integers(61, 9_000), st.integers(1, 50), st.integers(0, 1_000)),
    min_size=1,
    max_size=60,
)
"""Bytes, records, highest timestamp."""


def build(batches: list[tuple[int, int, int]]) -> tuple[SparseIndex, list[tuple[int, int, int]]]:
    """The index, and (base offset, byte position, highest timestamp) of every batch."""
    index, placed = SparseIndex(), []
    offset = position = 0
    for size_bytes, records, max_timestamp in batches:
        index.add(offset, position, max_timestamp)
        placed.append((offset, position, max_timestamp))
        offset += records
        position += size_bytes
    return index, placed


@given(batches=BATCHES, wanted=st.integers(0, 3_000))
def test_a_floor_is_a_batch_at_or_below_with_no_entry_between(
    batches: list[tuple[int, int, int]], wanted: int
) -> None:
    index, placed = build(batches)
    place = index.floor(wanted)
    assert (place.base_offset, place.byte_position) in [each[:2] for each in placed]
    holder = max(each for each in placed if each[0] <= wanted)
    assert place.base_offset <= holder[0]
    assert holder[1] - place.byte_position < INTERVAL_BYTES


@given(batches=BATCHES, wanted=st.integers(0, 600_000))
def test_a_floor_by_position_is_the_start_of_a_batch(
    batches: list[tuple[int, int, int]], wanted: int
) -> None:
    index, placed = build(batches)
    place = index.floor_of_position(wanted)
    assert (place.base_offset, place.byte_position) in [each[:2] for each in placed]
    assert place.byte_position <= wanted


@given(batches=BATCHES, time_ms=st.integers(0, 1_001))
def test_nothing_below_a_floor_by_time_is_at_or_after_the_time(
    batches: list[tuple[int, int, int]], time_ms: int
) -> None:
    index, placed = build(batches)
    place = index.floor_of_time(time_ms)
    below = [each for each in placed if each[1] < place.byte_position]
    assert all(max_timestamp < time_ms for _, _, max_timestamp in below)


@given(batches=BATCHES)
def test_an_index_rebuilt_from_the_same_batches_is_equal(
    batches: list[tuple[int, int, int]],
) -> None:
    assert build(batches)[0].entries() == build(batches)[0].entries()


@given(batches=BATCHES)
def test_packed_entries_are_those_of_a_sidecar(batches: list[tuple[int, int, int]]) -> None:
    index, _ = build(batches)
    key = SegmentKey(PartitionKey(TopicId(bytes(16)), PartitionId(0)), Offset(0))
    blocks = frame_blocks(block_seed(key, INDEX), index.packed())
    assert blocks == encode_index(key, index.entries())[0]


def test_which_batches_get_an_entry_is_pinned() -> None:
    index, _ = build([(1_000, 1, 5), (3_000, 1, 9), (200, 1, 7), (5_000, 1, 8), (100, 1, 20)])
    assert index.entries() == [(0, 0, -1), (3, 4_200, 9), (4, 9_200, 9)]
    assert index.max_timestamp == 20
