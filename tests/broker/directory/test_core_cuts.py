"""Tails that are cut off, and compactions that take the place of segments: the core alone."""

from tests.broker.support.core_logs import bases, code_of, filled
from tests.broker.support.core_model import CoreModel, failure, key_of
from tidelog.broker.directory.core.messages import Appended, Done, ReplaceSegments
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.marks.marks import MarkKind
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset

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
    assert isinstance(answer, Appended)
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
