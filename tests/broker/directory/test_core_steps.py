"""The core of a data directory in any order of events: a model of what must come of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.support.core_model import CoreModel, failure
from tidelog.broker.directory.core.messages import (
    Appended,
    FlushAll,
    ReplaceSegments,
    SetFull,
    Tick,
)
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state.log import PartitionLog
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import iterate_headers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch

PARTITIONS = 2
DAY_MS = 24 * 60 * 60 * 1000

PARTITION = st.integers(0, PARTITIONS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            PARTITION,
            st.integers(1, 4),
            st.booleans(),
            st.sampled_from([-1, 1, 2]),
            st.sampled_from([0, 1, 2_000, DAY_MS]),
        ),
        st.tuples(st.just("write"), st.sampled_from(["ok", "ok", "ok", "full"])),
        st.tuples(st.sampled_from(["flush", "flush", "truncate", "end_cut"])),
        st.tuples(st.sampled_from(["roll", "seal", "lead", "compact", "hand_over"]), PARTITION),
        st.tuples(st.just("trim"), PARTITION, st.floats(0, 1)),
        st.tuples(st.just("cut"), PARTITION, st.floats(0, 1), st.booleans()),
        st.tuples(st.just("full"), st.booleans()),
        st.tuples(st.just("tick"), st.integers(0, 2_000)),
    ),
    max_size=70,
)


class Story:
    """A model, the time of its records, and a compaction that may be under way."""

    def __init__(self, topic: TopicSettings, segment_bytes: int) -> None:
        self.model = CoreModel(partitions=PARTITIONS, segment_bytes=segment_bytes, topic=topic)
        self.timestamp = 1
        self.compactions: dict[int, ReplaceSegments] = {}

    def step(self, step: tuple[object, ...]) -> None:
        model = self.model
        match step:
            case ("append", int(partition), int(records), bool(is_all), int(producer), int(later)):
                self.timestamp += later
                model.append(
                    partition,
                    records=records,
                    is_all=is_all,
                    producer_id=producer,
                    timestamp=self.timestamp,
                )
            case ("write", outcome) if model.write is not None:
                model.end_write(failure(ErrorCode.STORAGE_FULL) if outcome == "full" else None)
            case ("flush",) if model.has_flush:
                model.end_flush()
            case ("truncate",) if model.truncate is not None:
                model.end_truncate()
            case ("end_cut",) if model.cuts:
                model.end_cut()
            case ("roll", int(partition)):
                model.roll(partition)
            case ("seal", int(partition)):
                model.seal(partition)
            case ("lead", int(partition)):
                log = model.log(partition)
                log.lead(LeaderEpoch(log.leader_epoch + 1))
            case ("compact", int(partition)) if partition not in self.compactions:
                made = model.merge(partition)
                if made is not None:
                    self.compactions[partition] = made
            case ("hand_over", int(partition)) if partition in self.compactions:
                model.tell(self.compactions.pop(partition))
            case ("trim", int(partition), float(part)):
                log = model.log(partition)
                span = log.high_watermark - log.log_start_offset
                model.trim(log.log_start_offset + int(part * span), partition)
            case ("cut", int(partition), float(part), bool(is_unclean)):
                log = model.log(partition)
                lowest = log.log_start_offset if is_unclean else log.high_watermark
                offset = lowest + int(part * (log.log_end_offset - lowest))
                model.cut(offset, partition, is_unclean=is_unclean)
            case ("full", bool(is_full)):
                model.tell(SetFull(is_full=is_full))
            case ("tick", int(later)):
                model.tell(Tick(now_ms=model.core.state.now_ms + later))
            case _:
                pass

    def end(self) -> None:
        """Everything in flight ends, everything is flushed."""
        model = self.model
        for partition in list(self.compactions):
            model.tell(self.compactions.pop(partition))
        model.tell(FlushAll())
        model.drain()


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    steps=STEPS,
    segment_bytes=st.sampled_from([100, 300, 1 << 20]),
    is_flush_sync=st.booleans(),
)
def test_in_any_order_of_events_logs_stay_whole_and_everybody_is_answered(
    steps: list[tuple[object, ...]], segment_bytes: int, is_flush_sync: bool
) -> None:
    topic = TopicSettings(segment_ms=5_000, is_flush_sync=is_flush_sync)
    story = Story(topic, segment_bytes)
    for step in steps:
        story.step(step)
    story.end()
    model = story.model
    assert sorted(model.answers) == sorted([*model.sent, *model.asked]), "nobody is left waiting"
    assert model.core.is_idle
    for partition in range(PARTITIONS):
        check_rebuilt(model, partition)
        check_kept(model, partition)


def check_rebuilt(model: CoreModel, partition: int) -> None:
    """What is read again from the files equals what was kept while they were written."""
    log = model.log(partition)
    keys = sorted(key for key in model.files if key.partition == log.key)
    assert keys == sorted(segment.key for segment in log.segments), "no file too many or too few"
    assert all(
        model.durable_bytes[key] == len(model.files[key]) for key in keys if model.files[key]
    )
    assert log.high_watermark == log.flushed_offset == log.log_end_offset
    rebuilt = PartitionLog(log.key, log.leader_epoch)
    for segment in log.segments:
        take_in_file(model, rebuilt, segment.key)
        again = rebuilt.segments[-1]
        assert again.size_bytes == segment.size_bytes
        assert again.max_timestamp == segment.max_timestamp
        if segment.index is not None:
            assert segment.index.entries() == again.index.entries()  # type: ignore[union-attr]
        if segment.is_sealed:
            assert rebuilt.log_end_offset == segment.next_offset
    if log.segments:
        assert rebuilt.log_end_offset == log.log_end_offset
    rebuilt.leader_epochs.trim(log.log_start_offset)
    if log.log_start_offset < log.log_end_offset:
        assert rebuilt.leader_epochs.starts == log.leader_epochs.starts
    # A compaction carries the state over: where the rolls were is not told by its bytes.
    is_untouched = all(not segment.is_compacted for segment in log.segments)
    if log.segments and log.segments[0].base_offset == 0 and is_untouched:
        assert rebuilt.producers == log.producers


def take_in_file(model: CoreModel, rebuilt: PartitionLog, key: SegmentKey) -> None:
    if not rebuilt.segments:
        rebuilt.log_end_offset = key.base_offset
    rebuilt.begin_segment(key)
    for _, header in iterate_headers(model.files[key], is_compacted=True):
        assert header.base_offset == rebuilt.log_end_offset, "offsets are contiguous"
        rebuilt.take_in(header)


def check_kept(model: CoreModel, partition: int) -> None:
    """What was acknowledged with acks=all is there, unless it was trimmed or given up."""
    log = model.log(partition)
    found: dict[int, bytes] = {}
    for key, data in model.files.items():
        if key.partition == log.key:
            for position, header in iterate_headers(data, is_compacted=True):
                found[header.base_offset] = data[position + 16 : position + header.size_bytes]
    given_up = model.cut_below.get(log.key, log.log_end_offset)
    for token, answer in model.answers.items():
        if not isinstance(answer, Appended) or model.sent[token].key != log.key:
            continue
        end = answer.base_offset + model.sent[token].header.last_offset_delta + 1
        is_kept = log.log_start_offset < end <= given_up
        if is_kept and model.sent[token].is_flush_awaited:
            assert found.get(answer.base_offset) == model.sent[token].batch[16:], "it was lost"
