"""The core of a data directory: rolls, what batches leave behind, seals, trims."""

import msgspec
import pytest

from tests.broker.support.core_logs import bases, code_of, filled
from tests.broker.support.core_model import CoreModel, failure, key_of, mark
from tidelog.broker.directory.core.messages import Appended, Done, RollSegment, SegmentSealed
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.marks.marks import MarkKind
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset

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
    assert isinstance(answer, Appended)
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
    assert model.write.marks == (
        mark(0, MarkKind.LOG_START_EPOCH, 0),
        mark(0, MarkKind.LOG_START, 3),
    )
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
