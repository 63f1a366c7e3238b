"""One data directory's partitions: plans offsets, groups writes and flushes, acknowledges. Pure.

Owns the log states of every partition in the directory. It must never acknowledge acks=all before
the flush that covers the batch, reuse an offset that a reader or a producer may have seen, or write
behind bytes of which the fate is unknown. Stops 6, 8 and 9 of a record's walk.

Theory of operation. Appends wait in one queue. One write is in flight at a time and takes all that
waits; one flush round is in flight at a time and covers all that was written before it began:

    queued ── Write ──▶ written (acks=1 answered) ── Flush ──▶ flushed (acks=all answered,
      ▲                     │                                   high watermark moved)
      └── held: the active segment is full and not flushed yet

What a flush has made durable is marked: the mark is written with the next write and flushed with
the next round, so that a restart can tell a torn tail from damage to what was acknowledged.

A segment is flushed before the next one is made, so only the active segment can be torn. A full
disk cuts the round back, flushes the cut, refuses the round's batches and goes on. Any other
failure stops every partition of the directory: what reached the disk is not known any more.
"""

from collections import deque
from typing import Final, assert_never

from tidelog.broker.log.marks import Mark, MarkKind
from tidelog.broker.log.names import PartitionKey, SegmentKey, directory_name
from tidelog.broker.log.segments import Segment
from tidelog.broker.log.state import PartitionLog
from tidelog.broker.partition import invariants
from tidelog.broker.partition.messages import (
    Acknowledge,
    AddPartition,
    Advanced,
    AppendBatch,
    Effect,
    Flush,
    FlushEnded,
    Message,
    Refuse,
    SegmentWrite,
    Truncate,
    TruncateEnded,
    Write,
    WriteEnded,
)
from tidelog.broker.partition.rounds import (
    Awaiting,
    FlushRound,
    Partition,
    Planned,
    WriteRound,
)
from tidelog.broker.partition.stamping import NO_APPEND_TIME_MS, stamped_pieces
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

WRITE_BYTES_MAX: Final = 16 * 1024 * 1024
"""One write takes at most this much of the queue: it bounds the wait of what comes behind."""


