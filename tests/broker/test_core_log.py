"""The core of a data directory: rolls, seals, trims, cuts, replacements, removals, lazy flushes."""

import msgspec
import pytest

from tests.broker.core_model import CoreModel, failure, key_of, mark
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.marks import MarkKind
from tidelog.broker.partition.messages import (
    Acknowledge,
    AddPartition,
    Configure,
    Done,
    FailPartition,
    FlushAll,
    Refuse,
    RemovePartition,
    ReplaceSegments,
    RollSegment,
    SegmentSealed,
    SetFull,
    Tick,
)
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset

REPLICATED = TopicSettings(is_flush_sync=False)


def code_of(model: CoreModel, token: int) -> ErrorCode | None:
    """None: it was done."""
    answer = model.answers[token]
    return answer.error.code if isinstance(answer, Refuse) else None


def bases(model: CoreModel, partition: int = 0) -> list[int]:
    return [segment.base_offset for segment in model.log(partition).segments]


def filled(count: int, *, partition: int = 0, roll_every: int = 2) -> CoreModel:
    """A model with `count` records in segments of `roll_every`, all durable."""
    model = CoreModel()
    for number in range(count):
        if number and number % roll_every == 0:
            model.roll(partition)
            model.drain()
        model.append(partition)
        model.drain()
    return model


# -- roll --------------------------------------------------------------------------------------


def test_a_segment_takes_no_batch_that_is_later_than_its_first_by_more_than_its_age() -> None:
    model = CoreModel(topic=TopicSettings(segment_ms=1_000))
    for timestamp in (5_000, 6_000, 4_000, 6_001, 7_001, 7_002):
        model.append(timestamp=timestamp)
        model.drain()
    assert bases(model) == [0, 3, 5]


def test_batches_of_one_write_that_would_make_a_segment_too_old_go_to_the_next_one() -> None:
    model = CoreModel(topic=TopicSettings(segment_ms=1_000))
    model.append(timestamp=1)
    for timestamp in (5_000, 6_000, 6_001):
        model.append(timestamp=timestamp)
    model.drain()
    assert bases(model) == [0, 1, 3]
    assert sorted(model.answers) == [0, 1, 2, 3]


def test_age_is_counted_in_append_time_where_that_is_stamped() -> None:
    model = CoreModel(topic=TopicSettings(segment_ms=1_000, is_append_time=True))
    for timestamp in (1, 9_000):
        model.append(timestamp=timestamp)
        model.drain()
    assert bases(model) == [0]
    assert model.log().segments[0].max_timestamp == 5


def test_a_roll_that_is_asked_for_makes_an_empty_segment_once_the_active_one_is_flushed() -> None:
    model = CoreModel()
    model.append()
    model.end_write()
    model.roll()
    held = model.append()
    assert bases(model) == [0]
    model.end_flush()
    assert model.write is not None
    assert [(each.segment.base_offset, each.is_new) for each in model.write.writes] == [(1, True)]
    model.drain()
    assert bases(model) == [0, 1]
    answer = model.answers[held]
    assert isinstance(answer, Acknowledge)
    assert answer.base_offset == 1


def test_an_idle_log_rolls_to_an_empty_segment_and_an_empty_one_does_not_roll() -> None:
    model = filled(1)
    for _ in range(3):
        model.roll()
        model.drain()
    assert bases(model) == [0, 1]
    assert model.core.is_idle
    model.append()
    model.drain()
    assert bases(model) == [0, 1]


def test_a_roll_is_not_starved_by_a_steady_stream() -> None:
    model = CoreModel()
    model.append()
    model.end_write()
    model.roll()
    for _ in range(10):
        model.append()
        if model.write is not None:
            model.end_write()
        model.end_flush()
        if len(bases(model)) > 1:
            break
    assert len(bases(model)) == 2


def test_producers_are_forgotten_at_a_roll_by_the_time_of_the_log() -> None:
    model = CoreModel()
    day_ms = 24 * 60 * 60 * 1000
    model.append(timestamp=1, producer_id=1)
    model.append(timestamp=2 + day_ms, producer_id=2)
    model.drain()
    assert model.log().producers.find(1) is not None
    model.roll()
    model.drain()
    assert model.log().producers.find(1) is None
    assert model.log().producers.find(2) is not None


# -- what batches leave behind -------------------------------------------------------------------


