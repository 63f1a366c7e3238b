"""One data directory's partitions: plans offsets, groups writes and flushes, acknowledges. Pure.

Owns the step: each message goes to its subject, then what can be begun is begun. The state is
`DirectoryState`, of whose primitives the subjects are made. It must never acknowledge acks=all
before the batch is committed, and of a sole replica before the flush that covers it, reuse an
offset that a reader or a producer may have seen, write behind bytes of which the fate is unknown,
or let go of a file that a restart would miss. Stops 6, 8 and 9 of a record's walk.

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
are judged when they are planned (resends), those of transactions when they arrive and then again
(transactional).

A full disk cuts the round back, flushes the cut, refuses the round's batches and goes on; below the
free-space floor appends are refused before it comes to that. Damage stops one partition. Any other
failure stops every partition of the directory: what reached the disk is not known any more.
"""

from typing import Final, assert_never

from tidelog.broker.directory.core import (
    cutting,
    flushing,
    invariants,
    removal,
    role_changes,
    sealing,
    stopping,
    transactional,
    trimming,
    writing,
)
from tidelog.broker.directory.core.messages import (
    AddPartition,
    AppendBatch,
    AppendTransactional,
    CommitTo,
    Configure,
    CutEnded,
    Effect,
    FailDirectory,
    FailPartition,
    FlushAll,
    FlushEnded,
    Follow,
    Forget,
    Lead,
    Message,
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
    Verified,
    VerifyTransaction,
    WriteEnded,
)
from tidelog.broker.directory.core.partition import Partition
from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.directory.core.state import DirectoryState

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
        self.state = DirectoryState(
            write_bytes_max=write_bytes_max, flush_interval_ms=flush_interval_ms
        )
        """To be read; it is changed by messages only."""

    def step(self, messages: list[Message]) -> list[Effect]:
        """Take the messages in their order, then begin what can be begun."""
        state = self.state
        for message in messages:
            # Nearly all of them are: the other kinds are told apart behind.
            if isinstance(message, AppendBatch):
                writing.on_append(state, message)
            else:
                _on_message(state, message)
        if state.cuts:
            cutting.advance(state)
        if state.removals:
            removal.advance(state)
        if state.moved:
            role_changes.follow_up(state)
        if state.failure is None:
            writing.begin_write(state)
            flushing.begin_flush(state)
        invariants.check_step(state)
        return state.take_effects()

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is in flight, but for what waits for the flush interval."""
        state = self.state
        return state.marks.is_idle and not (
            state.queue
            or state.write
            or state.is_truncating
            or state.flush
            or state.dirty
            or state.awaiting
            or state.rolls
            or state.cuts
            or state.removals
        )


def _on_message(state: DirectoryState, message: Message) -> None:
    match message:
        case WriteEnded():
            writing.on_write_ended(state, message)
        case FlushEnded():
            flushing.on_flush_ended(state, message)
        case Tick():
            flushing.on_tick(state, message.now_ms)
            if state.early:
                writing.on_append_all(state, transactional.on_tick(state))
        case FollowerAt():
            role_changes.on_follower_at(state, message)
        case CommitTo():
            role_changes.on_commit_to(state, message)
        case Lead():
            role_changes.on_lead(state, message)
        case Follow():
            role_changes.on_follow(state, message)
        case RestartLog():
            cutting.on_restart(state, message)
        case TruncateEnded():
            writing.on_truncate_ended(state, message.error)
        case AddPartition():
            _on_add(state, message)
        case RollSegment():
            writing.on_roll(state, message.key)
        case TrimHead():
            trimming.on_trim(state, message)
        case TruncateTail():
            cutting.on_truncate(state, message)
        case CutEnded():
            cutting.on_cut_ended(state, message)
        case SegmentSealed():
            sealing.on_sealed(state, message)
        case ReplaceSegments():
            sealing.on_replaced(state, message)
        case RemovePartition():
            removal.on_remove(state, message)
        case ReleasePartition():
            removal.on_release(state, message)
        case FailDirectory():
            stopping.on_fail_directory(state, message)
        case FailPartition():
            stopping.on_fail_partition(state, message)
        case Configure():
            _on_configure(state, message)
        case SetFull():
            state.set_full(is_full=message.is_full)
        case FlushAll():
            flushing.on_flush_all(state)
        case AppendBatch():
            writing.on_append(state, message)
        case AppendTransactional() | VerifyTransaction():
            writing.on_append_all(state, transactional.on_arrival(state, message))
        case Verified():
            writing.on_append_all(state, transactional.on_verified(state, message))
        case Forget():
            role_changes.on_forget(state, message)
        case _:
            assert_never(message)


def _on_add(state: DirectoryState, message: AddPartition) -> None:
    log = message.log
    assert log.key not in state.partitions, f"{log.key} is served twice"
    assert all(each.partition.log.key != log.key for each in state.removals), (
        f"{log.key} is being removed"
    )
    if state.failure is not None and log.failure is None:
        log.stop(state.failure)
    state.add(Partition(log, message.settings, is_sole=message.is_sole))
    if message.is_opened_at_work and log.failure is None:
        state.marks.note_flushed(log.key, log.flushed_offset)
    if message.leftovers and log.failure is None:
        state.emit(RemoveFiles(segments=message.leftovers))


def _on_configure(state: DirectoryState, message: Configure) -> None:
    partition = state.partitions.get(message.key)
    if partition is None:
        return
    partition.configure(message.settings)
    if message.settings.is_flush_sync:
        state.hurry(partition)
    if partition.role is not None:
        state.log_end_moved(partition)
