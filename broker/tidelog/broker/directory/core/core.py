"""One data directory's partitions: plans offsets, groups writes and flushes, acknowledges. Pure.

Owns the log states of every partition in the directory. It must never acknowledge acks=all before
the batch is committed, and of an only replica before the flush that covers it, reuse an offset that
a reader or a producer may have seen, write behind bytes of which the fate is unknown, or let go of
a file that a restart would miss. Stops 6, 8 and 9 of a record's walk.

Theory of operation. Appends wait in one queue. One write is in flight at a time and takes all that
waits; one flush round is in flight at a time and covers all that was written before it began:

    queued ── Write ──▶ written (acks=1 answered) ── Flush ──▶ flushed (acks=all answered,
      ▲                     │                                   high watermark moved)
      └── held: the active segment is full and not flushed yet

What a flush has made durable is marked: the mark is written with the next write, or at once where
nothing waits, and flushed with the next round, or after a tick without one, so that a restart can
tell a torn tail from damage to what was acknowledged.

On a topic with flush=replicated the high watermark moves with the write, and what nobody waits for
is flushed with a round of its own only after the flush interval (`Tick`), or before a roll.

A segment is flushed before the next one is made, so only the active segment can be torn. It is
sealed then, and changes no more: by size, by age, or because it was asked for (planning). What is
known of it in memory is dropped once its sidecar is there and says the same (sealing).

Where a log begins and ends is marked before anything goes (trimming, cutting):

    trim ── mark written ── flushed ──▶ log_start moves ──▶ files wholly below it are removed
    cut ── written part waits for nobody ── lower mark flushed ──▶ files are cut ──▶ log_end moves

Of several replicas one leads, and commits what all have that it waits for; the others follow, store
what it has stored, and commit what it has committed (role_changes). Batches of idempotent producers
are judged when they are planned (resends).

A full disk cuts the round back, flushes the cut, refuses the round's batches and goes on; below the
free-space floor appends are refused before it comes to that. Damage stops one partition. Any other
failure stops every partition of the directory: what reached the disk is not known any more.
"""

from collections import deque
from typing import Final, assert_never

