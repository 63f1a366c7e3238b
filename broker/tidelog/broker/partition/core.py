"""One data directory's partitions: plans offsets, groups writes and flushes, acknowledges. Pure.

Owns the log states of every partition in the directory. It must never acknowledge acks=all before
the flush that covers the batch, reuse an offset that a reader or a producer may have seen, write
behind bytes of which the fate is unknown, or let go of a file that a restart would miss. Stops 6, 8
and 9 of a record's walk.

Theory of operation. Appends wait in one queue. One write is in flight at a time and takes all that
waits; one flush round is in flight at a time and covers all that was written before it began:

    queued ── Write ──▶ written (acks=1 answered) ── Flush ──▶ flushed (acks=all answered,
      ▲                     │                                   high watermark moved)
      └── held: the active segment is full and not flushed yet

What a flush has made durable is marked: the mark is written with the next write and flushed with
the next round, so that a restart can tell a torn tail from damage to what was acknowledged.

On a topic with flush=replicated the high watermark moves with the write, and what nobody waits for
is flushed with a round of its own only after the flush interval (`Tick`), or before a roll.

A segment is flushed before the next one is made, so only the active segment can be torn. It is
sealed then, and changes no more: by size, by age, or because it was asked for (core_plan). What is
known of it in memory is dropped once its sidecar is there and says the same (core_seal).

Where a log begins and ends is marked before anything goes (core_trim, core_cut):

    trim ── mark written ── flushed ──▶ log_start moves ──▶ files wholly below it are removed
    cut ── written part waits for nobody ── lower mark flushed ──▶ files are cut ──▶ log_end moves

A full disk cuts the round back, flushes the cut, refuses the round's batches and goes on; below the
free-space floor appends are refused before it comes to that. Damage stops one partition. Any other
failure stops every partition of the directory: what reached the disk is not known any more.
"""

from collections import deque
from typing import Final, assert_never

