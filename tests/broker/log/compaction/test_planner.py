"""When a round is due, and what it takes."""

import msgspec
import pytest

from tests.broker.support.compaction_log import PARTITION
from tidelog.broker.log.compaction.contract import (
    OFFSETS_PER_SEGMENT_MAX,
    CompactArguments,
    CompactResult,
    Replacement,
    decode_arguments,
    decode_result,
    encode_arguments,
    encode_result,
)
from tidelog.broker.log.compaction.grouping import group_segments
from tidelog.broker.log.compaction.planner import (
    CompactionPlan,
    CompactionSettings,
    dirty_ratio,
    first_dirty_offset,
    plan_compaction,
)
from tidelog.broker.log.sidecar.contents import Replaced, Summary
from tidelog.wire.ids import Offset

HALF = CompactionSettings()


def segment(
    base_offset: int,
    next_offset: int,
    *,
    size_bytes: int = 100,
    max_timestamp: int = 50,
    cleaned_below: int = 0,
    tombstone_horizon_ms: int = -1,
) -> Summary:
    return Summary(
        topic_id=PARTITION.topic_id,
        partition=PARTITION.partition,
        base_offset=Offset(base_offset),
        generation=int(cleaned_below > 0),
        next_offset=Offset(next_offset),
        size_bytes=size_bytes,
        batch_count=1,
        record_count=next_offset - base_offset,
        max_timestamp=max_timestamp,
        max_timestamp_offset=base_offset,
        leader_epochs=(),
        cleaned_below=cleaned_below,
        tombstone_horizon_ms=tombstone_horizon_ms,
    )


def planned(
    segments: list[Summary],
    settings: CompactionSettings = HALF,
    *,
    now_ms: int = 1_000,
    bound_offset: int = 10**9,
    may_expire: bool = True,
) -> CompactionPlan | None:
    return plan_compaction(
        segments, settings, now_ms=now_ms, may_expire=may_expire, bound_offset=bound_offset
    )


def taken(plan: CompactionPlan | None) -> list[int]:
    assert plan is not None
    return [each.base_offset for each in plan.arguments.segments]


def test_the_dirty_part_begins_behind_the_leading_compacted_segments() -> None:
    clean = [segment(0, 10, cleaned_below=20), segment(10, 20, cleaned_below=20)]
    assert first_dirty_offset([]) == 0
    assert first_dirty_offset([segment(5, 9)]) == 5
    assert first_dirty_offset([*clean, segment(20, 30)]) == 20
    assert first_dirty_offset([*clean, segment(20, 30), segment(30, 40, cleaned_below=40)]) == 20


def test_the_dirty_part_begins_where_the_map_was_full() -> None:
    assert first_dirty_offset([segment(0, 10, cleaned_below=7), segment(10, 20)]) == 7


def test_segments_that_a_crash_left_from_an_earlier_round_are_compared_again() -> None:
    swapped, left = segment(0, 10, cleaned_below=30), segment(10, 20, cleaned_below=20)
    assert first_dirty_offset([swapped, left, segment(20, 30)]) == 20
    assert first_dirty_offset([left_of(swapped, 10), segment(10, 30, cleaned_below=30)]) == 10


def left_of(summary: Summary, cleaned_below: int) -> Summary:
    return msgspec.structs.replace(summary, cleaned_below=cleaned_below)


def test_a_round_is_due_from_the_dirty_ratio_on() -> None:
    clean = segment(0, 10, size_bytes=101, cleaned_below=10)
    assert planned([clean, segment(10, 20, size_bytes=100)]) is None
    plan = planned([clean, segment(10, 20, size_bytes=101)])
    assert plan is not None
    assert (taken(plan), plan.dirty_ratio, plan.is_overdue) == ([0, 10], 0.5, False)
    assert plan.arguments.first_dirty_offset == 10


def test_a_segment_that_is_dirty_from_its_middle_counts_in_part() -> None:
    assert dirty_ratio([segment(0, 10, cleaned_below=7)]) == pytest.approx(0.3)
    assert dirty_ratio([]) == 0.0


def test_nothing_at_or_above_the_bound_is_touched() -> None:
    segments = [segment(0, 10), segment(10, 20)]
    assert taken(planned(segments, bound_offset=20)) == [0, 10]
    assert taken(planned(segments, bound_offset=19)) == [0]
    assert planned(segments, bound_offset=9) is None
    assert planned([]) is None


def test_young_records_wait_for_the_least_lag() -> None:
    settings = CompactionSettings(min_compaction_lag_ms=100)
    segments = [segment(0, 10, max_timestamp=899), segment(10, 20, max_timestamp=901)]
    assert taken(planned(segments, settings)) == [0]
    assert taken(planned(segments, settings, now_ms=1_001)) == [0, 10]
    assert planned(segments, settings, now_ms=900) is None
    assert taken(planned([segment(0, 10, max_timestamp=2_000)], HALF)) == [0]


