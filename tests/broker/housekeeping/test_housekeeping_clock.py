"""What housekeeping does by a clock that is not one to delete by, and after it was put right."""

from tests.broker.housekeeping.test_housekeeping_planner import (
    ACTIVE,
    EMPTY,
    HOUR,
    NOW,
    OLD,
    Made,
    log_of,
    segment_of,
)
from tidelog.broker.housekeeping.core.retention import NOTHING_DUE, ActiveSegments, plan_retention
from tidelog.metadata.settings.of_topics import TopicSettings


def test_by_a_clock_that_is_not_trusted_nothing_goes_by_time_and_all_that_is_due_by_size() -> None:
    log = log_of(OLD, OLD, OLD, ACTIVE)
    topic = TopicSettings(retention_ms=HOUR)
    assert (
        plan_retention(log, topic, now_ms=NOW, may_expire=False, active_since_ms=None)
        == NOTHING_DUE
    )
    small = TopicSettings(retention_ms=HOUR, retention_bytes=200)
    due = plan_retention(log, small, now_ms=NOW, may_expire=False, active_since_ms=None)
    assert due.trim_to == 20


def test_a_segment_that_was_first_seen_by_a_clock_ahead_is_rolled_in_its_time_all_the_same() -> (
    None
):
    log, seen = log_of(EMPTY), ActiveSegments()
    assert seen.since(log, NOW + 100 * HOUR) is None
    log = log_of(ACTIVE)
    assert seen.since(log, NOW + 100 * HOUR) == NOW + 100 * HOUR
    assert seen.since(log, NOW) == NOW, "the clock was put right"
    assert seen.since(log, NOW + HOUR) == NOW


def test_an_active_segment_is_as_old_as_its_first_record_at_a_start_and_its_first_sight_later() -> (
    None
):
    active = ActiveSegments()
    log = log_of(Made(age_ms=2 * HOUR, is_sealed=False))
    assert active.since(log, NOW) == NOW - 2 * HOUR
    assert active.since(log, NOW + 5) == NOW - 2 * HOUR
    log.segments[-1].seal(None)
    assert active.since(log, NOW + 6) is None
    log.segments.append(segment_of(EMPTY, log.key, 10))
    assert active.since(log, NOW + 7) is None
    log.segments[-1].size_bytes, log.segments[-1].first_timestamp = 1, NOW - 9 * HOUR
    assert active.since(log, NOW + 8) == NOW + 8, "old records do not make it old"
    fresh = log_of(EMPTY, partition=1)
    assert active.since(fresh, NOW) is None
    fresh.segments[-1].size_bytes, fresh.segments[-1].first_timestamp = 1, NOW - HOUR
    assert active.since(fresh, NOW + 1) == NOW + 1
    active.keep(lambda key: key == fresh.key)
    assert len(active) == 1