def test_epochs_and_producers_are_noted_as_the_batches_are_stored() -> None:
    model = CoreModel()
    model.append(producer_id=7, records=3)
    model.drain()
    model.log().lead(LeaderEpoch(4))
    model.append(producer_id=7, records=2)
    model.drain()
    log = model.log()
    assert log.leader_epochs.starts == (EpochStart(0, 0), EpochStart(4, 3))
    producer = log.producers.find(7)
    assert producer is not None
    assert [(each.base_sequence, each.base_offset) for each in producer.batches] == [(0, 0), (3, 3)]


def test_a_batch_that_did_not_fit_on_the_disk_leaves_nothing_behind() -> None:
    model = CoreModel()
    model.append(producer_id=7)
    model.end_write(failure(ErrorCode.STORAGE_FULL))
    model.drain()
    assert model.log().producers.find(7) is None
    assert model.log().leader_epochs.starts == ()


# -- seal ----------------------------------------------------------------------------------------


def test_a_sidecar_takes_the_place_of_the_index_in_memory() -> None:
    model = filled(6)
    assert model.log().segments[0].index is not None
    summary = model.seal()
    first = model.log().segments[0]
    assert first.index is None
    assert first.summary == summary
    assert first.producers_at_end is None
    assert model.seal() is not None
    assert model.seal() is None, "the active segment has none"


@pytest.mark.parametrize("field", ["next_offset", "size_bytes", "max_timestamp", "leader_epochs"])
def test_a_sidecar_that_says_something_else_stops_the_partition(field: str) -> None:
    model = filled(4)
    key = model.log().segments[0].key
    summary = model.summary_of(key, None)
    other = (EpochStart(0, 0), EpochStart(1, 1)) if field == "leader_epochs" else 99
    wrong = msgspec.structs.replace(summary, **{field: other})
    model.tell(SegmentSealed(key=key, summary=wrong))
    error = model.log().failure
    assert error is not None
    assert error.code is ErrorCode.STORAGE_CORRUPT
    assert key.path in error.tried
    assert model.log(1).failure is None
    assert model.log().segments[0].index is not None


@pytest.mark.parametrize("name", ["index", "producers"])
def test_a_section_that_says_something_else_stops_the_partition(name: str) -> None:
    model = filled(4)
    key = model.log().segments[0].key
    summary = model.summary_of(key, None)
    sections = tuple(
        msgspec.structs.replace(each, checksum=each.checksum ^ 1) if each.name == name else each
        for each in summary.sections
    )
    wrong = msgspec.structs.replace(summary, sections=sections)
    model.tell(SegmentSealed(key=key, summary=wrong))
    assert model.log().failure is not None


def test_a_sidecar_of_a_segment_that_is_no_more_is_removed() -> None:
    model = filled(4)
    key = model.log().segments[0].key
    summary = model.summary_of(key, None)
    model.trim(2)
    model.drain()
    model.tell(SegmentSealed(key=key, summary=summary))
    assert model.removed_sidecars == [key]


def test_a_segment_is_sealed_also_after_the_one_before_it_is_gone() -> None:
    model = CoreModel()
    model.append(producer_id=1)
    model.roll()
    model.drain()
    model.append(producer_id=2)
    model.roll()
    model.drain()
    model.trim(1)
    model.drain()
    assert bases(model) == [1, 2]
    assert model.seal() is not None
    assert model.log().failure is None
    known = model.producers_behind[model.log().segments[0].key]
    assert known.find(1) is not None, "producers outlive the segments that they wrote to"


def test_epochs_that_were_trimmed_do_not_make_a_sidecar_look_wrong() -> None:
    model = CoreModel()
    for epoch in range(4):
        model.log().lead(LeaderEpoch(epoch))
        model.append()
        model.roll()
        model.drain()
        model.seal()
    model.trim(3)
    model.drain()
    model.append()
    model.roll()
    model.drain()
    assert model.seal() is not None
    assert model.log().failure is None
    assert model.log().leader_epochs.starts == (EpochStart(3, 3),)


# -- trim ----------------------------------------------------------------------------------------


def test_a_trim_is_marked_then_flushed_then_the_log_begins_there_then_files_go() -> None:
    model = filled(6)
    token = model.trim(3)
    assert model.write is not None
    assert model.write.marks == (mark(0, MarkKind.LOG_START, 3),)
    model.end_write()
    assert model.has_flush
    assert model.flush[0].with_marks
    assert model.log().log_start_offset == 0
    assert token not in model.answers
    model.end_flush()
    assert model.answers[token] == Done(token=token, offset=Offset(3))
    assert model.log().log_start_offset == 3
    assert bases(model) == [2, 4], "the segment that holds the start stays"
    assert [key.base_offset for key in model.removed] == [0]