def test_an_old_dirty_record_is_compacted_whatever_the_ratio() -> None:
    settings = CompactionSettings(max_compaction_lag_ms=100)
    clean = segment(0, 10, size_bytes=10_000, cleaned_below=10)
    assert planned([clean, segment(10, 20, max_timestamp=900)], settings) is None
    plan = planned([clean, segment(10, 20, max_timestamp=899)], settings)
    assert plan is not None
    assert plan.is_overdue
    assert planned([clean, segment(10, 20, max_timestamp=-1)], settings) is None


def test_dead_tombstones_are_a_reason_one_retention_after_their_horizon() -> None:
    settings = CompactionSettings(delete_retention_ms=100)
    segments = [
        segment(0, 10, cleaned_below=20, size_bytes=1_000),
        segment(10, 20, cleaned_below=20, tombstone_horizon_ms=500, size_bytes=1_000),
        segment(20, 30),
    ]
    assert planned(segments, settings, now_ms=600) is None
    plan = planned(segments, settings, now_ms=601)
    assert plan is not None
    assert taken(plan) == [10]
    assert plan.arguments.first_dirty_offset == 20


def test_by_a_clock_that_is_not_trusted_no_age_is_a_reason() -> None:
    dead = [segment(0, 10, cleaned_below=10, tombstone_horizon_ms=500)]
    settings = CompactionSettings(delete_retention_ms=100, max_compaction_lag_ms=100)
    assert planned(dead, settings, now_ms=10_000) is not None
    assert planned(dead, settings, now_ms=10_000, may_expire=False) is None
    clean = segment(0, 10, cleaned_below=10, size_bytes=1_000)
    overdue = [clean, segment(10, 20, size_bytes=10, max_timestamp=1)]
    assert planned(overdue, settings, now_ms=10_000) is not None
    assert planned(overdue, settings, now_ms=10_000, may_expire=False) is None
    dirty = [segment(0, 10, max_timestamp=1)]
    plan = planned(dirty, settings, now_ms=10_000, may_expire=False)
    assert plan is not None, "its ratio is one"
    assert not plan.arguments.may_expire
    waiting = msgspec.structs.replace(settings, min_compaction_lag_ms=10)
    assert planned(dirty, waiting, now_ms=10_000, may_expire=False) is None


def test_tombstones_of_dirty_segments_wait_for_a_round_over_all() -> None:
    settings = CompactionSettings(delete_retention_ms=100)
    segments = [
        segment(0, 10, cleaned_below=10, size_bytes=1_000),
        segment(10, 20, cleaned_below=20, tombstone_horizon_ms=500),
    ]
    assert first_dirty_offset(segments) == 10
    assert planned(segments, settings, now_ms=10_000) is None


def test_segments_that_are_no_neighbours_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="does not begin where"):
        planned([segment(0, 10), segment(11, 20)])


def test_groups_are_bounded_in_bytes_and_in_offsets() -> None:
    segments = [segment(number * 10, number * 10 + 10) for number in range(5)]
    large = [*segments[:2], segment(20, 30, size_bytes=1_000), *segments[3:]]
    assert [len(group) for group in group_segments(segments, 200)] == [2, 2, 1]
    assert [len(group) for group in group_segments(large, 200)] == [2, 1, 2]
    assert [len(group) for group in group_segments(segments, 1)] == [1, 1, 1, 1, 1]
    wide = [segment(0, 10), segment(10, OFFSETS_PER_SEGMENT_MAX), segment(2**31 - 1, 2**31)]
    assert [len(group) for group in group_segments(wide, 10**9)] == [2, 1]
    assert group_segments([], 1) == []


def test_arguments_and_result_cross_a_process_boundary() -> None:
    arguments = CompactArguments(
        segments=(segment(0, 10),),
        first_dirty_offset=0,
        now_ms=5,
        delete_retention_ms=6,
        segment_bytes=7,
    )
    assert decode_arguments(encode_arguments(arguments)) == arguments
    made = msgspec.structs.replace(
        segment(0, 10, cleaned_below=10), replaces=(Replaced(Offset(0), 0), Replaced(Offset(5), 2))
    )
    result = CompactResult(replacements=(Replacement(made=made),), cleaned_below=10)
    decoded = decode_result(encode_result(result))
    assert decoded == result
    directory = f"{bytes(range(16)).hex()}-3"
    (replacement,) = decoded.replacements
    assert replacement.unfinished_log_path == f"{directory}/{0:020d}-00000001.log.new"
    assert replacement.unfinished_sidecar_path == f"{directory}/{0:020d}-00000001.sidecar.new"
    assert [each.path for each in replacement.removed] == [
        f"{directory}/{0:020d}.log",
        f"{directory}/{5:020d}-00000002.log",
    ]
