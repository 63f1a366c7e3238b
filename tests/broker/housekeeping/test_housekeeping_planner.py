"""What is due: retention, rolls by age, room, pauses, the order of background jobs. Pure."""

from collections.abc import Sequence

import msgspec
import pytest

from tidelog.broker.housekeeping.core.background import (
    Background,
    CompactDue,
    JobDue,
    Moment,
    ScrubDue,
    SealDue,
    target_of,
)
from tidelog.broker.housekeeping.core.free_space import FreeSpace
from tidelog.broker.housekeeping.core.limits import DAY_MS, HousekeepingLimits
from tidelog.broker.housekeeping.core.retention import NOTHING_DUE, Due, plan_retention
from tidelog.broker.housekeeping.core.retries import Retries
from tidelog.broker.housekeeping.core.scrub_round import ScrubRound
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

TOPIC_ID = TopicId(bytes([7]) * 16)
NOW = 1_700_000_000_000
HOUR = 60 * 60 * 1000
MIB = 1024 * 1024


class Held(msgspec.Struct, frozen=True):
    """A log and its topic's settings."""

    log: PartitionLog
    settings: TopicSettings = TopicSettings()


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of ten offsets as a test wants it."""

    age_ms: int | None = 0
    """Of its newest record; None: it has no times."""
    size_bytes: int = 100
    is_sealed: bool = True
    has_sidecar: bool = True
    cleaned_below: int = 0


def key_of(partition: int) -> PartitionKey:
    return PartitionKey(TOPIC_ID, PartitionId(partition))


def log_of(*made: Made, partition: int = 0, high_watermark: int | None = None) -> PartitionLog:
    """Ten offsets a segment; all below the watermark unless it is given."""
    log = PartitionLog(key_of(partition), LeaderEpoch(1))
    for place, each in enumerate(made):
        log.segments.append(segment_of(each, log.key, 10 * place))
    end = Offset(sum(10 for each in made if each.size_bytes))
    log.log_end_offset = log.flushed_offset = end
    log.high_watermark = end if high_watermark is None else Offset(high_watermark)
    return log


def segment_of(made: Made, key: PartitionKey, base_offset: int) -> Segment:
    generation = 1 if made.cleaned_below else 0
    segment = Segment(SegmentKey(key, Offset(base_offset), generation))
    segment.size_bytes = made.size_bytes
    segment.next_offset = Offset(base_offset + (10 if made.size_bytes else 0))
    segment.max_timestamp = -1 if made.age_ms is None else NOW - made.age_ms
    segment.first_timestamp = segment.max_timestamp
    if made.is_sealed:
        segment.seal(None)
        if made.has_sidecar:
            segment.take_summary(summary_of(segment, made.cleaned_below))
    return segment


def summary_of(segment: Segment, cleaned_below: int) -> Summary:
    return Summary(
        topic_id=segment.key.partition.topic_id,
        partition=segment.key.partition.partition,
        base_offset=segment.base_offset,
        generation=segment.key.generation,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        batch_count=1,
        record_count=10,
        max_timestamp=segment.max_timestamp,
        max_timestamp_offset=segment.base_offset,
        leader_epochs=(),
        cleaned_below=cleaned_below,
    )


ACTIVE = Made(is_sealed=False)
EMPTY = Made(is_sealed=False, size_bytes=0, age_ms=None)
OLD = Made(age_ms=2 * HOUR)
YOUNG = Made(age_ms=HOUR // 2)
TIMELESS = Made(age_ms=None)


def due_of(log: PartitionLog, *, active_since_ms: int | None = NOW, **settings: object) -> Due:
    topic = msgspec.structs.replace(TopicSettings(retention_ms=HOUR), **settings)
    return plan_retention(log, topic, now_ms=NOW, may_expire=True, active_since_ms=active_since_ms)


@pytest.mark.parametrize(
    ("made", "trim_to"),
    [
        ((OLD, OLD, YOUNG, ACTIVE), 20),
        ((OLD, YOUNG, OLD, ACTIVE), 10),
        ((YOUNG, OLD, OLD, ACTIVE), None),
        ((OLD, ACTIVE), 10),
        ((TIMELESS, OLD, ACTIVE), 20),
        ((TIMELESS, YOUNG, ACTIVE), None),
        ((OLD, TIMELESS, YOUNG, ACTIVE), 10),
        ((Made(age_ms=HOUR), ACTIVE), None),
        ((Made(age_ms=HOUR + 1), ACTIVE), 10),
        ((Made(age_ms=-HOUR), OLD, ACTIVE), None),
        ((), None),
        ((EMPTY,), None),
    ],
)
def test_by_time_segments_go_from_the_head_while_all_their_records_are_too_old(
    made: Sequence[Made], trim_to: int | None
) -> None:
    due = due_of(log_of(*made), active_since_ms=None)
    assert (due.trim_to, due.is_roll) == (trim_to, False)


def test_what_an_open_transaction_wrote_and_all_behind_it_is_kept() -> None:
    """A prepared one may be open for long: nobody is given its end without its beginning."""
    for first_offset, trim_to in ((5, None), (10, 10), (15, 10), (30, 30)):
        log = log_of(OLD, OLD, OLD, ACTIVE)
        log.transactions.begin(7, first_offset)
        assert due_of(log).trim_to == trim_to
        assert due_of(log, retention_ms=-1, retention_bytes=0).trim_to == trim_to


@pytest.mark.parametrize(
    ("retention_bytes", "trim_to", "trimmed_bytes"),
    [
        (400, None, 0),
        (399, None, 0),
        (300, 10, 100),
        (299, 10, 100),
        (101, 20, 200),
        (100, 30, 300),
    ],
)
def test_by_size_a_segment_goes_if_what_is_left_is_still_enough(
    retention_bytes: int, trim_to: int | None, trimmed_bytes: int
) -> None:
    due = due_of(log_of(YOUNG, YOUNG, YOUNG, ACTIVE), retention_bytes=retention_bytes)
    assert due == Due(
        trim_to=None if trim_to is None else Offset(trim_to), trimmed_bytes=trimmed_bytes
    )


def test_time_and_size_together_take_the_more_of_both() -> None:
    log = log_of(OLD, YOUNG, YOUNG, ACTIVE)
    assert due_of(log, retention_bytes=200).trim_to == 20
    assert due_of(log, retention_bytes=300).trim_to == 10
    assert due_of(log, retention_bytes=1_000).trim_to == 10


def test_nothing_above_the_high_watermark_goes() -> None:
    assert due_of(log_of(OLD, OLD, ACTIVE, high_watermark=19)).trim_to == 10
    assert due_of(log_of(OLD, OLD, ACTIVE, high_watermark=9)) == NOTHING_DUE
    assert due_of(log_of(YOUNG, YOUNG, ACTIVE, high_watermark=9), retention_bytes=0) == NOTHING_DUE


def test_an_active_segment_that_is_too_old_is_rolled_first_and_goes_then() -> None:
    old_active = Made(age_ms=2 * HOUR, is_sealed=False)
    due = due_of(log_of(OLD, old_active))
    assert (due.trim_to, due.is_roll) == (10, True)
    assert due_of(log_of(OLD, OLD)) == Due(trim_to=Offset(20), trimmed_bytes=200)
    assert due_of(log_of(old_active)) == Due(is_roll=True)
    assert due_of(log_of(OLD, EMPTY), active_since_ms=None).is_roll is False


def test_retention_without_bytes_rolls_the_active_segment_as_well() -> None:
    assert due_of(log_of(YOUNG, ACTIVE), retention_bytes=0) == Due(
        trim_to=Offset(10), trimmed_bytes=100, is_roll=True
    )


def test_without_a_limit_or_without_delete_nothing_goes() -> None:
    log = log_of(OLD, OLD, ACTIVE)
    assert due_of(log, retention_ms=-1) == NOTHING_DUE
    compacted = {"is_deleted": False, "is_compacted": True, "retention_bytes": 0}
    assert due_of(log, **compacted) == NOTHING_DUE
    assert due_of(log, is_compacted=True).trim_to == 20, "compact,delete"


def test_what_was_trimmed_already_is_not_trimmed_again() -> None:
    log = log_of(OLD, YOUNG, ACTIVE)
    log.log_start_offset = Offset(10)
    assert due_of(log) == NOTHING_DUE
    log.log_start_offset = Offset(4)
    assert due_of(log).trim_to == 10


def test_a_log_that_has_stopped_is_left_alone() -> None:
    log = log_of(OLD, ACTIVE)
    log.failure = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="read", happened="damage")
    assert due_of(log, active_since_ms=0) == NOTHING_DUE


@pytest.mark.parametrize(
    ("settings", "since_ms", "is_roll"),
    [
        ({"segment_ms": HOUR}, NOW - HOUR, True),
        ({"segment_ms": HOUR}, NOW - HOUR + 1, False),
        ({"segment_ms": HOUR}, None, False),
        ({"segment_ms": HOUR, "max_compaction_lag_ms": 5}, NOW - 10, False),
        ({"segment_ms": HOUR, "max_compaction_lag_ms": 5, "is_compacted": True}, NOW - 10, True),
    ],
)
def test_a_segment_is_closed_at_its_age(
    settings: dict[str, object], since_ms: int | None, is_roll: bool
) -> None:
    due = due_of(log_of(YOUNG, ACTIVE), active_since_ms=since_ms, **settings)
    assert (due.is_roll, due.trim_to) == (is_roll, None)


def test_the_floor_is_left_with_a_margin_only() -> None:
    space = FreeSpace(HousekeepingLimits(free_bytes_min=100, free_bytes_margin=20))
    seen = [(free, space.observe(free), space.is_full) for free in (100, 99, 100, 119, 120, 100, 0)]
    assert seen == [
        (100, False, False),
        (99, True, True),
        (100, False, True),
        (119, False, True),
        (120, True, False),
        (100, False, False),
        (0, True, True),
    ]


def test_room_for_a_compaction_keeps_away_from_the_floor() -> None:
    space = FreeSpace(HousekeepingLimits(free_bytes_min=100, free_bytes_margin=20))
    space.observe(1_000)
    assert space.has_room_for(880)
    assert not space.has_room_for(881)
    space.observe(50)
    assert not space.has_room_for(0)


def test_each_failure_doubles_the_pause_up_to_the_limit_and_a_success_ends_it() -> None:
    retries: Retries[str] = Retries(
        HousekeepingLimits(retry_backoff_ms=10, retry_backoff_max_ms=50)
    )
    now, pauses = 0, []
    for number in range(1, 6):
        assert retries.on_failure("a", now) == number
        pause = next(ms for ms in range(1_000) if retries.may_try("a", now + ms))
        pauses.append(pause)
        now += pause
    assert pauses == [10, 20, 40, 50, 50]
    assert retries.may_try("b", 0), "one target holds up no other"
    for _ in range(100):
        retries.on_failure("a", now)
    retries.on_success("a")
    assert retries.may_try("a", now)
    assert retries.on_failure("a", now) == 1
    retries.keep(lambda target: target == "b")
    assert len(retries) == 0


UNSEALED = Made(has_sidecar=False)
COMPACTED = TopicSettings(is_compacted=True, is_deleted=False)


def background(
    held: dict[PartitionKey, Held], *, free_bytes: int = 1 << 40, **limits: int
) -> Background:
    """Surveyed."""
    given = HousekeepingLimits(**{"scrub_interval_ms": 0, **limits})
    space = FreeSpace(given)
    space.observe(free_bytes)
    found = Background(given, space)
    survey(found, held)
    return found


def survey(found: Background, held: dict[PartitionKey, Held]) -> None:
    found.begin_survey()
    for each in held.values():
        found.survey(each, moment(NOW))
    found.end_survey(held)


def next_job(found: Background, held: dict[PartitionKey, Held], now_ms: int) -> JobDue | None:
    """As one loop would ask that does everything."""
    now = moment(now_ms)
    return found.next_seal(held, now) or found.next_upkeep(held, now)


def moment(now_ms: int) -> Moment:
    """By a clock that is right."""
    return Moment(wall_ms=now_ms, ticks_ms=now_ms, may_expire=True)


def held_of(*logs: PartitionLog, settings: TopicSettings | None = None) -> dict[PartitionKey, Held]:
    return {log.key: Held(log, settings or TopicSettings()) for log in logs}


def test_within_a_log_the_oldest_segment_without_a_sidecar_is_sealed_first() -> None:
    log = log_of(YOUNG, UNSEALED, YOUNG, UNSEALED, ACTIVE)
    held = held_of(log)
    found = background(held)
    due = next_job(found, held, NOW)
    assert due == SealDue(log.segments[1], log.segments[0])
    log.segments[1].take_summary(summary_of(log.segments[1], 0))
    assert next_job(found, held, NOW) == SealDue(log.segments[3], log.segments[2])
    log.segments[3].take_summary(summary_of(log.segments[3], 0))
    assert next_job(found, held, NOW) is None


def test_an_active_segment_is_never_sealed_and_a_first_one_has_none_before_it() -> None:
    assert next_job(background(held := held_of(log_of(ACTIVE))), held, NOW) is None
    log = log_of(UNSEALED, ACTIVE)
    assert next_job(background(held := held_of(log)), held, NOW) == SealDue(log.segments[0], None)


def test_sealing_goes_before_compaction_and_compaction_before_scrubbing() -> None:
    dirty, unsealed = log_of(YOUNG, ACTIVE), log_of(UNSEALED, ACTIVE, partition=1)
    held = held_of(dirty, unsealed, settings=COMPACTED)
    found = background(held, scrub_interval_ms=DAY_MS)
    order = []
    for _ in range(3):
        job = next_job(found, held, NOW)
        order.append(type(job))
        if isinstance(job, SealDue):
            unsealed.failure = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="t", happened="h")
    assert order == [SealDue, CompactDue, ScrubDue]


def test_the_dirtiest_log_is_compacted_first_and_an_overdue_one_before_it() -> None:
    clean = Made(cleaned_below=10)
    half = log_of(clean, YOUNG, ACTIVE, partition=0)
    whole = log_of(YOUNG, ACTIVE, partition=1)
    late = log_of(clean, clean, clean, Made(age_ms=5 * HOUR), ACTIVE, partition=2)
    settings = msgspec.structs.replace(
        COMPACTED, min_cleanable_dirty_ratio=0.4, max_compaction_lag_ms=4 * HOUR
    )
    held = held_of(half, whole, late, settings=settings)
    found = background(held)
    assert found.compactions_waiting == 3
    order = [next_job(found, held, NOW) for _ in range(3)]
    assert [job.log_key.partition for job in order if isinstance(job, CompactDue)] == [2, 1, 0]
    assert next_job(found, held, NOW) is None, "each once a survey"


def test_a_log_that_is_not_compacted_or_not_dirty_is_left() -> None:
    clean = log_of(Made(cleaned_below=10), ACTIVE)
    assert next_job(background(held := held_of(clean, settings=COMPACTED)), held, NOW) is None
    assert next_job(background(held := held_of(log_of(YOUNG, ACTIVE))), held, NOW) is None


def test_a_compaction_waits_for_its_sidecars_and_for_the_high_watermark() -> None:
    log = log_of(UNSEALED, YOUNG, ACTIVE)
    found = background(held := held_of(log, settings=COMPACTED))
    assert isinstance(next_job(found, held, NOW), SealDue)
    assert found.compactions_waiting == 0
    log = log_of(YOUNG, YOUNG, ACTIVE, high_watermark=15)
    job = next_job(background(held := held_of(log, settings=COMPACTED)), held, NOW)
    assert isinstance(job, CompactDue)
    assert [each.base_offset for each in job.arguments.segments] == [0]


def test_a_compaction_stays_below_the_last_stable_offset() -> None:
    log = log_of(Made(), Made(), Made(), ACTIVE)
    for first_offset, ends in ((5, None), (25, 20), (35, 30)):
        log.transactions.go_on_from([(7, first_offset)])
        due = next_job(background(held := held_of(log, settings=COMPACTED)), held, NOW)
        end = due.arguments.segments[-1].next_offset if isinstance(due, CompactDue) else None
        assert end == ends


def test_a_compaction_without_room_is_postponed() -> None:
    held = held_of(log_of(Made(size_bytes=MIB), ACTIVE), settings=COMPACTED)
    found = background(held, free_bytes=3 * MIB - 1, free_bytes_min=MIB, free_bytes_margin=MIB)
    assert next_job(found, held, NOW) is None
    assert found.compactions_postponed == 1
    roomy = background(held, free_bytes=3 * MIB, free_bytes_min=MIB, free_bytes_margin=MIB)
    assert isinstance(next_job(roomy, held, NOW), CompactDue)


def test_a_job_that_failed_pauses_and_the_other_logs_go_on() -> None:
    first, second = log_of(UNSEALED, ACTIVE), log_of(UNSEALED, ACTIVE, partition=1)
    held = held_of(first, second)
    found = background(held, retry_backoff_ms=100)
    job = next_job(found, held, NOW)
    assert job is not None
    assert job.log_key == first.key
    found.retries.on_failure(target_of(job), NOW)
    job = next_job(found, held, NOW)
    assert job is not None
    assert job.log_key == second.key
    survey(found, held)
    assert next_job(found, held, NOW + 99) == SealDue(second.segments[0], None)
    survey(found, held)
    assert next_job(found, held, NOW + 100) == SealDue(first.segments[0], None)


def test_a_damaged_sidecar_is_made_again_after_the_one_before_it() -> None:
    log = log_of(YOUNG, YOUNG, YOUNG, ACTIVE)
    held = held_of(log)
    found = background(held)
    found.seal_again(log.segments[2].key)
    found.seal_again(log.segments[1].key)
    assert found.seals_waiting == 2
    due = SealDue(log.segments[1], log.segments[0], True)
    assert next_job(found, held, NOW) == due
    assert next_job(found, held, NOW) == due, "until it is done"
    found.sealed(log.segments[1].key)
    assert next_job(found, held, NOW) == SealDue(log.segments[2], log.segments[1], True)
    del log.segments[:3]
    assert next_job(found, held, NOW) is None
    assert found.seals_waiting == 0


def test_what_is_gone_or_has_stopped_is_given_up() -> None:
    log = log_of(UNSEALED, ACTIVE)
    held = held_of(log)
    found = background(held)
    assert next_job(found, {}, NOW) is None
    survey(found, held)
    log.failure = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="read", happened="damage")
    assert next_job(found, held, NOW) is None


def scrubs(
    round_: ScrubRound, held: dict[PartitionKey, Held], start_ms: int, steps: int, step_ms: int
) -> list[tuple[int, int, int]]:
    """When which segments were due: step, partition, base offset."""
    found: list[tuple[int, int, int]] = []
    for step in range(steps):
        while (segment := round_.due(held, start_ms + step * step_ms)) is not None:
            found.append((step, segment.key.partition.partition, segment.base_offset))
            round_.done(segment)
    return found


ROUND_MS = 1_000
ROUND_START = NOW - NOW % ROUND_MS


def test_a_round_scrubs_every_sealed_segment_once_evenly_by_bytes() -> None:
    first = log_of(Made(size_bytes=100), Made(size_bytes=300), UNSEALED, ACTIVE)
    second = log_of(Made(size_bytes=600), ACTIVE, partition=1)
    held = held_of(second, first)
    round_ = ScrubRound(HousekeepingLimits(scrub_interval_ms=ROUND_MS))
    seen = scrubs(round_, held, ROUND_START, 20, 100)
    assert seen == [
        (0, 0, 0),
        (1, 0, 10),
        (4, 1, 0),
        (10, 0, 0),
        (11, 0, 10),
        (14, 1, 0),
    ]
    assert round_.rounds == 1


def test_a_node_that_starts_again_goes_on_where_the_time_is() -> None:
    held = held_of(*(log_of(Made(), ACTIVE, partition=number) for number in range(10)))
    seen = []
    for start in range(0, ROUND_MS, 250):
        round_ = ScrubRound(HousekeepingLimits(scrub_interval_ms=ROUND_MS))
        seen += [each[1] for each in scrubs(round_, held, ROUND_START + start, 25, 10)]
    assert set(seen) == set(range(10))
    assert len(seen) <= 14, "a start repeats at most one"


def test_what_was_trimmed_or_has_stopped_is_skipped_by_a_round() -> None:
    first, second = log_of(YOUNG, YOUNG, ACTIVE), log_of(YOUNG, ACTIVE, partition=1)
    third = log_of(YOUNG, ACTIVE, partition=2)
    held = held_of(first, second, third)
    round_ = ScrubRound(HousekeepingLimits(scrub_interval_ms=ROUND_MS))
    segment = round_.due(held, ROUND_START)
    assert segment is first.segments[0]
    round_.done(segment)
    del first.segments[:2]
    second.failure = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="read", happened="damage")
    assert round_.due(held, ROUND_START + 999) is third.segments[0]
    assert 0.2 < round_.share_seen < 0.3


def test_without_an_interval_nothing_is_scrubbed() -> None:
    round_ = ScrubRound(HousekeepingLimits(scrub_interval_ms=0))
    assert round_.due(held_of(log_of(YOUNG, ACTIVE)), NOW) is None
