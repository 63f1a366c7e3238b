"""The core of a data directory: offsets, write and flush rounds, full and broken disks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.support.core_model import CoreModel, failure, key_of
from tidelog.broker.directory.core.messages import Appended, FlushAll, Refuse, Tick, Write
from tidelog.broker.log.marks.marks import Mark, MarkKind
from tidelog.wire.batch import iterate_headers
from tidelog.wire.errors import ErrorCode


def answer_code(model: CoreModel, token: int) -> ErrorCode | None:
    """None: acknowledged."""
    answer = model.answers[token]
    return answer.error.code if isinstance(answer, Refuse) else None


def test_acks_all_is_answered_after_the_flush_and_acks_1_after_the_write() -> None:
    model = CoreModel()
    everybody, leader = model.append(), model.append(is_all=False)
    assert model.answers == {}
    model.end_write()
    model.end_write()
    assert list(model.answers) == [leader]
    assert model.log().high_watermark == 0
    model.drain()
    assert list(model.answers) == [leader, everybody]
    assert model.log().high_watermark == 2


def test_what_comes_while_a_write_is_in_flight_goes_into_one_next_write() -> None:
    model = CoreModel()
    model.append()
    for partition in (0, 1, 0):
        model.append(partition)
    model.end_write()
    assert model.write is not None
    assert [len(each.pieces) for each in model.write.writes] == [4, 2]


def test_writes_go_on_while_a_flush_is_in_flight() -> None:
    model = CoreModel()
    model.append()
    model.end_write()
    assert model.has_flush
    later = model.append()
    model.end_write()
    model.end_flush()
    assert later not in model.answers, "the flush began before the batch was written"
    model.drain()
    assert answer_code(model, later) is None


def test_a_full_segment_is_flushed_before_the_next_one_is_made() -> None:
    model = CoreModel(segment_bytes=200)
    for _ in range(4):
        model.append()
    while not model.has_flush or model.write is not None:
        model.end_write()
    assert len(model.files) == 1, "the batches that do not fit are held"
    model.drain()
    assert sorted(segment.base_offset for segment in model.files) == [0, 2]
    assert [model.answers[token].base_offset for token in range(4)] == [0, 1, 2, 3]  # type: ignore[union-attr]


def test_a_full_disk_refuses_the_round_and_goes_on_at_the_same_offset() -> None:
    model = CoreModel()
    model.append()
    model.drain()
    refused = [model.append(), model.append(1)]
    model.end_write(failure(ErrorCode.STORAGE_FULL))
    assert model.truncate is not None
    waiting = model.append()
    assert not any(token in model.answers for token in refused), "refused once the cut is durable"
    model.drain()
    assert answer_code(model, refused[0]) is ErrorCode.STORAGE_FULL
    answer = model.answers[waiting]
    assert isinstance(answer, Appended)
    assert answer.base_offset == 1


def test_a_segment_that_did_not_fit_on_the_disk_stays_the_active_one() -> None:
    model = CoreModel(segment_bytes=200)
    model.append()
    model.drain()
    model.append(records=20)
    model.end_write(failure(ErrorCode.STORAGE_FULL))
    model.drain()
    model.append()
    model.drain()
    assert sorted(segment.base_offset for segment in model.files) == [0, 1]
    check_files(model, 0)


def test_a_full_disk_does_not_keep_the_core_busy_with_marks() -> None:
    model = CoreModel()
    model.append()
    model.end_write()
    model.end_flush()
    assert model.write is not None, "the mark of the flush is written"
    assert model.write.writes == ()
    model.end_write(failure(ErrorCode.STORAGE_FULL))
    model.end_truncate()
    assert model.write is None


def _is_flushing(model: CoreModel) -> bool:
    return model.has_flush


def test_marks_are_flushed_by_themselves_only_after_a_quiet_tick() -> None:
    model = CoreModel()
    model.append()
    model.end_write()
    model.end_flush()
    assert model.marks == {}
    model.end_write()
    assert model.marks == {key_of(0): 1}, "written at once: the death of the process takes nothing"
    assert not _is_flushing(model), "who comes now would wait for it"
    model.append()
    model.end_write()
    assert _is_flushing(model)
    assert model.flush[0].with_marks
    model.end_flush()
    model.end_write()
    assert not _is_flushing(model)
    model.tell(Tick(now_ms=200))
    assert _is_flushing(model)
    assert (model.flush[0].with_marks, model.flush[0].segments) == (True, ())
    model.end_flush()
    assert model.core.is_idle


def test_a_tick_flushes_no_marks_while_batches_are_on_their_way() -> None:
    model = CoreModel()
    model.append()
    model.end_write()
    model.end_flush()
    model.end_write()
    model.append()
    model.tell(Tick(now_ms=200))
    assert not _is_flushing(model)
    model.end_write()
    assert _is_flushing(model)
    assert len(model.flush[0].segments) == 1
    assert model.flush[0].with_marks


def test_a_node_that_stops_does_not_wait_for_a_tick() -> None:
    model = CoreModel()
    model.append()
    model.tell(FlushAll())
    model.end_write()
    model.end_flush()
    model.end_write()
    model.end_flush()
    assert model.core.is_idle


def test_marks_that_did_not_fit_are_written_with_the_next_batches() -> None:
    model = CoreModel()
    model.append()
    model.end_write()
    model.end_flush()
    model.end_write(failure(ErrorCode.STORAGE_FULL))
    model.drain()
    assert model.marks == {}
    model.append(1)
    assert model.write is not None
    assert model.write.marks == (Mark(key_of(0), MarkKind.FLUSHED, 1),)
    model.drain()
    assert model.marks == {key_of(0): 1, key_of(1): 1}


@pytest.mark.parametrize("stage", ["write", "flush", "truncate"])
def test_a_broken_disk_stops_every_partition_and_tells_all_who_wait(stage: str) -> None:
    model = CoreModel()
    model.append()
    model.end_write()
    model.append()
    model.append(1)
    broken = failure(ErrorCode.STORAGE_FAILED)
    if stage == "flush":
        model.end_flush(broken)
        model.end_write()
    elif stage == "write":
        model.end_write(broken)
        model.end_flush()
    else:
        model.end_write(failure(ErrorCode.STORAGE_FULL))
        model.end_truncate(broken)
        model.end_flush()
    assert [answer_code(model, token) for token in (1, 2)] == [ErrorCode.STORAGE_FAILED] * 2 or (
        stage == "truncate"
    )
    late = model.append(1)
    assert answer_code(model, late) is ErrorCode.STORAGE_FAILED
    assert sorted(model.answers) == sorted(model.sent), "nobody is left waiting"
    assert model.log(0).failure is not None
    assert model.log(1).failure is not None
    assert model.core.is_idle


def test_a_flush_writes_marks_that_never_run_ahead() -> None:
    model = CoreModel()
    model.append(records=3)
    model.drain()
    assert model.marks == {key_of(0): 3}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("write"), st.sampled_from(["ok", "ok", "ok", "full"])),
        st.tuples(st.just("flush"), st.just("ok")),
        st.tuples(st.just("truncate"), st.just("ok")),
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(steps=STEPS, segment_bytes=st.sampled_from([100, 300, 1 << 20]))
def test_in_any_order_of_events_offsets_are_contiguous_and_everybody_is_answered(
    steps: list[tuple[object, ...]], segment_bytes: int
) -> None:
    model = CoreModel(partitions=3, segment_bytes=segment_bytes)
    for step in steps:
        match step:
            case ("append", int(partition), int(records), bool(is_all)):
                model.append(partition, records=records, is_all=is_all)
            case ("write", outcome) if model.write is not None:
                model.end_write(failure(ErrorCode.STORAGE_FULL) if outcome == "full" else None)
            case ("flush", _) if _is_flushing(model):
                model.end_flush()
            case ("truncate", _) if model.truncate is not None:
                model.end_truncate()
            case _:
                pass
    model.drain()
    assert sorted(model.answers) == sorted(model.sent)
    assert model.core.is_idle
    for partition in range(3):
        check_files(model, partition)


def check_files(model: CoreModel, partition: int) -> None:
    """Segments hold contiguous batches, exactly the acknowledged ones, in order."""
    log = model.log(partition)
    segments = sorted(each for each in model.files if each.partition == log.key)
    next_offset = 0
    for segment in segments:
        assert segment.base_offset == next_offset, "a restart finds no gap between segments"
        for _, header in iterate_headers(model.files[segment]):
            assert header.base_offset == next_offset
            next_offset = header.next_offset
    assert next_offset == log.log_end_offset == log.high_watermark
    given_out = [
        answer.base_offset
        for token, answer in model.answers.items()
        if isinstance(answer, Appended) and model.sent[token].key == log.key
    ]
    assert len(dict.fromkeys(given_out)) == len(given_out), "an offset was given out twice"


def test_one_write_takes_a_bounded_part_of_the_queue() -> None:
    model = CoreModel(write_bytes_max=200)
    for _ in range(10):
        model.append()
    model.end_write()
    assert isinstance(model.write, Write)
    assert sum(len(each.pieces) for each in model.write.writes) == 6
