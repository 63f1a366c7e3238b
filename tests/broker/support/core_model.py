"""Drives a directory's core by hand: plays disk, owner and worker, checks every answer."""

from itertools import pairwise

import msgspec

from tidelog.broker.directory.core import invariants
from tidelog.broker.directory.core.core import WRITE_BYTES_MAX, DirectoryCore
from tidelog.broker.directory.core.messages import (
    AddPartition,
    Advanced,
    AppendBatch,
    Appended,
    CutEnded,
    CutTail,
    Done,
    Effect,
    Flush,
    FlushEnded,
    Message,
    Refuse,
    ReleaseFiles,
    RemoveDirectory,
    RemoveFiles,
    ReplaceSegments,
    RestartLog,
    RollSegment,
    SegmentSealed,
    TailCut,
    Tick,
    TrimHead,
    Truncate,
    TruncateEnded,
    TruncateTail,
    Write,
    WriteEnded,
    Written,
)
from tidelog.broker.log.marks.marks import Mark, MarkKind, PartitionMarks
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.codec import PRODUCERS, find_section
from tidelog.broker.log.sidecar.contents import Replaced, Summary
from tidelog.broker.log.state.log import PartitionLog
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import encode_batch, iterate_headers, read_header
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

TOPIC = TopicId(bytes(16))
DEFAULTS = TopicSettings()


def key_of(partition: int) -> PartitionKey:
    """A partition of the only topic."""
    return PartitionKey(TOPIC, PartitionId(partition))


def failure(code: ErrorCode) -> TidelogError:
    """What a disk may answer."""
    return TidelogError(code, tried="write", happened="the disk says so")


