"""Which offsets a batch reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.offsets import Progress, TopicProgress
from tidelog.spark.planning import (
    check_nothing_lost,
    has_new_partitions,
    limit_rows,
    never_back,
    plan_ranges,
    split_ranges,
    with_new_partitions,
)
from tidelog.wire.errors import ErrorCode, TidelogError

OLD, NEW = "aa" * 16, "bb" * 16


def at(offsets: dict[int, int], topic_id: str = OLD, epoch: int = 0) -> Progress:
    """One topic, `orders`, at these offsets."""
    return {
        "orders": TopicProgress(
            topic_id=topic_id, offsets=offsets, leader_epochs=dict.fromkeys(offsets, epoch)
        )
    }


def test_nothing_is_planned_between_equal_positions() -> None:
    assert plan_ranges(at({0: 5}), at({0: 5})) == []


def test_each_partition_is_read_from_its_start_to_its_end() -> None:
    ranges = plan_ranges(at({0: 5, 1: 2}), at({0: 9, 1: 2}))
    assert [(span.partition, span.start, span.end) for span in ranges] == [(0, 5, 9)]


def test_a_new_partition_begins_at_its_first_kept_record() -> None:
    start, end = at({0: 5}), at({0: 5, 1: 9})
    assert has_new_partitions(start, end)
    complete = with_new_partitions(start, at({0: 1, 1: 4}))
    assert complete["orders"].offsets == {0: 5, 1: 4}


def test_a_topic_created_again_begins_anew() -> None:
    start, end = at({0: 500}), at({0: 3}, NEW)
    assert has_new_partitions(start, end)
    complete = with_new_partitions(start, at({0: 0}, NEW))
    assert [span.length for span in plan_ranges(complete, never_back(complete, end))] == [3]


def test_a_topic_created_again_is_lost_data() -> None:
    with pytest.raises(TidelogError, match="created again") as caught:
        check_nothing_lost(at({0: 5}), at({0: 9}, NEW))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_an_end_that_moved_back_is_lost_data() -> None:
    with pytest.raises(TidelogError, match="ends at 4 now"):
        check_nothing_lost(at({0: 5}), at({0: 4}))


def test_an_end_never_moves_back() -> None:
    assert never_back(at({0: 5}), at({0: 4}, epoch=2))["orders"].offsets == {0: 5}


def test_a_new_leader_alone_is_no_news() -> None:
    assert never_back(at({0: 5}, epoch=1), at({0: 5}, epoch=2)) == at({0: 5}, epoch=1)


offset_maps = st.dictionaries(st.integers(0, 6), st.tuples(st.integers(0, 99), st.integers(0, 99)))


@given(offset_maps, st.integers(1, 50))
def test_a_limit_is_kept_and_something_moves(
    spans: dict[int, tuple[int, int]], max_rows: int
) -> None:
    start = at({number: low for number, (low, _) in spans.items()})
    latest = at({number: low + extra for number, (low, extra) in spans.items()})
    available = sum(span.length for span in plan_ranges(start, latest))
    limited = limit_rows(start, latest, max_rows)
    planned = sum(span.length for span in plan_ranges(start, limited))
    assert planned <= max_rows
    assert planned == min(available, max_rows) or planned >= 1
    for number, offset in limited["orders"].offsets.items():
        assert start["orders"].offsets[number] <= offset <= latest["orders"].offsets[number]


@given(offset_maps, st.integers(1, 30))
def test_splitting_loses_and_repeats_nothing(
    spans: dict[int, tuple[int, int]], min_partitions: int
) -> None:
    start = at({number: low for number, (low, _) in spans.items()})
    latest = at({number: low + extra for number, (low, extra) in spans.items()})
    whole = plan_ranges(start, latest)
    pieces = split_ranges(whole, min_partitions)
    covered = sorted(
        (piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)
    )
    assert covered == [
        (span.partition, offset) for span in whole for offset in range(span.start, span.end)
    ]