from tidelog.broker.directory.core import (
    cutting,
    invariants,
    planning,
    removal,
    role_changes,
    sealing,
    stopping,
    trimming,
    writing,
)
from tidelog.broker.directory.core.messages import (
    AddPartition,
    Advanced,
    AppendBatch,
    CommitTo,
    Configure,
    CutEnded,
    Effect,
    FailDirectory,
    FailPartition,
    Flush,
    FlushAll,
    FlushEnded,
    Follow,
    FollowerAt,
    Forget,
    Lead,
    Message,
    Moved,
    Refuse,
    ReleasePartition,
    RemoveFiles,
    RemovePartition,
    ReplaceSegments,
    RestartLog,
    RollSegment,
    SegmentSealed,
    SetFull,
    Tick,
    TrimHead,
    TruncateEnded,
    TruncateTail,
    WriteEnded,
)
from tidelog.broker.directory.core.role_errors import node_stopping
from tidelog.broker.directory.core.rounds import (
    Awaiting,
    Cut,
    FlushRound,
    Following,
    Partition,
    Promise,
    Removal,
    WriteRound,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset, PartitionKey

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
        self.write_bytes_max = write_bytes_max
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
        self.are_marks_due = False
        """Nothing was flushed for so long that marks are flushed by themselves."""
        self.committed_marks: dict[PartitionKey, Offset] = {}
        """COMMITTED marks to be written, with whatever is written next."""
        self.are_committed_marks_due = False
        """Nothing was written for so long that they are written by themselves; flushed with what
        comes, as the death of the process alone loses nothing that was written."""
        self.promises: list[Promise] = []
        """Of which the marks are to be written."""
        self.written_promises: list[Promise] = []
        self.rolls: list[Partition] = []
        self.cuts: list[Cut] = []
        self.removals: list[Removal] = []
        self.doomed: list[trimming.Doomed] = []
        self.duplicates_answered = 0
        """Batches that were sent again, since the start."""
        self.moved: dict[PartitionKey, Partition] = {}
        """One of several replicas each, of which this step has moved an end."""

    def step(self, messages: list[Message]) -> list[Effect]:
        """Take the messages in their order, then begin what can be begun."""
        effects: list[Effect] = []
        for message in messages:
            # Nearly all of them are: the other kinds are told apart behind.
            if isinstance(message, AppendBatch):
                self._on_append(message, effects)
            else:
                self._on_message(message, effects)
        if self.cuts:
            cutting.advance(self, effects)
        if self.removals:
            removal.advance(self, effects)
        if self.moved:
            self._tell_moved(effects)
        if self.failure is None:
            writing.begin_write(self, effects)
            self._begin_flush(effects)
        invariants.check_step(self)
        return effects

    def _tell_moved(self, effects: list[Effect]) -> None:
        moved, self.moved = self.moved, {}
        for key, partition in moved.items():
            role_changes.advance(self, partition, effects)
            effects.append(Moved(key=key))

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
            case WriteEnded():
                writing.on_write_ended(self, message, effects)
            case FlushEnded():
                self._on_flush_ended(message, effects)
            case Tick():
                self._on_tick(message.now_ms)
            case FollowerAt():
                role_changes.on_follower_at(self, message, effects)
            case CommitTo():
                role_changes.on_commit_to(self, message, effects)
            case Lead():
                role_changes.on_lead(self, message, effects)
            case Follow():
                role_changes.on_follow(self, message, effects)
            case RestartLog():
                cutting.on_restart(self, message, effects)
            case TruncateEnded():
                writing.on_truncate_ended(self, message.error, effects)
            case AddPartition():
                self._on_add(message, effects)
            case RollSegment():
                self._on_roll(message.key)
            case TrimHead():
                trimming.on_trim(self, message, effects)
            case TruncateTail():
                cutting.on_truncate(self, message, effects)
            case CutEnded():
                cutting.on_cut_ended(self, message, effects)
            case SegmentSealed():
                sealing.on_sealed(self, message, effects)
            case ReplaceSegments():
                sealing.on_replaced(self, message, effects)
            case RemovePartition():
                removal.on_remove(self, message, effects)
            case ReleasePartition():
                removal.on_release(self, message, effects)
            case FailDirectory():
                stopping.on_fail_directory(self, message, effects)
            case FailPartition():
                stopping.on_fail_partition(self, message, effects)
            case Configure():
                self._on_configure(message)
            case SetFull():
                self.is_full = message.is_full
            case FlushAll():
                self._on_flush_all(effects)
            case AppendBatch():
                self._on_append(message, effects)
            case Forget():
                role_changes.on_forget(self, message, effects)
            case _:
                assert_never(message)

    def _on_add(self, message: AddPartition, effects: list[Effect]) -> None:
        log = message.log
        assert log.key not in self.partitions, f"{log.key} is served twice"
        assert all(each.key != log.key for each in self.removals), f"{log.key} is being removed"
        if self.failure is not None and log.failure is None:
            log.failure = self.failure
        partition = self.partitions[log.key] = Partition(log, message.settings)
        if not message.is_sole:
            partition.role = Following()
            log.keep_uncommitted()
        if message.is_opened_at_work and log.failure is None:
            self.marks[log.key] = log.flushed_offset
        if message.leftovers and log.failure is None:
            effects.append(RemoveFiles(segments=message.leftovers))

    def _on_configure(self, message: Configure) -> None:
        partition = self.partitions.get(message.key)
        if partition is None:
            return
        partition.settings = message.settings
        if partition.is_lazy and message.settings.is_flush_sync:
            self.make_dirty(partition)
        if partition.role is not None:
            self.moved[message.key] = partition

    def _on_flush_all(self, effects: list[Effect]) -> None:
        self.is_stopping = True
        for partition in list(self.lazy.values()):
            self.make_dirty(partition)
        for partition in self.partitions.values():
            # No follower is listened to any more.
            stopping.refuse_commits(partition, node_stopping(partition.log.key), effects)

    def _on_append(self, append: AppendBatch, effects: list[Effect]) -> None:
        partition = self.partitions.get(append.key)
        if (
            partition is not None
            and not self.is_full
            and partition.log.failure is None
            and partition.cut is None
        ):
            error = None if partition.role is None else role_changes.objection(partition, append)
            if error is None:
                self.queue.append(append)
                return
        else:
            error = stopping.refusal(self, append.key)
        effects.append(Refuse(token=append.token, error=error))

    def _on_roll(self, key: PartitionKey) -> None:
        partition = self.partitions.get(key)
        if partition is None or partition.cut is not None or partition.log.failure is not None:
            return
        # What is in flight may fill an empty segment, or roll by itself: asked again when planned.
        can_roll = planning.can_roll(partition) or partition.plan is not None
        if can_roll and not partition.is_roll_asked:
            partition.is_roll_asked = True
            self.rolls.append(partition)

    def _on_tick(self, now_ms: int) -> None:
        assert now_ms >= self.now_ms, f"time went back from {self.now_ms} to {now_ms}"
        self.now_ms = now_ms
        self.are_committed_marks_due = bool(self.committed_marks)
        self.are_marks_due = self.are_marks_unflushed
        while self.lazy:
            partition = next(iter(self.lazy.values()))
            if now_ms - partition.lazy_since_ms < self._flush_interval_ms:
                return
            self.make_dirty(partition)

    def _begin_flush(self, effects: list[Effect]) -> None:
        """Flush what was written. Marks go with it, and by themselves only after a quiet tick, or
        when somebody waits for them: a batch that came meanwhile would wait for two rounds.
        """
        if self.flush is not None or self.is_truncating:
            return
        if not self.dirty:
            is_quiet = self.write is None and not self.queue
            is_due = is_quiet and (self.are_marks_due or self.is_stopping)
            if not self.are_marks_unflushed or not (is_due or self.written_promises):
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
        self.are_marks_unflushed = self.are_marks_due = False
        self.dirty, self.dirty_directories = [], {}
        self.awaiting, self.written_promises = [], []

    def _on_flush_ended(self, message: FlushEnded, effects: list[Effect]) -> None:
        error, round_ = message.error, self.flush
        assert round_ is not None, "a flush ended that never began"
        self.flush = None
        if error is not None and self.failure is None:
            stopping.stop(self, error, effects)
        if self.failure is not None:
            stopping.refuse_awaiting(self, round_.awaiting, effects)
            stopping.refuse_promises(self, round_.promises, self.failure, effects)
            return
        for key, unusable in message.unusable.items():
            stopping.fail_partition(self, key, unusable, effects)
        released: list[AppendBatch] = []
        for partition, end_offset, position in round_.ends:
            partition.is_flushing = False
            if partition.cut is None and partition.log.key not in message.unusable:
                self._note_flushed(partition, end_offset, position, effects)
            if partition.held:
                released += partition.held
                partition.held.clear()
        self.queue.extendleft(reversed(released))
        for promise in round_.promises:
            trimming.keep(self, promise, effects)
        effects += [
            stopping.answer_of(waiting, message.unusable.get(waiting.partition.log.key))
            for waiting in round_.awaiting
        ]
        if self.doomed:
            trimming.remove_doomed(self, effects)

    def _note_flushed(
        self,
        partition: Partition,
        end_offset: Offset,
        position: tuple[int, int],
        effects: list[Effect],
    ) -> None:
        """All below the offset is durable; an only replica's is committed, if it was not yet."""
        log = partition.log
        if end_offset > log.flushed_offset:
            log.note_flushed(end_offset)
            if not partition.is_removed:
                self.marks[log.key] = end_offset
        if partition.role is not None:
            self.moved[log.key] = partition
        elif end_offset > log.high_watermark:
            log.commit(end_offset, position)
            effects.append(Advanced(key=log.key))