class CoreModel:
    """A core, the bytes of its files, and what was promised to whom."""

    def __init__(
        self,
        *,
        partitions: int = 2,
        segment_bytes: int = 1 << 30,
        write_bytes_max: int = WRITE_BYTES_MAX,
        topic: TopicSettings = DEFAULTS,
    ) -> None:
        self.core = DirectoryCore(write_bytes_max=write_bytes_max)
        self.files: dict[SegmentKey, bytes] = {}
        self.durable_bytes: dict[SegmentKey, int] = {}
        self.write: Write | None = None
        self.flush: tuple[Flush, dict[SegmentKey, int], dict[tuple[PartitionKey, MarkKind], int]]
        self.has_flush = False
        self.truncate: Truncate | None = None
        self.cuts: list[CutTail] = []
        self.answers: dict[int, Appended | Refuse | Done] = {}
        self.sent: dict[int, AppendBatch] = {}
        self.written: dict[int, None] = {}
        self.asked: dict[int, TrimHead | TruncateTail | RestartLog] = {}
        self.marks: dict[PartitionKey, int] = {}
        """FLUSHED marks that were written."""
        self.written_marks: dict[tuple[PartitionKey, MarkKind], int] = {}
        self.durable_marks: dict[tuple[PartitionKey, MarkKind], int] = {}
        self.advanced: list[PartitionKey] = []
        self.adopted: dict[SegmentKey, None] = {}
        """Segments that were a part of their log once."""
        self.removed: list[SegmentKey] = []
        self.removed_sidecars: list[SegmentKey] = []
        self.removed_directories: list[PartitionKey] = []
        self.released: dict[PartitionKey, PartitionMarks] = {}
        self.producers_behind: dict[SegmentKey, ProducerState] = {}
        """As the sidecars tell them."""
        self.cut_below: dict[PartitionKey, int] = {}
        """The lowest offset of an unclean cut."""
        self._next_token = 0
        self._sequences: dict[tuple[int, int], tuple[int, int]] = {}
        settings = msgspec.structs.replace(topic, segment_bytes=segment_bytes)
        for number in range(partitions):
            log = PartitionLog(key_of(number), LeaderEpoch(0))
            self.tell(AddPartition(log=log, settings=settings))

    # -- what users and the node ask for ---------------------------------------------------------

    def append(
        self,
        partition: int = 0,
        *,
        records: int = 1,
        is_all: bool = True,
        timestamp: int = 1,
        producer_id: int = -1,
    ) -> int:
        """Submit a batch; its token."""
        token = self.new_token()
        epoch, sequence = self._sequence(partition, producer_id, records)
        batch = encode_batch(
            [(timestamp, None, b"%d" % token, ())] * records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        self.submit(token, batch, partition, is_all=is_all)
        return token

    def copy(self, base_offset: int, *, records: int = 1, epoch: int = 0) -> int:
        """Submit a batch as a leader has stored it, for partition 0."""
        token = self.new_token()
        batch = encode_batch(
            [(1, None, b"%d" % token, ())] * records, base_offset=base_offset, leader_epoch=epoch
        )
        self.submit(token, batch, 0, is_replica=True)
        return token

    def submit(
        self,
        token: int,
        batch: bytes,
        partition: int,
        *,
        is_all: bool = True,
        is_replica: bool = False,
    ) -> None:
        """Tell the core of a batch."""
        append = AppendBatch(
            token=token,
            key=key_of(partition),
            batch=batch,
            header=read_header(batch),
            is_flush_awaited=is_all,
            append_time_ms=5,
            is_replica=is_replica,
        )
        self.sent[token] = append
        self.tell(append)

    def trim(self, offset: int, partition: int = 0, *, start_epoch: int = -1) -> int:
        """Ask for a trim, of this replica's own deciding or of its leader's; its token."""
        token, key, epoch = self.new_token(), key_of(partition), LeaderEpoch(start_epoch)
        trim = TrimHead(token=token, key=key, offset=Offset(offset), start_epoch=epoch)
        self.asked[trim.token] = trim
        self.tell(trim)
        return trim.token

    def cut(self, offset: int, partition: int = 0, *, is_unclean: bool = False) -> int:
        """Ask for a truncation; its token."""
        key = key_of(partition)
        cut = TruncateTail(
            token=self.new_token(), key=key, offset=Offset(offset), is_unclean=is_unclean
        )
        self.asked[cut.token] = cut
        if is_unclean:
            self.cut_below[key] = min(offset, self.cut_below.get(key, offset))
        self.tell(cut)
        return cut.token

    def roll(self, partition: int = 0) -> None:
        """Ask for a new segment."""
        self.tell(RollSegment(key=key_of(partition)))

    def seal(self, partition: int = 0) -> Summary | None:
        """Make the sidecar of the first sealed segment that has none, and hand it over."""
        segments = self.log(partition).segments
        for place, segment in enumerate(segments):
            if segment.is_sealed and segment.summary is None:
                before = segments[place - 1].summary if place else None
                summary = self.summary_of(
                    segment.key, before, producers_before=segment.producers_before
                )
                self.tell(SegmentSealed(key=segment.key, summary=summary))
                return summary
        return None

    def summary_of(
        self,
        key: SegmentKey,
        before: Summary | None,
        *,
        replaces: tuple[SegmentKey, ...] = (),
        producers_before: bytes | None = None,
    ) -> Summary:
        """What a job finds in the segment's file."""
        facts = SegmentFacts(
            key=key,
            is_contiguous=not key.generation,
            epochs_before=before.leader_epochs if before else (),
            cleaned_below=1 if replaces else 0,
            replaces=tuple(Replaced(each.base_offset, each.generation) for each in replaces),
        )
        producers = ProducerState.decode(producers_before) if producers_before else None
        if before is not None:
            producers = self.producers_behind[before.key]
        builder = SidecarBuilder(facts, producers)
        builder.feed(self.files[key])
        summary, data = builder.finish()
        section = find_section(summary, PRODUCERS)
        end = section.byte_position + section.length_bytes
        self.producers_behind[key] = ProducerState.decode(data[section.byte_position : end])
        return summary

    def merge(self, partition: int = 0) -> ReplaceSegments | None:
        """Compact the first two segments that can be: into one, without dropping anything."""
        log = self.log(partition)
        for first, second in pairwise(log.segments):
            if second.summary is None or first.summary is None:
                continue
            if second.next_offset > log.high_watermark:
                continue
            generation = 1 + max(first.key.generation, second.key.generation)
            made = SegmentKey(log.key, Offset(first.base_offset), generation)
            self.files[made] = self.files[first.key] + self.files[second.key]
            self.durable_bytes[made] = len(self.files[made])
            summary = self.summary_of(made, None, replaces=(first.key, second.key))
            # A compaction carries over what is behind the last segment that it replaces.
            self.producers_behind[made] = self.producers_behind[second.key]
            epochs = second.summary.leader_epochs
            return ReplaceSegments(
                key=log.key,
                removed=(first.key, second.key),
                made=(msgspec.structs.replace(summary, leader_epochs=epochs),),
                cut_count=log.cut_count,
            )
        return None

    # -- what the disk does ----------------------------------------------------------------------

    def end_write(self, error: TidelogError | None = None) -> None:
        """The write in flight ends: whole, or with an error and a part of it done."""
        write = self.write
        assert write is not None, "no write is in flight"
        self.write = None
        for place, each in enumerate(write.writes):
            if each.is_new or not each.byte_position:
                self.files.setdefault(each.segment, b"")
            before = self.files[each.segment]
            assert len(before) == each.byte_position, "the core knows how long its files are"
            content = b"".join(bytes(piece) for piece in each.pieces)
            if error is not None:
                content = content[: len(content) // 2] if place == 0 else b""
            self.files[each.segment] = before + content
        if error is None:
            for mark in write.marks:
                is_start = mark.kind is MarkKind.LOG_START
                marked = self.written_marks.get((mark.key, mark.kind), 0)
                assert not is_start or mark.value >= marked or self._is_restarting(mark), (
                    "a log begins lower than it did"
                )
                self.written_marks[mark.key, mark.kind] = mark.value
                if mark.kind is MarkKind.FLUSHED:
                    self.marks[mark.key] = mark.value
        self.tell(WriteEnded(error=error))

    def _is_restarting(self, mark: Mark) -> bool:
        return any(
            isinstance(each, RestartLog) and each.offset == mark.value
            for each in self.asked.values()
        )

    def end_flush(self, error: TidelogError | None = None) -> None:
        """The flush in flight ends; it covers what the files held when it began."""
        assert self.has_flush, "no flush is in flight"
        flush, covered, marks = self.flush
        self.has_flush = False
        if error is None:
            for key, length in covered.items():
                # What was cut meanwhile, or is gone, is no more durable than it is there.
                if key in self.files:
                    self.durable_bytes[key] = min(length, len(self.files[key]))
            if flush.with_marks:
                self.durable_marks.update(marks)
        self.tell(FlushEnded(error=error))

    def end_truncate(self, error: TidelogError | None = None) -> None:
        """The truncation in flight ends."""
        assert self.truncate is not None, "no truncation is in flight"
        for segment, size_bytes in self.truncate.lengths:
            self.files[segment] = self.files.get(segment, b"")[:size_bytes]
        self.truncate = None
        self.tell(TruncateEnded(error=error))

    def end_cut(self, error: TidelogError | None = None) -> None:
        """The oldest cut in progress ends."""
        effect = self.cuts.pop(0)
        if error is not None:
            self.tell(CutEnded(key=effect.key, error=error))
            return
        for key in effect.later:
            del self.files[key]
        left = PartitionLog(effect.key, LeaderEpoch(0))
        if effect.producers_before is not None:
            left.producers = ProducerState.decode(effect.producers_before)
        elif effect.before is not None:
            left.producers = self.producers_behind[effect.before].copy()
        segment = None
        if effect.last is not None:
            left.log_end_offset = effect.last.base_offset
            segment = left.begin_segment(effect.last)
            content = self.files[effect.last]
            for _, header in iterate_headers(content, is_compacted=True):
                if header.next_offset > effect.offset:
                    break
                left.take_in(header)
            self.files[effect.last] = content[: segment.size_bytes]
            self.durable_bytes[effect.last] = segment.size_bytes
            if segment.next_offset < effect.log_start_offset:
                del self.files[effect.last]
                segment = None
        self.tell(CutEnded(key=effect.key, cut=TailCut(segment=segment, producers=left.producers)))

    def drain(self) -> None:
        """End everything well until nothing is in flight."""
        for _ in range(10_000):
            if self.truncate is not None:
                self.end_truncate()
            elif self.write is not None:
                self.end_write()
            elif self.has_flush:
                self.end_flush()
            elif self.cuts:
                self.end_cut()
            elif self.core.state.marks.are_unflushed:
                self.tell(Tick(now_ms=self.core.state.now_ms))
            else:
                return
        raise AssertionError("the core never comes to rest")

    # -- what the core says ----------------------------------------------------------------------

    def tell(self, *messages: Message) -> list[Effect]:
        """One step; takes note of the effects."""
        effects = self.core.step(list(messages))
        for effect in effects:
            self._note(effect)
        invariants.check(self.core.state)
        for partition in self.core.state.partitions.values():
            self.adopted.update((segment.key, None) for segment in partition.log.segments)
        for key, offset in self.marks.items():
            if key in self.core.state.partitions and self.core.state.partitions[key].cut is None:
                log = self.core.state.partitions[key].log
                assert log.failure or offset <= log.flushed_offset, "a mark runs ahead"
        return effects

    def log(self, partition: int = 0) -> PartitionLog:
        """The partition's state."""
        return self.core.state.partitions[key_of(partition)].log

    def new_token(self) -> int:
        self._next_token += 1
        return self._next_token - 1

    def _sequence(self, partition: int, producer_id: int, records: int) -> tuple[int, int]:
        """The producer's epoch, and the sequence of its next batch."""
        if producer_id < 0:
            return (-1, -1)
        epoch, sequence = self._sequences.get((partition, producer_id), (0, 0))
        self._sequences[partition, producer_id] = (epoch, sequence + records)
        return (epoch, sequence)

    def _begin_anew(self, refused: AppendBatch) -> None:
        """A producer one of whose batches was refused goes on in a new epoch."""
        header = refused.header
        place = (int(refused.key.partition), int(header.producer_id))
        if self._sequences.get(place, (-1, 0))[0] == header.producer_epoch:
            self._sequences[place] = (header.producer_epoch + 1, 0)

    def _note(self, effect: Effect) -> None:
        match effect:
            case Write():
                assert self.write is None, "one write at a time"
                assert self.truncate is None, "nothing is written while a round is cut back"
                self.write = effect
            case Flush():
                assert not self.has_flush, "one flush at a time"
                covered = {each: len(self.files[each]) for each in effect.segments}
                self.flush = (effect, covered, dict(self.written_marks))
                self.has_flush = True
            case Truncate():
                self.truncate = effect
            case CutTail():
                self._check_cut(effect)
                self.cuts.append(effect)
            case Appended() | Refuse() | Done():
                assert effect.token not in self.answers, "everybody is answered once"
                self.answers[effect.token] = effect
                if isinstance(effect, Appended):
                    self._check_acknowledged(effect)
                elif isinstance(effect, Done):
                    self._check_done(effect)
                elif effect.token in self.sent:
                    self._begin_anew(self.sent[effect.token])
            case Written():
                assert effect.token not in self.written, "its bytes are let go once"
                assert effect.token not in self.answers, "what is answered waits no more"
                self.written[effect.token] = None
            case RemoveFiles():
                for key in effect.segments:
                    self._check_removed(key)
                    del self.files[key]
                    self.removed.append(key)
                self.removed_sidecars += effect.sidecars
            case RemoveDirectory():
                self.removed_directories.append(effect.key)
                self.files = {
                    key: data for key, data in self.files.items() if key.partition != effect.key
                }
                self.answers[effect.token] = Done(token=effect.token, offset=Offset(0))
            case ReleaseFiles():
                self.released[effect.key] = effect.marks
                self.answers[effect.token] = Done(token=effect.token, offset=Offset(0))
            case Advanced():
                self.advanced.append(effect.key)

    def _check_acknowledged(self, effect: Appended) -> None:
        """acks=all only for what lies in the durable part of a file."""
        append = self.sent[effect.token]
        if not append.is_flush_awaited:
            return
        prefix = effect.base_offset.to_bytes(8, "big") + append.batch[8:12]
        for segment, content in self.files.items():
            if segment.partition == append.key:
                durable = content[: self.durable_bytes.get(segment, 0)]
                start = durable.find(prefix)
                while start >= 0:
                    same = 61 if effect.append_time_ms >= 0 else 16
                    if durable[start + same :].startswith(append.batch[same:]):
                        return
                    start = durable.find(prefix, start + 1)
        raise AssertionError(f"batch {effect.token} was acknowledged before it was durable")

    def _check_done(self, effect: Done) -> None:
        """A trim is done once its mark is durable."""
        asked = self.asked[effect.token]
        if isinstance(asked, TrimHead) and effect.offset > 0:
            durable = self.durable_marks.get((asked.key, MarkKind.LOG_START), 0)
            assert durable >= effect.offset, "a trim is done before its mark is durable"

    def _check_cut(self, effect: CutTail) -> None:
        """No FLUSHED mark, written or durable, promises what is cut off."""
        last = effect.last
        kept = effect.offset
        if last is not None:
            kept = last.base_offset
            for _, header in iterate_headers(self.files[last], is_compacted=True):
                if header.next_offset <= effect.offset:
                    kept = header.next_offset
        for marks in (self.written_marks, self.durable_marks):
            flushed = marks.get((effect.key, MarkKind.FLUSHED), 0)
            assert flushed <= max(kept, effect.log_start_offset), "a mark promises what is cut off"

    def _check_removed(self, key: SegmentKey) -> None:
        """A file goes if the log does without it: replaced, or wholly below the durable start."""
        partition = self.core.state.partitions.get(key.partition)
        # None: let go in this very step.
        segments = [] if partition is None else partition.log.segments
        assert all(key != segment.key for segment in segments), "a file of the log is removed"
        if key not in self.adopted:
            return
        end = key.base_offset
        for _, header in iterate_headers(self.files[key], is_compacted=True):
            end = header.next_offset
        durable = self.durable_marks.get((key.partition, MarkKind.LOG_START), 0)
        is_replaced = any(
            segment.base_offset <= key.base_offset < segment.next_offset for segment in segments
        )
        assert is_replaced or end <= durable, "a file is removed that a restart would miss"


def mark(partition: int, kind: MarkKind, value: int) -> Mark:
    """As the core writes it."""
    return Mark(key_of(partition), kind, value)