class DirectoryCore:
    """`step(message)` returns what is to be done; see the module's theory of operation."""

    def __init__(self, *, write_bytes_max: int = WRITE_BYTES_MAX) -> None:
        self._write_bytes_max = write_bytes_max
        self.partitions: dict[PartitionKey, Partition] = {}
        self.queue: deque[AppendBatch] = deque()
        self.write: WriteRound | None = None
        self.is_truncating = False
        self.flush: FlushRound | None = None
        self.dirty: dict[SegmentKey, None] = {}
        self.dirty_directories: dict[str, None] = {}
        self.awaiting: list[Awaiting] = []
        self.failure: TidelogError | None = None
        self.marks: dict[PartitionKey, Offset] = {}
        self.postponed_marks: dict[PartitionKey, Offset] = {}
        """Of a write that did not fit: written with the next batches, not by themselves."""
        self.are_marks_unflushed = False

    def step(self, messages: list[Message]) -> list[Effect]:
        """Take the messages in their order, then begin what can be begun."""
        effects: list[Effect] = []
        for message in messages:
            self._on_message(message, effects)
        if self.failure is None:
            self._begin_write(effects)
            self._begin_flush(effects)
        invariants.check_step(self)
        return effects

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return not (
            self.queue
            or self.write
            or self.is_truncating
            or self.flush
            or self.dirty
            or self.awaiting
            or self.marks
            or self.are_marks_unflushed
        )

    def _on_message(self, message: Message, effects: list[Effect]) -> None:
        match message:
            case AppendBatch():
                self._on_append(message, effects)
            case WriteEnded():
                self._on_write_ended(message.error, effects)
            case FlushEnded():
                self._on_flush_ended(message.error, effects)
            case TruncateEnded():
                self._on_truncate_ended(message.error, effects)
            case AddPartition():
                assert message.log.key not in self.partitions, f"{message.log.key} is served twice"
                if self.failure is not None and message.log.failure is None:
                    message.log.failure = self.failure
                self.partitions[message.log.key] = Partition(message.log, message.settings)
            case _:
                raise NotImplementedError(message)

    def _on_append(self, append: AppendBatch, effects: list[Effect]) -> None:
        partition = self.partitions[append.key]
        if partition.log.failure is not None:
            effects.append(Refuse(token=append.token, error=partition.log.failure))
        else:
            self.queue.append(append)

    def _begin_write(self, effects: list[Effect]) -> None:
        """Plan a write of what waits, unless one is in flight or the last one is being cut back."""
        if self.write is not None or self.is_truncating or not (self.queue or self.marks):
            return
        round_ = WriteRound()
        while self.queue and round_.size_bytes < self._write_bytes_max:
            self._plan(self.queue.popleft(), round_)
        if not round_.planned and not self.marks:
            return
        self.write = round_
        round_.marks = tuple(
            Mark(key, MarkKind.FLUSHED, offset)
            for key, offset in {**self.postponed_marks, **self.marks}.items()
        )
        self.marks, self.postponed_marks = {}, {}
        effects.append(
            Write(
                writes=tuple(
                    SegmentWrite(
                        segment=key,
                        is_new=self._is_empty(key),
                        byte_position=self._length_of(key),
                        pieces=pieces,
                    )
                    for key, pieces in round_.pieces.items()
                ),
                marks=round_.marks,
            )
        )

    def _plan(self, append: AppendBatch, round_: WriteRound) -> None:
        """Give the batch its offset and place, or hold it until its full segment is flushed."""
        partition = self.partitions[append.key]
        if partition.held:
            partition.held.append(append)
            return
        log = partition.log
        base_offset = round_.ends.get(append.key, log.log_end_offset)
        segment = self._segment_for(append, partition, base_offset, round_)
        if segment is None:
            partition.held.append(append)
            return
        pieces, append_time_ms = stamped_pieces(
            append, base_offset, log.leader_epoch, is_append_time=partition.settings.is_append_time
        )
        round_.pieces.setdefault(segment, []).extend(pieces)
        round_.sizes[segment] = round_.sizes.get(segment, 0) + len(append.batch)
        round_.size_bytes += len(append.batch)
        round_.ends[append.key] = Offset(base_offset + append.header.last_offset_delta + 1)
        round_.planned.append(
            Planned(
                append=append,
                segment=segment,
                base_offset=base_offset,
                append_time_ms=append_time_ms,
            )
        )

    def _segment_for(
        self, append: AppendBatch, partition: Partition, base_offset: Offset, round_: WriteRound
    ) -> SegmentKey | None:
        """The active segment, or a new one; None if the active one must be flushed first."""
        log = partition.log
        made = round_.new_segments.get(append.key)
        if made is not None:
            return made if self._fits(partition, round_.sizes[made], append) else None
        if log.segments:
            active = SegmentKey(append.key, Offset(log.segments[-1].base_offset))
            size_bytes = log.segments[-1].size_bytes + round_.sizes.get(active, 0)
            if size_bytes == 0 or self._fits(partition, size_bytes, append):
                return active
            if active in round_.sizes or self._is_unflushed(active):
                return None
        made = SegmentKey(append.key, base_offset)
        round_.new_segments[append.key] = made
        return made

    def _is_empty(self, key: SegmentKey) -> bool:
        """Whether nothing was written to the segment yet: then it may have no file."""
        segments = self.partitions[key.partition].log.segments
        return (
            not segments
            or segments[-1].base_offset != key.base_offset
            or segments[-1].size_bytes == 0
        )

    def _length_of(self, key: SegmentKey) -> int:
        segments = self.partitions[key.partition].log.segments
        return 0 if self._is_empty(key) else segments[-1].size_bytes

    def _fits(self, partition: Partition, size_bytes: int, append: AppendBatch) -> bool:
        return size_bytes + len(append.batch) <= partition.settings.segment_bytes

    def _is_unflushed(self, segment: SegmentKey) -> bool:
        return segment in self.dirty or (self.flush is not None and segment in self.flush.segments)

    def _on_write_ended(self, error: TidelogError | None, effects: list[Effect]) -> None:
        round_ = self.write
        assert round_ is not None, "a write ended that never began"
        self.write = None
        if self.failure is not None:
            self._refuse_planned(round_, self.failure, effects)
        elif error is None:
            self._take_in(round_, effects)
        elif error.code is ErrorCode.STORAGE_FULL:
            self._cut_back(round_, error, effects)
        else:
            self._refuse_planned(round_, error, effects)
            self._stop(error, effects)

    def _take_in(self, round_: WriteRound, effects: list[Effect]) -> None:
        """What was written becomes part of the logs; acks=1 is answered."""
        self.are_marks_unflushed = self.are_marks_unflushed or bool(round_.marks)
        for planned in round_.planned:
            append = planned.append
            log = self.partitions[append.key].log
            assert log.log_end_offset == planned.base_offset, f"{log.key}: an offset was skipped"
            segment = _active_segment(log, planned.segment)
            if segment.size_bytes == 0:
                self.dirty_directories[""] = None
                self.dirty_directories[directory_name(append.key)] = None
            header = append.header
            is_stamped = planned.append_time_ms != NO_APPEND_TIME_MS
            max_timestamp = planned.append_time_ms if is_stamped else header.max_timestamp
            next_offset = Offset(planned.base_offset + header.last_offset_delta + 1)
            segment.add(planned.base_offset, next_offset, len(append.batch), max_timestamp)
            log.log_end_offset = next_offset
            self.dirty[planned.segment] = None
            answer = Acknowledge(
                token=append.token,
                base_offset=planned.base_offset,
                append_time_ms=planned.append_time_ms,
            )
            if append.is_flush_awaited:
                self.awaiting.append(Awaiting(answer=answer))
            else:
                effects.append(answer)

    def _cut_back(self, round_: WriteRound, error: TidelogError, effects: list[Effect]) -> None:
        """Nothing of a round that did not fit may come back after a crash: refused once flushed.

        A segment that was made for it stays, empty and active: were the older one to grow again, a
        restart would find a gap between them. The round's marks wait for the next batches:
        writing them by themselves again and again would keep a full disk busy.
        """
        self.postponed_marks = {mark.key: Offset(mark.value) for mark in round_.marks}
        lengths = []
        for key in round_.sizes:
            segment = _active_segment(self.partitions[key.partition].log, key)
            lengths.append((key, segment.size_bytes))
            self.dirty[key] = None
        self.awaiting += [
            Awaiting(answer=Refuse(token=planned.append.token, error=error))
            for planned in round_.planned
        ]
        self.is_truncating = True
        effects.append(Truncate(lengths=tuple(lengths)))

    def _on_truncate_ended(self, error: TidelogError | None, effects: list[Effect]) -> None:
        assert self.is_truncating, "a truncation ended that never began"
        self.is_truncating = False
        if error is not None and self.failure is None:
            self._stop(error, effects)

    def _begin_flush(self, effects: list[Effect]) -> None:
        """Flush what was written; marks go with it, and by themselves only when all is quiet."""
        if self.flush is not None or self.is_truncating:
            return
        is_quiet = self.write is None and not self.queue
        if not self.dirty and not (self.are_marks_unflushed and is_quiet):
            return
        keys = dict.fromkeys(segment.partition for segment in self.dirty)
        ends = tuple(
            (
                self.partitions[key],
                self.partitions[key].log.log_end_offset,
                self.partitions[key].log.end_position(),
            )
            for key in keys
        )
        self.flush = FlushRound(
            segments=tuple(self.dirty), ends=ends, awaiting=tuple(self.awaiting)
        )
        effects.append(
            Flush(
                segments=self.flush.segments,
                directories=tuple(self.dirty_directories),
                with_marks=self.are_marks_unflushed,
            )
        )
        self.are_marks_unflushed = False
        self.dirty, self.dirty_directories, self.awaiting = {}, {}, []

    def _on_flush_ended(self, error: TidelogError | None, effects: list[Effect]) -> None:
        round_ = self.flush
        assert round_ is not None, "a flush ended that never began"
        self.flush = None
        if error is not None and self.failure is None:
            self._stop(error, effects)
        if self.failure is not None:
            self._refuse_awaiting(round_.awaiting, effects)
            return
        released: list[AppendBatch] = []
        for partition, end_offset, position in round_.ends:
            log = partition.log
            if end_offset > log.high_watermark:
                log.advance(end_offset, position)
                self.marks[log.key] = end_offset
                effects.append(Advanced(key=log.key))
            if partition.held:
                released += partition.held
                partition.held.clear()
        self.queue.extendleft(reversed(released))
        effects += [waiting.answer for waiting in round_.awaiting]

    def _stop(self, error: TidelogError, effects: list[Effect]) -> None:
        """Every partition of the directory stops; whoever waits is told."""
        assert self.failure is None, "a directory stops once"
        self.failure = error
        for partition in self.partitions.values():
            for append in partition.held:
                effects.append(Refuse(token=append.token, error=error))
            partition.held.clear()
            if partition.log.failure is None:
                partition.log.failure = error
                effects.append(Advanced(key=partition.log.key))
        for append in self.queue:
            effects.append(Refuse(token=append.token, error=error))
        self.queue.clear()
        self._refuse_awaiting(tuple(self.awaiting), effects)
        self.awaiting, self.dirty, self.dirty_directories = [], {}, {}
        self.marks, self.postponed_marks = {}, {}
        self.are_marks_unflushed = False

    def _refuse_awaiting(self, awaiting: tuple[Awaiting, ...], effects: list[Effect]) -> None:
        assert self.failure is not None, "only a failed directory refuses what was written"
        for waiting in awaiting:
            effects.append(Refuse(token=waiting.answer.token, error=self.failure))

    def _refuse_planned(
        self, round_: WriteRound, error: TidelogError, effects: list[Effect]
    ) -> None:
        for planned in round_.planned:
            effects.append(Refuse(token=planned.append.token, error=error))


def _active_segment(log: PartitionLog, key: SegmentKey) -> Segment:
    """The segment that a round wrote to: the last one, from now on also if the round made it."""
    if not log.segments or log.segments[-1].base_offset != key.base_offset:
        assert key.base_offset == log.log_end_offset, (
            f"{log.key}: a segment begins at its log's end"
        )
        log.begin_segment(key)
    return log.segments[-1]
