"""Flush rounds: when one begins, what it covers, and what is true when it ends. Pure.

It must never count as durable what was written after its round began, nor answer anybody for a file
that the round has left out. Stops 6 and 8 of a record's walk.
"""

from tidelog.broker.directory.core import stopping, trimming
from tidelog.broker.directory.core.messages import AppendBatch, Flush, FlushEnded
from tidelog.broker.directory.core.partition import Partition
from tidelog.broker.directory.core.role_errors import node_stopping, not_taken
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.wire.ids import Offset


def begin_flush(state: DirectoryState) -> None:
    """Flush what was written. Marks go with it, and by themselves only after a quiet tick, or
    when somebody waits for them: a batch that came meanwhile would wait for two rounds.
    """
    if state.flush is not None or state.is_truncating:
        return
    if not state.dirty:
        is_quiet = state.write is None and not state.queue
        if not state.marks.is_flush_due(is_quiet=is_quiet, is_stopping=state.is_stopping):
            return
    effect = Flush(
        segments=tuple([partition.log.segments[-1].key for partition in state.dirty]),
        directories=tuple(state.dirty_directories),
        with_marks=state.marks.are_unflushed,
    )
    state.begin_flush()
    state.emit(effect)


def on_flush_ended(state: DirectoryState, message: FlushEnded) -> None:
    """What the round covers is durable: batches are answered, promises kept."""
    round_ = state.end_flush()
    if message.error is not None and state.failure is None:
        stopping.stop(state, message.error)
    if state.failure is not None:
        state.refuse_awaiting(round_.awaiting, state.failure)
        stopping.refuse_promises(state, round_.promises, state.failure)
        return
    for key, unusable in message.unusable.items():
        stopping.fail_partition(state, key, unusable)
    released: list[AppendBatch] = []
    for partition, end_offset, position in round_.ends:
        partition.end_flush()
        if partition.cut is None and partition.log.key not in message.unusable:
            _note_flushed(state, partition, end_offset, position)
        if partition.held:
            released += partition.take_held()
    state.enqueue_first(released)
    for promise in round_.promises:
        trimming.keep(state, promise)
    for waiting in round_.awaiting:
        error = waiting.error
        if message.unusable:
            # Its file is not where a start would find it.
            error = message.unusable.get(waiting.partition.log.key, error)
        if error is None:
            state.acknowledge(waiting)
        else:
            state.refuse(waiting.token, error)
    if state.doomed:
        trimming.remove_doomed(state)


def _note_flushed(
    state: DirectoryState, partition: Partition, end_offset: Offset, position: tuple[int, int]
) -> None:
    """All below the offset is durable; a sole replica's is committed, if it was not yet."""
    log = partition.log
    if end_offset > log.flushed_offset:
        log.note_flushed(end_offset)
        if not partition.is_removed:
            state.marks.note_flushed(log.key, end_offset)
    if partition.role is not None:
        state.log_end_moved(partition)
    elif end_offset > log.high_watermark:
        log.commit(end_offset, position)
        state.tell_readers(log.key)


def on_tick(state: DirectoryState, now_ms: int) -> None:
    """What has waited for the flush interval is flushed."""
    state.note_time(now_ms)
    while state.lazy:
        partition = next(iter(state.lazy.values()))
        if now_ms - partition.lazy_since_ms < state.flush_interval_ms:
            return
        state.make_dirty(partition)


def on_flush_all(state: DirectoryState) -> None:
    """The owner is about to stop: what was written is flushed, and nobody waits for followers."""
    state.begin_stopping()
    for partition in list(state.lazy.values()):
        state.make_dirty(partition)
    for partition in state.partitions.values():
        # No follower is listened to any more.
        stopping.refuse_commits(state, partition, node_stopping(partition.log.key))
        stopping.refuse_verifying(state, partition, not_taken(partition.log.key))