from tidelog.broker.log.marks import Mark, MarkKind
from tidelog.broker.log.names import PartitionKey, directory_name
from tidelog.broker.log.state import NO_GAPS
from tidelog.broker.partition import (
    core_cut,
    core_plan,
    core_removal,
    core_seal,
    core_stop,
    core_trim,
    invariants,
)
from tidelog.broker.partition.messages import (
    Acknowledge,
    AddPartition,
    Advanced,
    AppendBatch,
    Configure,
    CutEnded,
    Effect,
    FailPartition,
    Flush,
    FlushAll,
    FlushEnded,
    Message,
    Refuse,
    RemoveFiles,
    RemovePartition,
    ReplaceSegments,
    RollSegment,
    SegmentSealed,
    SegmentWrite,
    SetFull,
    Tick,
    TrimHead,
    Truncate,
    TruncateEnded,
    TruncateTail,
    Write,
    WriteEnded,
)
from tidelog.broker.partition.rounds import (
    Awaiting,
    Cut,
    FlushRound,
    Partition,
    Promise,
    SegmentPlan,
    WriteRound,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

WRITE_BYTES_MAX: Final = 16 * 1024 * 1024
"""One write takes at most this much of the queue: it bounds the wait of what comes behind."""
FLUSH_INTERVAL_MS: Final = 1_000
"""Default of flush.replicated.interval: so long may a write wait that nobody waits for."""


class DirectoryCore:
    """`step(message)` returns what is to be done; see the module's theory of operation."""

    def __init__(
        self,
        *,
        write_bytes_max: int = WRITE_BYTES_MAX,
        flush_interval_ms: int = FLUSH_INTERVAL_MS,
    ) -> None:
        self._write_bytes_max = write_bytes_max
        self._flush_interval_ms = flush_interval_ms
        self.now_ms = 0
        """As the last tick told it."""
        self.partitions: dict[PartitionKey, Partition] = {}
        self.queue: deque[AppendBatch] = deque()
        self.write: WriteRound | None = None
        self.is_truncating = False
        self.flush: FlushRound | None = None
        self.dirty: list[Partition] = []
        """Whose active segments the next round covers."""
        self.lazy: dict[PartitionKey, Partition] = {}
        """Whose active segments wait for the flush interval; the one that waits longest first."""
        self.dirty_directories: dict[str, None] = {}
        self.awaiting: list[Awaiting] = []
        self.failure: TidelogError | None = None
        self.is_full = False
        self.is_stopping = False
        self.marks: dict[PartitionKey, Offset] = {}
        """FLUSHED marks to be written."""
        self.postponed_marks: dict[PartitionKey, Offset] = {}
        """Of a write that did not fit: written with the next batches, not by themselves."""
        self.are_marks_unflushed = False
        self.promises: list[Promise] = []
        """Of which the marks are to be written."""
        self.written_promises: list[Promise] = []
        self.rolls: list[Partition] = []
        self.cuts: list[Cut] = []
        self.removals: list[core_removal.Removal] = []
        self.doomed: list[core_trim.Doomed] = []

    def step(self, messages: list[Message]) -> list[Effect]:
        """Take the messages in their order, then begin what can be begun."""
        effects: list[Effect] = []
        for message in messages:
            self._on_message(message, effects)
        if self.cuts:
            core_cut.advance(self, effects)
        if self.removals:
            core_removal.advance(self, effects)
        if self.failure is None:
            self._begin_write(effects)
            self._begin_flush(effects)
        invariants.check_step(self)
        return effects

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is in flight, but for what waits for the flush interval."""
        return not (
            self.queue
            or self.write
            or self.is_truncating
            or self.flush
            or self.dirty
            or self.awaiting
            or self.marks
            or self.are_marks_unflushed
            or self.promises
            or self.written_promises
            or self.rolls
            or self.cuts
            or self.removals
        )

    def make_dirty(self, partition: Partition) -> None:
        """The next flush round covers its active segment."""
        if partition.is_lazy:
            partition.is_lazy = False
            del self.lazy[partition.log.key]
        if not partition.is_dirty:
            partition.is_dirty = True
            self.dirty.append(partition)

    def _on_message(self, message: Message, effects: list[Effect]) -> None:
        match message:
            case AppendBatch():
                self._on_append(message, effects)
            case WriteEnded():
                self._on_write_ended(message.error, effects)
            case FlushEnded():
                self._on_flush_ended(message.error, effects)
            case Tick():
                self._on_tick(message.now_ms)
            case TruncateEnded():
                self._on_truncate_ended(message.error, effects)
            case AddPartition():
                self._on_add(message, effects)
            case RollSegment():
                self._on_roll(message.key)
            case TrimHead():
                core_trim.on_trim(self, message, effects)
            case TruncateTail():
                core_cut.on_truncate(self, message, effects)
            case CutEnded():
                core_cut.on_cut_ended(self, message, effects)
            case SegmentSealed():
                core_seal.on_sealed(self, message, effects)
            case ReplaceSegments():
                core_seal.on_replaced(self, message, effects)
            case RemovePartition():
                core_removal.on_remove(self, message, effects)
            case FailPartition():
                core_stop.fail_partition(self, message.key, message.error, effects)
            case Configure():
                self._on_configure(message)
            case SetFull():
                self.is_full = message.is_full
            case FlushAll():
                self.is_stopping = True
                for partition in list(self.lazy.values()):
                    self.make_dirty(partition)
            case _:
                assert_never(message)

    def _on_add(self, message: AddPartition, effects: list[Effect]) -> None:
        log = message.log
        assert log.key not in self.partitions, f"{log.key} is served twice"
        if self.failure is not None and log.failure is None:
            log.failure = self.failure
        self.partitions[log.key] = Partition(log, message.settings)
        if message.leftovers and log.failure is None:
            effects.append(RemoveFiles(segments=message.leftovers))

    def _on_configure(self, message: Configure) -> None:
        partition = self.partitions.get(message.key)
        if partition is None:
            return
        partition.settings = message.settings
        if partition.is_lazy and message.settings.is_flush_sync:
            self.make_dirty(partition)

    def _on_append(self, append: AppendBatch, effects: list[Effect]) -> None:
        partition = self.partitions.get(append.key)
        if (
            partition is not None
            and not self.is_full
            and partition.log.failure is None
            and partition.cut is None
        ):
            self.queue.append(append)
        else:
            error = core_stop.refusal(self, append.key)
            effects.append(Refuse(token=append.token, error=error))

    def _on_roll(self, key: PartitionKey) -> None:
        partition = self.partitions.get(key)
        if partition is None or partition.cut is not None or partition.log.failure is not None:
            return
        # What is in flight may fill an empty segment, or roll by itself: asked again when planned.
        can_roll = core_plan.can_roll(partition) or partition.plan is not None
        if can_roll and not partition.is_roll_asked:
            partition.is_roll_asked = True
            self.rolls.append(partition)

    def _on_tick(self, now_ms: int) -> None:
        assert now_ms >= self.now_ms, f"time went back from {self.now_ms} to {now_ms}"
        self.now_ms = now_ms
        while self.lazy:
            partition = next(iter(self.lazy.values()))
            if now_ms - partition.lazy_since_ms < self._flush_interval_ms:
                return
            self.make_dirty(partition)

    def _begin_write(self, effects: list[Effect]) -> None:
        """Plan a write of what waits, unless one is in flight or the last one is being cut back."""
        if self.write is not None or self.is_truncating:
            return
        if not (self.queue or self.marks or self.promises or self.rolls):
            return
        round_ = WriteRound()
        if self.rolls:
            self._plan_rolls(round_)
        while self.queue and round_.size_bytes < self._write_bytes_max:
            self._plan(self.queue.popleft(), round_, effects)
        if not (round_.plans or self.marks or self.promises):
            return
        self.write = round_
        core_trim.take_marks(self, round_)
        effects.append(
            Write(
                writes=tuple(
                    SegmentWrite(
                        segment=plan.segment,
                        is_new=plan.is_new,
                        byte_position=plan.byte_position,
                        pieces=plan.pieces,
                    )
                    for plan in round_.plans
                ),
                marks=round_.marks,
            )
        )

    def _plan(self, append: AppendBatch, round_: WriteRound, effects: list[Effect]) -> None:
        """Give the batch its offset and place, or hold it until its full segment is flushed."""
        partition = self.partitions[append.key]
        if partition.held:
            partition.held.append(append)
            return
        try:
            is_planned = core_plan.plan_batch(partition, append, round_)
        except TidelogError as error:
            effects.append(Refuse(token=append.token, error=error))
            return
        if not is_planned:
            partition.held.append(append)
            if partition.is_lazy:
                self.make_dirty(partition)

    def _plan_rolls(self, round_: WriteRound) -> None:
        rolls, self.rolls = self.rolls, []
        for partition in rolls:
            if not partition.is_roll_asked or partition.is_removed:
                continue
            if not core_plan.plan_roll(partition, round_):
                self.rolls.append(partition)
                if partition.is_lazy:
                    self.make_dirty(partition)

    def _on_write_ended(self, error: TidelogError | None, effects: list[Effect]) -> None:
        round_ = self.write
        assert round_ is not None, "a write ended that never began"
        self.write = None
        for plan in round_.plans:
            plan.partition.plan = None
        if self.failure is not None:
            core_stop.refuse_write(self, round_, self.failure, effects)
        elif error is None:
            self._take_in(round_, effects)
        elif error.code is ErrorCode.STORAGE_FULL:
            self._cut_back(round_, error, effects)
        else:
            core_stop.refuse_write(self, round_, error, effects)
            core_stop.stop(self, error, effects)

    def _take_in(self, round_: WriteRound, effects: list[Effect]) -> None:
        """What was written becomes part of the logs; acks=1 is answered."""
        if round_.marks:
            self.are_marks_unflushed = True
            self.written_promises += round_.promises
        self._begin_segments(round_)
        for planned in round_.planned:
            header = planned.header
            planned.plan.partition.log.take_in(header)
            answer = Acknowledge(
                token=planned.append.token,
                base_offset=header.base_offset,
                append_time_ms=planned.append_time_ms,
            )
            if planned.append.is_flush_awaited:
                self.awaiting.append(Awaiting(answer, planned))
            else:
                effects.append(answer)
        for plan in round_.plans:
            self._take_in_plan(plan, effects)

    def _begin_segments(self, round_: WriteRound) -> None:
        """Logs go on in new segments; the ones before may lie below their logs' start."""
        for plan in round_.plans:
            if plan.is_new:
                log = plan.partition.log
                log.begin_segment(plan.segment)
                core_trim.doom(self, log.key, log.drop_trimmed())

    def _take_in_plan(self, plan: SegmentPlan, effects: list[Effect]) -> None:
        """The partition's segment is to be flushed: soon, or once it has waited long enough."""
        partition, log = plan.partition, plan.partition.log
        assert log.log_end_offset == plan.end_offset, f"{log.key}: an offset was skipped"
        if not plan.byte_position:
            self.dirty_directories[""] = None
            self.dirty_directories[directory_name(log.key)] = None
        if plan.gaps_from != NO_GAPS:
            log.gaps_from = plan.gaps_from
        is_soon = plan.is_flush_awaited or partition.held or self.is_stopping
        if partition.settings.is_flush_sync or is_soon:
            self.make_dirty(partition)
        elif not (partition.is_dirty or partition.is_lazy):
            partition.is_lazy, partition.lazy_since_ms = True, self.now_ms
            self.lazy[log.key] = partition
        if not partition.settings.is_flush_sync and partition.cut is None:
            log.commit(log.log_end_offset, log.end_position())
            effects.append(Advanced(key=log.key))

    def _cut_back(self, round_: WriteRound, error: TidelogError, effects: list[Effect]) -> None:
        """Nothing of a round that did not fit may come back after a crash: refused once flushed.

        A segment that was made for it stays, empty and active: were the older one to grow again, a
        restart would find a gap between them. The round's marks wait for the next batches:
        writing them by themselves again and again would keep a full disk busy.
        """
        self.postponed_marks = {
            mark.key: Offset(mark.value)
            for mark in round_.marks
            if mark.kind is MarkKind.FLUSHED and self._is_flushed(mark)
        }
        lengths = []
        self._begin_segments(round_)
        for plan in round_.plans:
            lengths.append((plan.segment, plan.byte_position))
            self.make_dirty(plan.partition)
        self.awaiting += [
            Awaiting(Refuse(token=planned.append.token, error=error), planned)
            for planned in round_.planned
        ]
        core_stop.refuse_promises(self, round_.promises, error, effects)
        self.is_truncating = True
        effects.append(Truncate(lengths=tuple(lengths)))

    def _is_flushed(self, mark: Mark) -> bool:
        """Whether a FLUSHED mark still holds: a cut may have lowered what it says."""
        partition = self.partitions.get(mark.key)
        return partition is not None and mark.value <= partition.log.flushed_offset

    def _on_truncate_ended(self, error: TidelogError | None, effects: list[Effect]) -> None:
        assert self.is_truncating, "a truncation ended that never began"
        self.is_truncating = False
        if error is not None and self.failure is None:
            core_stop.stop(self, error, effects)

    def _begin_flush(self, effects: list[Effect]) -> None:
        """Flush what was written; marks go with it, and by themselves only when all is quiet, or
        when somebody waits for them.
        """
        if self.flush is not None or self.is_truncating:
            return
        if not self.dirty:
            is_quiet = self.write is None and not self.queue
            if not self.are_marks_unflushed or not (is_quiet or self.written_promises):
                return
        ends, segments = [], []
        for partition in self.dirty:
            log = partition.log
            partition.is_dirty, partition.is_flushing = False, True
            ends.append((partition, log.log_end_offset, log.end_position()))
            segments.append(log.segments[-1].key)
        self.flush = FlushRound(
            ends=tuple(ends), awaiting=self.awaiting, promises=self.written_promises
        )
        effects.append(
            Flush(
                segments=tuple(segments),
                directories=tuple(self.dirty_directories),
                with_marks=self.are_marks_unflushed,
            )
        )
        self.are_marks_unflushed = False
        self.dirty, self.dirty_directories = [], {}
        self.awaiting, self.written_promises = [], []

    def _on_flush_ended(self, error: TidelogError | None, effects: list[Effect]) -> None:
        round_ = self.flush
        assert round_ is not None, "a flush ended that never began"
        self.flush = None
        if error is not None and self.failure is None:
            core_stop.stop(self, error, effects)
        if self.failure is not None:
            core_stop.refuse_awaiting(self, round_.awaiting, effects)
            core_stop.refuse_promises(self, round_.promises, self.failure, effects)
            return
        released: list[AppendBatch] = []
        for partition, end_offset, position in round_.ends:
            partition.is_flushing = False
            if partition.cut is None:
                self._note_flushed(partition, end_offset, position, effects)
            if partition.held:
                released += partition.held
                partition.held.clear()
        self.queue.extendleft(reversed(released))
        for promise in round_.promises:
            core_trim.keep(self, promise, effects)
        effects += [waiting.answer for waiting in round_.awaiting]
        if self.doomed:
            core_trim.remove_doomed(self, effects)

    def _note_flushed(
        self,
        partition: Partition,
        end_offset: Offset,
        position: tuple[int, int],
        effects: list[Effect],
    ) -> None:
        """All below the offset is durable; with one replica that commits it, if nothing has yet."""
        log = partition.log
        if end_offset > log.flushed_offset:
            log.note_flushed(end_offset)
            if not partition.is_removed:
                self.marks[log.key] = end_offset
        if end_offset > log.high_watermark:
            log.commit(end_offset, position)
            effects.append(Advanced(key=log.key))
