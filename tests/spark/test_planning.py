"""Which offsets a batch reads."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.client import TopicPartition
from tidelog.spark.offsets import Progress, TopicProgress
from tidelog.spark.planning import (
    capped,
    compare,
    limit_rows,
    never_back,
    new_partitions,
    plan_ranges,
    split_ranges,
    to_compare,
)
from tidelog.wire.errors import ErrorCode

OLD, NEW = "aa" * 16, "bb" * 16


def at(offsets: dict[int, int], topic_id: str = OLD, epoch: int = 0) -> Progress:
    """One topic, `orders`, at these offsets."""
    return {
        "orders": TopicProgress(
            topic_id=topic_id,
            offsets=offsets,
            leader_epochs=dict.fromkeys(offsets, epoch),
        )
    }


def test_nothing_is_planned_between_equal_positions() -> None:
    assert plan_ranges(at({0: 5}), at({0: 5})) == []


def test_each_partition_is_read_from_its_start_to_its_end() -> None:
    ranges = plan_ranges(at({0: 5, 1: 2}), at({0: 9, 1: 2}))
    assert [(span.partition, span.start, span.end) for span in ranges] == [(0, 5, 9)]


def test_a_partition_that_the_start_does_not_know_is_read_from_its_beginning() -> None:
    ranges = plan_ranges(at({0: 5}), at({0: 5, 1: 9}))
    assert [(span.partition, span.start, span.end) for span in ranges] == [(1, 0, 9)]


def test_positions_of_a_topic_say_nothing_of_its_namesake() -> None:
    ranges = plan_ranges(at({0: 500}), at({0: 3}, NEW))
    assert [(span.topic_id, span.start, span.end) for span in ranges] == [(NEW, 0, 3)]


def test_new_partitions_are_those_that_the_start_does_not_know() -> None:
    assert new_partitions(at({0: 5}), at({0: 5, 1: 4})) == at({1: 4})
    assert new_partitions(at({0: 5}), at({0: 3}, NEW)) == at({0: 3}, NEW)


def test_a_range_knows_the_latest_leader_epoch_that_may_be_in_it() -> None:
    [span] = plan_ranges(at({0: 5}, epoch=1), at({0: 9}, epoch=4))
    assert span.leader_epoch == 4


def test_leaders_are_asked_only_if_the_epoch_of_the_last_record_has_changed() -> None:
    assert to_compare(at({0: 5}, epoch=1), at({0: 9}, epoch=1)) == {}
    asked = to_compare(at({0: 5}, epoch=1), at({0: 9}, epoch=2))
    assert asked == {TopicPartition("orders", 0): (5, 1)}
    assert to_compare(at({0: 0}, epoch=1), at({0: 9}, epoch=2)) == {}


def test_a_topic_created_again_is_lost_data() -> None:
    [loss] = compare(at({0: 5}), at({0: 9}, NEW), {}).losses
    assert loss.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert "created again" in loss.happened


def test_an_end_that_moved_back_is_lost_data() -> None:
    found = compare(at({0: 5}), at({0: 4}, epoch=2), {})
    assert "truncated at offset 4" in found.losses[0].happened
    assert found.restarts == at({0: 4}, epoch=2)


def test_an_available_now_run_ends_where_it_began_to() -> None:
    assert capped(at({0: 9, 1: 3, 2: 1}), at({0: 5, 1: 7}))["orders"].offsets == {0: 5, 1: 3}
    assert capped(at({0: 9}, NEW), at({0: 5})) == {}


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