def test_a_trim_that_nothing_lies_below_is_done_at_once() -> None:
    model = filled(2)
    token = model.trim(0)
    assert model.answers[token] == Done(token=token, offset=Offset(0))


def test_a_trim_above_the_high_watermark_is_refused() -> None:
    model = CoreModel()
    model.append()
    model.end_write()
    assert code_of(model, model.trim(1)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_trim_whose_mark_does_not_fit_on_the_disk_is_refused_and_the_log_stays() -> None:
    model = filled(4)
    token = model.trim(2)
    model.end_write(failure(ErrorCode.STORAGE_FULL))
    model.drain()
    assert code_of(model, token) is ErrorCode.STORAGE_FULL
    assert model.log().log_start_offset == 0
    assert model.removed == []
    again = model.trim(2)
    model.drain()
    assert code_of(model, again) is None


def test_trims_that_overlap_never_take_back_what_the_higher_one_marked() -> None:
    model = filled(8)
    model.append()
    tokens = [model.trim(5), model.trim(3)]
    model.drain()
    assert [code_of(model, token) for token in tokens] == [None, None]
    assert model.durable_marks[key_of(0), MarkKind.LOG_START] == 5
    assert model.log().log_start_offset == 5


def test_a_lower_trim_after_a_refused_one_trims_no_further_than_asked() -> None:
    model = filled(8)
    refused = model.trim(7)
    model.end_write(failure(ErrorCode.STORAGE_FULL))
    model.drain()
    assert code_of(model, refused) is ErrorCode.STORAGE_FULL
    model.trim(3)
    model.drain()
    assert model.log().log_start_offset == 3


def test_the_active_segment_stays_when_all_is_trimmed() -> None:
    model = filled(5)
    model.trim(5)
    model.drain()
    assert bases(model) == [4]
    model.append()
    model.drain()
    assert model.log().log_end_offset == 6


def test_what_was_trimmed_to_the_end_goes_at_the_next_roll() -> None:
    model = filled(3)
    model.trim(3)
    model.drain()
    assert bases(model) == [2]
    model.roll()
    model.drain()
    assert bases(model) == [3]
    assert [key.base_offset for key in model.removed] == [0, 2]


def test_no_file_goes_before_the_name_of_the_active_segment_is_durable() -> None:
    model = filled(2)
    model.trim(2)
    model.end_write()
    assert model.has_flush, "of the trim's mark"
    model.tell(RollSegment(key=key_of(0)))
    model.end_write()
    assert bases(model) == [0, 2]
    model.end_flush()
    assert model.log().log_start_offset == 2
    assert bases(model) == [2]
    assert model.removed == [], "the new segment's name is not durable yet"
    model.drain()
    assert [key.base_offset for key in model.removed] == [0]


def test_an_epoch_may_begin_where_all_before_it_was_trimmed() -> None:
    model = filled(3)
    model.trim(3)
    model.drain()
    model.log().lead(LeaderEpoch(2))
    model.append()
    model.drain()
    assert model.log().leader_epochs.starts == (EpochStart(2, 3),)


def test_the_high_watermark_has_a_place_after_its_segment_was_trimmed() -> None:
    model = filled(2)
    model.roll()
    model.drain()
    model.trim(2)
    model.drain()
    assert bases(model) == [2]
    assert model.log().high_watermark_position == (2, 0)


# -- truncation ----------------------------------------------------------------------------------


def unflushed(count: int) -> CoreModel:
    """A record that is committed, and `count` behind it that are written and not flushed yet."""
    model = filled(1)
    model.append(1)
    model.end_write()
    for _ in range(count):
        model.append()
        model.end_write()
    assert model.log().high_watermark == 1
    assert model.log().log_end_offset == 1 + count
    return model


def test_a_cut_refuses_who_waits_behind_it_and_keeps_what_is_before() -> None:
    model = unflushed(3)
    waiting = [token for token in model.sent if token not in model.answers]
    token = model.cut(2)
    late = model.append()
    assert code_of(model, late) is ErrorCode.UNAVAILABLE
    model.drain()
    assert model.answers[token] == Done(token=token, offset=Offset(2))
    assert [code_of(model, each) for each in waiting] == [
        None,
        None,
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_LEADER,
    ]
    assert model.log().log_end_offset == model.log().high_watermark == 2
    again = model.append()
    model.drain()
    answer = model.answers[again]
    assert isinstance(answer, Acknowledge)
    assert answer.base_offset == 2


def test_nothing_below_the_high_watermark_is_cut_unless_somebody_decided_so() -> None:
    model = filled(4)
    assert code_of(model, model.cut(3)) is ErrorCode.OFFSET_OUT_OF_RANGE
    token = model.cut(3, is_unclean=True)
    while not model.cuts:
        model.end_write() if model.write is not None else model.end_flush()
    assert model.log().high_watermark <= 3, "what is being cut is not read any more"
    model.drain()
    assert code_of(model, token) is None
    assert model.log().log_end_offset == 3
    assert model.durable_marks[key_of(0), MarkKind.FLUSHED] == 3


def test_a_lower_mark_is_durable_before_anything_is_cut() -> None:
    model = filled(4)
    model.cut(1, is_unclean=True)
    assert model.cuts == []
    assert model.write is not None
    assert model.write.marks[-1].kind is MarkKind.FLUSHED
    assert model.write.marks[-1].value <= 1
    model.end_write()
    assert model.cuts == []
    model.end_flush()
    assert [(cut.last, cut.later) for cut in model.cuts] == [
        (model.log().segments[0].key, (model.log().segments[1].key,))
    ]


def test_a_cut_takes_sealed_segments_back_and_the_first_of_them_grows_again() -> None:
    model = filled(8)
    model.seal()
    model.seal()
    model.cut(3, is_unclean=True)
    model.drain()
    assert bases(model) == [0, 2]
    last = model.log().segments[-1]
    assert not last.is_sealed
    assert last.index is not None
    assert last.summary is None
    model.append()
    model.drain()
    assert model.log().log_end_offset == 4


def test_a_cut_inside_a_batch_removes_all_of_it() -> None:
    model = CoreModel()
    model.append(records=2)
    model.append(records=5)
    model.drain()
    token = model.cut(4, is_unclean=True)
    model.drain()
    assert model.answers[token] == Done(token=token, offset=Offset(2))


def test_epochs_and_producers_go_back_with_a_cut() -> None:
    model = CoreModel()
    model.append(producer_id=1)
    model.roll()
    model.drain()
    model.log().lead(LeaderEpoch(3))
    model.append(producer_id=1)
    model.append(producer_id=2)
    model.drain()
    model.cut(1, is_unclean=True)
    model.drain()
    log = model.log()
    assert log.leader_epochs.starts == (EpochStart(0, 0),)
    assert log.producers.find(2) is None
    producer = log.producers.find(1)
    assert producer is not None
    assert [each.base_sequence for each in producer.batches] == [0]


def test_a_cut_at_the_start_of_the_log_leaves_it_empty_there() -> None:
    model = CoreModel()
    model.append(records=10)
    model.drain()
    model.trim(5)
    model.drain()
    model.cut(5, is_unclean=True)
    model.drain()
    log = model.log()
    assert log.segments == []
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (5, 5, 5)
    model.append()
    model.drain()
    assert bases(model) == [5]


def test_a_cut_that_would_end_below_the_start_of_the_log_leaves_it_empty_there() -> None:
    model = CoreModel()
    model.append(records=10)
    model.drain()
    model.trim(5)
    model.drain()
    token = model.cut(7, is_unclean=True)
    model.drain()
    assert model.answers[token] == Done(token=token, offset=Offset(5))
    model.append()
    model.drain()
    assert bases(model) == [5]


def test_a_cut_behind_the_end_is_done_at_once() -> None:
    model = filled(2)
    token = model.cut(9)
    assert model.answers[token] == Done(token=token, offset=Offset(2))


def test_a_cut_that_finds_damage_stops_the_partition_one_that_fails_the_directory() -> None:
    for code, stopped in ((ErrorCode.STORAGE_CORRUPT, 1), (ErrorCode.STORAGE_FAILED, 2)):
        model = filled(2)
        token = model.cut(1, is_unclean=True)
        while not model.cuts:
            if model.write is not None:
                model.end_write()
            else:
                model.end_flush()
        model.end_cut(failure(code))
        model.drain()
        assert code_of(model, token) is code
        failed = [model.log(number).failure for number in range(2)]
        assert sum(each is not None for each in failed) == stopped


# -- replacement ---------------------------------------------------------------------------------


def compacted(count: int = 8) -> tuple[CoreModel, ReplaceSegments]:
    """A model with sidecars and a compaction of its first two segments."""
    model = filled(count)
    while model.seal() is not None:
        pass
    message = model.merge()
    assert message is not None
    return model, message


def test_a_compaction_takes_the_place_of_what_it_was_made_of() -> None:
    model, message = compacted()
    model.tell(message)
    assert [segment.key.generation for segment in model.log().segments] == [1, 0, 0]
    assert bases(model) == [0, 4, 6]
    assert tuple(model.removed) == message.removed
    assert model.log().segments[0].summary == message.made[0]


def test_a_compaction_of_what_was_trimmed_meanwhile_goes_too() -> None:
    model, message = compacted()
    model.trim(4)
    model.drain()
    model.tell(message)
    assert bases(model) == [4, 6]
    assert [key.generation for key in model.removed] == [0, 0, 1]


def test_a_compaction_of_which_the_head_was_trimmed_meanwhile_still_counts() -> None:
    model, message = compacted()
    model.trim(3)
    model.drain()
    model.tell(message)
    assert [segment.key.generation for segment in model.log().segments] == [1, 0, 0]
    assert model.log().log_start_offset == 3


def test_a_compaction_of_what_was_cut_meanwhile_goes() -> None:
    model, message = compacted()
    model.cut(3, is_unclean=True)
    model.drain()
    model.tell(message)
    assert bases(model) == [0, 2]
    assert model.removed == [message.made[0].key]


def test_a_high_watermark_at_the_end_of_what_was_compacted_keeps_its_place() -> None:
    model = filled(4)
    model.roll()
    model.drain()
    model.seal()
    model.seal()
    assert model.log().high_watermark_position[0] == 2
    message = model.merge()
    assert message is not None
    model.tell(message)
    assert model.log().high_watermark_position == (4, 0)


def test_inside_a_compacted_segment_nothing_is_cut() -> None:
    model, message = compacted()
    model.tell(message)
    token = model.cut(3, is_unclean=True)
    assert code_of(model, token) is ErrorCode.INVALID_ARGUMENT


def test_behind_a_compacted_segment_a_cut_log_goes_on_in_a_new_one() -> None:
    model = filled(8)
    while model.seal() is not None:
        pass
    for _ in range(2):
        message = model.merge()
        assert message is not None
        model.tell(message)
    assert [segment.is_compacted for segment in model.log().segments] == [True, False]
    model.cut(6, is_unclean=True)
    model.drain()
    assert model.log().log_end_offset == 6
    model.append()
    model.drain()
    assert bases(model) == [0, 6]


# -- removal, damage, settings, room -------------------------------------------------------------


def test_a_removed_partition_is_gone_once_nothing_of_it_is_in_flight() -> None:
    model = filled(2)
    model.append()
    queued = model.append()
    removal = model.new_token()
    model.tell(RemovePartition(token=removal, key=key_of(0)))
    assert code_of(model, queued) is ErrorCode.UNKNOWN_TOPIC_ID
    assert model.removed_directories == []
    model.drain()
    assert model.removed_directories == [key_of(0)]
    assert sorted(model.answers) == list(range(removal + 1)), "nobody is left waiting"
    assert code_of(model, model.append()) is ErrorCode.UNKNOWN_TOPIC_ID
    assert model.core.is_idle


def test_a_partition_that_is_cut_is_removed_after_that() -> None:
    model = filled(4)
    cut = model.cut(1, is_unclean=True)
    removal = model.new_token()
    model.tell(RemovePartition(token=removal, key=key_of(0)))
    model.drain()
    assert model.removed_directories == [key_of(0)]
    assert cut in model.answers
    assert model.core.is_idle


def test_damage_stops_one_partition_and_what_was_written_is_still_answered() -> None:
    model = CoreModel()
    written = model.append()
    queued = model.append()
    model.tell(FailPartition(key=key_of(0), error=failure(ErrorCode.STORAGE_CORRUPT)))
    assert code_of(model, queued) is ErrorCode.STORAGE_CORRUPT
    model.drain()
    assert code_of(model, written) is None
    assert code_of(model, model.append()) is ErrorCode.STORAGE_CORRUPT
    other = model.append(1)
    model.drain()
    assert code_of(model, other) is None


def test_below_the_floor_of_free_space_appends_are_refused_and_trims_are_not() -> None:
    model = filled(4)
    model.tell(SetFull(is_full=True))
    assert code_of(model, model.append()) is ErrorCode.STORAGE_FULL
    token = model.trim(2)
    model.drain()
    assert code_of(model, token) is None
    model.tell(SetFull(is_full=False))
    token = model.append()
    model.drain()
    assert code_of(model, token) is None


def test_settings_of_a_topic_count_from_the_next_batch_on() -> None:
    model = filled(2)
    model.tell(Configure(key=key_of(0), settings=TopicSettings(segment_bytes=1)))
    model.append()
    model.drain()
    assert bases(model) == [0, 2]


def test_segments_that_a_crash_left_below_the_start_go_when_the_log_is_served() -> None:
    model = filled(6)
    log = model.log()
    leftover = log.segments[0].key
    model.trim(2)
    model.drain()
    model.files[leftover] = b""
    del model.core.partitions[key_of(0)]
    model.tell(AddPartition(log=log, settings=TopicSettings(), leftovers=(leftover,)))
    assert model.removed == [leftover, leftover]


# -- flush=replicated ----------------------------------------------------------------------------


def test_on_a_replicated_topic_the_high_watermark_moves_with_the_write() -> None:
    model = CoreModel(topic=REPLICATED)
    token = model.append(is_all=False)
    model.end_write()
    assert token in model.answers
    assert model.log().high_watermark == 1
    assert model.log().flushed_offset == 0
    assert not model.has_flush
    assert model.core.is_idle


def test_what_nobody_waits_for_is_flushed_after_the_interval() -> None:
    model = CoreModel(topic=REPLICATED)
    model.tell(Tick(now_ms=10_000))
    model.append(is_all=False)
    model.end_write()
    is_flushing = []
    for now_ms in (10_999, 11_000):
        model.tell(Tick(now_ms=now_ms))
        is_flushing.append(model.has_flush)
    assert is_flushing == [False, True]
    model.drain()
    assert model.log().flushed_offset == 1


def test_acks_all_is_answered_after_a_flush_also_on_a_replicated_topic() -> None:
    model = CoreModel(topic=REPLICATED)
    model.append(is_all=False)
    model.end_write()
    token = model.append()
    model.end_write()
    assert token not in model.answers
    model.end_flush()
    assert code_of(model, token) is None
    assert model.log().flushed_offset == 2


def test_a_full_segment_is_flushed_at_once_also_on_a_replicated_topic() -> None:
    model = CoreModel(segment_bytes=100, topic=REPLICATED)
    for _ in range(3):
        model.append(is_all=False)
    model.drain()
    assert bases(model) == [0, 1, 2]
    assert model.log().flushed_offset == 2


def test_before_a_stop_everything_is_flushed() -> None:
    model = CoreModel(topic=REPLICATED)
    model.append(is_all=False)
    model.tell(FlushAll())
    model.drain()
    assert model.log().flushed_offset == 1


# -- copies of a leader's batches ----------------------------------------------------------------


def test_a_copy_keeps_its_offset_and_epoch() -> None:
    model = CoreModel()
    model.log().lead(LeaderEpoch(5))
    tokens = [model.copy(0, records=3, epoch=2), model.copy(3, epoch=4)]
    model.drain()
    assert [code_of(model, token) for token in tokens] == [None, None]
    assert model.log().leader_epochs.starts == (EpochStart(2, 0), EpochStart(4, 3))
    assert model.log().gaps_from == -1


def test_a_copy_of_a_compacted_log_skips_offsets_and_that_is_marked_with_it() -> None:
    model = CoreModel()
    model.copy(0)
    model.drain()
    model.copy(7)
    assert model.write is not None
    assert mark(0, MarkKind.GAPS, 1) in model.write.marks
    model.copy(12)
    model.drain()
    assert model.log().gaps_from == 1
    assert model.log().log_end_offset == 13
    assert model.durable_marks[key_of(0), MarkKind.GAPS] == 1


def test_a_copy_that_does_not_fit_behind_the_log_is_refused() -> None:
    model = CoreModel()
    model.log().lead(LeaderEpoch(5))
    model.copy(0, records=3, epoch=4)
    model.drain()
    assert code_of(model, model.copy(2, epoch=4)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(model, model.copy(3, epoch=3)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_topic_that_becomes_flush_sync_is_flushed_at_once() -> None:
    model = CoreModel(topic=REPLICATED)
    model.append(is_all=False)
    model.end_write()
    model.tell(Configure(key=key_of(0), settings=TopicSettings()))
    assert model.has_flush
    model.drain()
    assert model.log().flushed_offset == 1
