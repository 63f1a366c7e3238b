"""Partitions that go, are damaged, get other settings or copies; lazy flushes: the core alone."""

from tests.broker.support.core_logs import REPLICATED, bases, code_of, filled
from tests.broker.support.core_model import CoreModel, failure, key_of, mark
from tidelog.broker.directory.core.messages import (
    AddPartition,
    Configure,
    FailPartition,
    FlushAll,
    RemovePartition,
    SetFull,
    Tick,
)
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.marks.marks import MarkKind
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch

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
    del model.core.state.partitions[key_of(0)]
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
