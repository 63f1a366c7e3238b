"""What a directory's core keeps, and the primitives that all of its subjects are made of. Pure.

Owns the state that is shared between subjects: partitions, the queue, what is in flight, what waits
for a flush, the effects of this step. Whoever decides (writing, cutting, role_changes, …) calls
these primitives; nobody writes an attribute of another's object, and `make check` sees to that.
Holds no decision of a subject.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from tidelog.broker.directory.core.messages import (
    Advanced,
    AppendBatch,
    Appended,
    Done,
    Effect,
    Refuse,
    Stopped,
    Written,
)
from tidelog.broker.directory.core.partition import FlushDue, Partition
from tidelog.broker.directory.core.pending_marks import PendingMarks
from tidelog.broker.directory.core.promises import Cut, Doomed, Release, Removal
from tidelog.broker.directory.core.rounds import Awaiting, FlushRound, WriteRound, parted
from tidelog.broker.directory.core.verifying import TICKETS, Verifying
from tidelog.broker.log.names import directory_name
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset, PartitionKey


class DirectoryState:
    """The state of a core; each attribute is written here only."""

    def __init__(self, *, write_bytes_max: int, flush_interval_ms: int) -> None:
        self.write_bytes_max = write_bytes_max
        self.flush_interval_ms = flush_interval_ms
        self.now_ms = 0
        """As the last tick told it."""
        self.partitions: dict[PartitionKey, Partition] = {}
        self.queue: deque[AppendBatch] = deque()
        self.write: WriteRound | None = None
        self.is_truncating = False
        """The write that did not fit is being cut back."""
        self.flush: FlushRound | None = None
        self.marks = PendingMarks()
        self.dirty: list[Partition] = []
        """Whose active segments the next round covers."""
        self.lazy: dict[PartitionKey, Partition] = {}
        """Whose active segments wait for the flush interval; the one that waits longest first."""
        self.dirty_directories: dict[str, None] = {}
        """With names that the next round makes durable."""
        self.awaiting: list[Awaiting] = []
        """Answered at the end of the next round."""
        self.rolls: list[Partition] = []
        self.cuts: list[Cut] = []
        self.removals: list[Removal | Release] = []
        self.doomed: list[Doomed] = []
        self.moved: dict[PartitionKey, Partition] = {}
        """One of several replicas each, of which this step has moved an end."""
        self.verifyings = 0
        """Partitions at which something of transactions was verified, each opening counted."""
        self.early: dict[PartitionKey, Partition] = {}
        """With batches that wait for the end of the transaction before theirs."""
        self.failure: TidelogError | None = None
        self.is_full = False
        self.is_stopping = False
        self.duplicates_answered = 0
        """Batches that were sent again, since the start."""
        self._effects: list[Effect] = []

    # -- what is to be done, and who is told ------------------------------------------------------

    def emit(self, effect: Effect) -> None:
        """An effect of this step."""
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """Those of the step that ends here, in their order."""
        effects, self._effects = self._effects, []
        return effects

    def acknowledge(self, stored: Awaiting) -> None:
        """The batch has met what its sender waits for; the log may have moved since it was
        written."""
        log = stored.partition.log
        self._effects.append(
            Appended(
                token=stored.token,
                base_offset=stored.base_offset,
                append_time_ms=stored.append_time_ms,
                log_start_offset=log.log_start_offset,
                leader_epoch=log.leader_epoch,
            )
        )

    def refuse(self, token: int, error: TidelogError) -> None:
        """Whoever waits under this token is told so."""
        self._effects.append(Refuse(token=token, error=error))

    def refuse_all(self, tokens: Iterable[int], error: TidelogError) -> None:
        """All of them are told the same."""
        self._effects += [Refuse(token=token, error=error) for token in tokens]

    def refuse_awaiting(self, awaiting: Iterable[Awaiting], error: TidelogError) -> None:
        """Whatever they wait for does not come."""
        self._effects += [Refuse(token=each.token, error=error) for each in awaiting]

    def release_bytes(self, token: int) -> None:
        """The batch is in the log and waits on: nobody needs its bytes any more."""
        self._effects.append(Written(token=token))

    def done(self, token: int, offset: Offset) -> None:
        """A trim or a cut is durable."""
        self._effects.append(Done(token=token, offset=offset))

    def tell_readers(self, key: PartitionKey) -> None:
        """The watermark or the start has moved."""
        self._effects.append(Advanced(key=key))

    def tell_stopped(self, key: PartitionKey) -> None:
        """The partition has stopped: readers wait in vain, and somebody has to see to it."""
        self._effects += [Advanced(key=key), Stopped(key=key)]

    # -- partitions -------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Serve it from now on."""
        self.partitions[partition.log.key] = partition

    def let_go(self, partition: Partition) -> None:
        """Serve it no more, and let no mark tell of it."""
        key = partition.log.key
        del self.partitions[key]
        self.marks.forget(key)
        self.moved.pop(key, None)
        partition.let_go()

    def log_end_moved(self, partition: Partition) -> None:
        """Of one of several replicas an end has moved: followed up at the end of the step."""
        self.moved[partition.log.key] = partition

    def take_moved(self) -> list[Partition]:
        """The replicas of which this step has moved an end, to be followed up."""
        moved, self.moved = self.moved, {}
        return list(moved.values())

    # -- the queue and the write ------------------------------------------------------------------

    def enqueue(self, append: AppendBatch) -> None:
        """The batch goes into the next write."""
        self.queue.append(append)

    def take_queued(self) -> AppendBatch:
        """The one that waits longest."""
        return self.queue.popleft()

    def enqueue_first(self, appends: list[AppendBatch]) -> None:
        """These have waited for longer than all others."""
        self.queue.extendleft(reversed(appends))

    def take_queued_of(self, key: PartitionKey) -> list[AppendBatch]:
        """The partition's batches that are not planned yet."""
        taken = [each for each in self.queue if each.key == key]
        if taken:
            self.queue = deque(each for each in self.queue if each.key != key)
        return taken

    def begin_write(self, round_: WriteRound) -> None:
        """All marks that wait go with it."""
        assert self.write is None, "one write at a time"
        self.write = round_
        self.marks.go_with(round_)

    def end_write(self) -> WriteRound:
        """The write in flight, which is over."""
        round_ = self.write
        assert round_ is not None, "a write ended that never began"
        self.write = None
        for plan in round_.plans:
            plan.partition.leave_write()
        return round_

    def begin_truncating(self) -> None:
        """What was written of a round that did not fit is cut back."""
        assert not self.is_truncating, "one write is cut back at a time"
        self.is_truncating = True

    def end_truncating(self) -> None:
        """It is."""
        assert self.is_truncating, "a truncation ended that never began"
        self.is_truncating = False

    def ask_roll(self, partition: Partition) -> None:
        """The next segment is made with the next write, or once the active one is flushed."""
        partition.ask_roll()
        self.rolls.append(partition)

    def take_rolls(self) -> list[Partition]:
        """Those of which the next segment is wanted."""
        rolls, self.rolls = self.rolls, []
        return rolls

    def verify(self, partition: Partition) -> Verifying:
        """What the partition verifies of transactions, from the first one on. No two lives of a
        partition share tickets: a late answer to the former one would verify what nobody asked."""
        if partition.verifying is not None:
            return partition.verifying
        self.verifyings += 1
        return partition.begin_verifying(tickets_after=self.verifyings * TICKETS)

    def note_early(self, partition: Partition) -> None:
        """A batch waits there for the end of the transaction before its own."""
        self.early[partition.log.key] = partition

    def take_early(self) -> list[Partition]:
        """The partitions where some may still wait so."""
        early, self.early = self.early, {}
        return list(early.values())

    def note_duplicate(self) -> None:
        """A batch was sent again."""
        self.duplicates_answered += 1

    # -- flushes ----------------------------------------------------------------------------------

    def make_dirty(self, partition: Partition) -> None:
        """The next flush round covers its active segment."""
        if partition.flush_due is FlushDue.SOON:
            return
        if partition.flush_due is FlushDue.LATER:
            del self.lazy[partition.log.key]
        partition.flush_soon()
        self.dirty.append(partition)

    def make_lazy(self, partition: Partition) -> None:
        """Its active segment is flushed once it has waited for the flush interval."""
        partition.flush_later(self.now_ms)
        self.lazy[partition.log.key] = partition

    def hurry(self, partition: Partition) -> None:
        """Somebody waits for what was to be flushed later."""
        if partition.flush_due is FlushDue.LATER:
            self.make_dirty(partition)

    def note_name(self, key: PartitionKey) -> None:
        """A file was made in the partition's directory, which may be new itself."""
        self.dirty_directories[""] = None
        self.dirty_directories[directory_name(key)] = None

    def await_flush(self, awaiting: Awaiting) -> None:
        """Answer it at the end of the next round."""
        self.awaiting.append(awaiting)

    def take_awaiting(self, is_taken: Callable[[Awaiting], bool]) -> list[Awaiting]:
        """Those of the next round that are answered by somebody else."""
        taken, self.awaiting = parted(self.awaiting, is_taken)
        return taken

    def begin_flush(self) -> FlushRound:
        """All that was written until now is covered by it."""
        assert self.flush is None, "one flush round at a time"
        ends = []
        for partition in self.dirty:
            log = partition.log
            partition.begin_flush()
            ends.append((partition, log.log_end_offset, log.end_position()))
        self.flush = FlushRound(ends, self.awaiting, self.marks.take_written())
        self.dirty, self.dirty_directories, self.awaiting = [], {}, []
        return self.flush

    def end_flush(self) -> FlushRound:
        """The round in flight, which is over."""
        round_ = self.flush
        assert round_ is not None, "a flush ended that never began"
        self.flush = None
        return round_

    def forget_unflushed(self, partition: Partition) -> None:
        """Flush nothing of the partition any more: it goes."""
        self.hurry(partition)
        self.dirty = [each for each in self.dirty if each is not partition]
        partition.need_no_flush()
        self.dirty_directories.pop(directory_name(partition.log.key), None)

    # -- cuts, removals, segments that go ---------------------------------------------------------

    def begin_cut(self, cut: Cut) -> None:
        """The partition takes no batch until it is over."""
        cut.partition.begin_cut(cut)
        self.cuts.append(cut)

    def end_cut(self, cut: Cut) -> None:
        """It is done, or given up."""
        self.cuts.remove(cut)
        cut.partition.end_cut()

    def begin_removal(self, removal: Removal | Release) -> None:
        """The files go, or are let go, once nothing of them is in flight."""
        self.removals.append(removal)

    def end_removal(self, removal: Removal | Release) -> None:
        """They do."""
        self.removals.remove(removal)

    def doom(self, key: PartitionKey, removed: list[Segment]) -> None:
        """The files of these segments go as soon as a restart does without them."""
        if removed:
            self.doomed.append(Doomed(key, tuple(segment.key for segment in removed)))

    def take_doomed(self) -> list[Doomed]:
        """Those of which the logs' active segments have their names for good."""
        dirty = self.dirty_directories
        taken = [each for each in self.doomed if directory_name(each.partition) not in dirty]
        if taken:
            self.doomed = [each for each in self.doomed if directory_name(each.partition) in dirty]
        return taken

    # -- what holds for all of them ---------------------------------------------------------------

    def note_time(self, now_ms: int) -> None:
        """Monotonic."""
        assert now_ms >= self.now_ms, f"time went back from {self.now_ms} to {now_ms}"
        self.now_ms = now_ms
        self.marks.note_quiet()

    def set_full(self, *, is_full: bool) -> None:
        """Less room is left than must stay free; or there is enough again."""
        self.is_full = is_full

    def begin_stopping(self) -> None:
        """The owner is about to stop: no follower is listened to any more."""
        self.is_stopping = True

    def fail(self, error: TidelogError) -> None:
        """What reached the disk is not known any more: nothing more is begun."""
        assert self.failure is None, "a directory stops once"
        self.failure = error

    def drop_all(self) -> None:
        """The directory has failed and everybody was told: what waits to be begun never is. A cut
        that its owner is at ends first."""
        assert self.failure is not None, "only a failed directory drops what waits"
        self.queue.clear()
        self.awaiting, self.dirty, self.dirty_directories, self.lazy = [], [], {}, {}
        self.rolls, self.removals, self.doomed = [], [], []
        self.cuts = [cut for cut in self.cuts if cut.is_under_way]
        self.marks.drop_all()
