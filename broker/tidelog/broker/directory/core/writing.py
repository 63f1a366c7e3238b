"""Writes of a data directory: what goes into one, and what becomes of it when it ends. Pure.

It must never write behind bytes of which the fate is unknown, nor answer for a batch before it is
written. Stop 6 of a record's walk.
"""

import msgspec

from tidelog.broker.directory.core import (
    planning,
    resends,
    role_changes,
    stopping,
    transactional,
)
from tidelog.broker.directory.core.messages import (
    AppendBatch,
    SegmentWrite,
    Truncate,
    Write,
    WriteEnded,
)
from tidelog.broker.directory.core.partition import FlushDue, Partition
from tidelog.broker.directory.core.rounds import Awaiting, SegmentPlan, WriteRound
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.log.marks.marks import Mark, MarkKind
from tidelog.broker.log.state.log import NO_GAPS
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionKey


def on_append(state: DirectoryState, append: AppendBatch) -> None:
    """Queue the batch, or refuse it at once. It is asked again when it is planned: the role, and
    how many are in sync, may have changed while it waited."""
    partition = state.partitions.get(append.key)
    if (
        partition is not None
        and not state.is_full
        and partition.log.failure is None
        and partition.cut is None
    ):
        error = None if partition.role is None else role_changes.objection(partition, append)
        if error is None:
            state.enqueue(append)
            return
    elif append.header.is_control and _is_full_only(state, partition):
        # Without its marker a transaction holds back what retention would free.
        state.enqueue(append)
        return
    else:
        error = stopping.refusal(state, append.key)
    state.refuse(append.token, error)


def on_append_all(state: DirectoryState, appends: list[AppendBatch]) -> None:
    """Queue them in this order, or refuse them."""
    for append in appends:
        on_append(state, append)


def _is_full_only(state: DirectoryState, partition: Partition | None) -> bool:
    """Whether nothing speaks against a batch of a few bytes but the floor of free space."""
    return (
        state.is_full
        and partition is not None
        and partition.log.failure is None
        and partition.cut is None
    )


def on_roll(state: DirectoryState, key: PartitionKey) -> None:
    """Make the next segment, unless the active one is empty."""
    partition = state.partitions.get(key)
    if partition is None or partition.cut is not None or partition.log.failure is not None:
        return
    # What is in flight may fill an empty segment, or roll by itself: asked again when planned.
    can_roll = planning.can_roll(partition) or partition.plan is not None
    if can_roll and not partition.is_roll_asked:
        state.ask_roll(partition)


def begin_write(state: DirectoryState) -> None:
    """Plan a write of what waits, unless one is in flight or the last one is being cut back."""
    if state.write is not None or state.is_truncating:
        return
    is_mark_due = state.marks.is_write_due
    if not (state.queue or is_mark_due or state.rolls):
        return
    round_ = WriteRound()
    if state.rolls:
        _plan_rolls(state, round_)
    while state.queue and round_.size_bytes < state.write_bytes_max:
        _plan(state, state.take_queued(), round_)
    if not (round_.plans or is_mark_due):
        return
    state.begin_write(round_)
    state.emit(
        Write(
            writes=tuple(
                [
                    SegmentWrite(
                        segment=plan.segment,
                        is_new=plan.is_new,
                        has_directory=plan.is_new and plan.partition.log.has_bytes(),
                        byte_position=plan.byte_position,
                        pieces=plan.pieces,
                    )
                    for plan in round_.plans
                ]
            ),
            marks=round_.marks,
        )
    )


def _plan(state: DirectoryState, append: AppendBatch, round_: WriteRound) -> None:
    """Give the batch its offset and place, or hold it until its full segment is flushed."""
    partition = state.partitions[append.key]
    if partition.held:
        partition.hold(append)
        return
    if partition.role is not None:
        error = role_changes.objection(partition, append)
        if error is not None:
            state.refuse(append.token, error)
            return
    header, is_admitted = append.header, False
    try:
        if header.producer_id >= 0 and not append.is_replica:
            is_admitted = header.is_transactional
            if is_admitted:
                again = transactional.judge(state, partition, append)
            else:
                again = resends.judge(partition, append)
            if again is not None:
                resends.take(state, again, round_)
                return
        is_planned = planning.plan_batch(partition, append, round_)
    except TidelogError as error:
        state.refuse(append.token, error)
        return
    if not is_planned:
        partition.hold(append)
        state.hurry(partition)
    elif is_admitted:
        round_.note_admitted()


def _plan_rolls(state: DirectoryState, round_: WriteRound) -> None:
    for partition in state.take_rolls():
        if not partition.is_roll_asked or partition.is_removed:
            continue
        if not planning.plan_roll(partition, round_):
            state.ask_roll(partition)
            state.hurry(partition)


def on_write_ended(state: DirectoryState, message: WriteEnded) -> None:
    """Take in what was written; or cut it back where it did not fit; or stop."""
    error, round_ = message.error, state.end_write()
    if state.failure is not None:
        stopping.refuse_write(state, round_, state.failure)
    elif error is None:
        for key, unusable in message.unusable.items():
            _leave_out(state, round_, key, unusable)
        _take_in(state, round_)
    elif error.code is ErrorCode.STORAGE_FULL:
        _cut_back(state, round_, error)
    else:
        stopping.refuse_write(state, round_, error)
        stopping.stop(state, error)


def _leave_out(
    state: DirectoryState,
    round_: WriteRound,
    key: PartitionKey,
    error: TidelogError,
) -> None:
    """Nothing of one partition was written, for want of its file: it stops, and nobody else.

    Its log is as it was before the round: what was planned for it was never taken in.
    """
    state.refuse_all(round_.leave_out(key), error)
    stopping.fail_partition(state, key, error)


def _take_in(state: DirectoryState, round_: WriteRound) -> None:
    """What was written becomes part of the logs; acks=1 is answered."""
    if round_.is_flush_wanted:
        state.marks.note_written(round_.promises)
    _begin_segments(state, round_)
    for planned in round_.planned:
        header, plan, append = planned.header, planned.plan, planned.append
        partition = plan.partition
        partition.log.take_in(header, planned.marker)
        stored = Awaiting(
            append.token,
            partition,
            header.base_offset,
            planned.end_offset,
            planned.append_time_ms,
        )
        if partition.role is not None or plan.role is not None:
            role_changes.answer_written(state, planned, stored)
        elif append.is_flush_awaited:
            state.await_flush(stored)
            state.release_bytes(append.token)
        else:
            state.acknowledge(stored)
    for planned in round_.admitted:
        on_append_all(state, transactional.note(state, planned))
    for plan in round_.plans:
        _take_in_plan(state, plan)
    for again in round_.again:
        resends.answer(state, again)


def _begin_segments(state: DirectoryState, round_: WriteRound) -> None:
    """Logs go on in new segments; the ones before may lie below their logs' start."""
    for plan in round_.plans:
        if plan.is_new:
            log = plan.partition.log
            log.begin_segment(plan.segment)
            state.doom(log.key, log.drop_trimmed())


def _take_in_plan(state: DirectoryState, plan: SegmentPlan) -> None:
    """The partition's segment is to be flushed: soon, or once it has waited long enough."""
    partition, log = plan.partition, plan.partition.log
    assert log.log_end_offset == plan.end_offset, f"{log.key}: an offset was skipped"
    if not plan.byte_position:
        state.note_name(log.key)
    if plan.gaps_from != NO_GAPS:
        log.note_gaps(plan.gaps_from)
    is_sole = partition.role is None
    is_soon = (plan.is_flush_awaited and is_sole) or partition.held or state.is_stopping
    if partition.is_flush_counted or is_soon:
        state.make_dirty(partition)
    elif partition.flush_due is FlushDue.CLEAN:
        state.make_lazy(partition)
    if not is_sole:
        state.log_end_moved(partition)
    elif not partition.settings.is_flush_sync and partition.cut is None:
        log.commit(log.log_end_offset, log.end_position())
        state.tell_readers(log.key)


def _cut_back(state: DirectoryState, round_: WriteRound, error: TidelogError) -> None:
    """Nothing of a round that did not fit may come back after a crash: refused once flushed.

    A segment that was made for it stays, empty and active: were the older one to grow again, a
    restart would find a gap between them. The round's marks wait for the next batches:
    writing them by themselves again and again would keep a full disk busy.
    """
    state.marks.postpone(
        {
            mark.key: Offset(mark.value)
            for mark in round_.marks
            if mark.kind is MarkKind.FLUSHED and _is_flushed(state, mark)
        }
    )
    lengths = []
    _begin_segments(state, round_)
    for plan in round_.plans:
        lengths.append((plan.segment, plan.byte_position))
        plan.partition.log.drop_planned()
        state.make_dirty(plan.partition)
    for planned in round_.planned:
        base_offset, partition = planned.header.base_offset, planned.plan.partition
        token, end_offset = planned.append.token, planned.end_offset
        state.await_flush(Awaiting(token, partition, base_offset, end_offset, error=error))
    for again in round_.again:
        state.await_flush(msgspec.structs.replace(again.first, error=error))
    stopping.refuse_promises(state, round_.promises, error)
    state.begin_truncating()
    state.emit(Truncate(lengths=tuple(lengths)))


def _is_flushed(state: DirectoryState, mark: Mark) -> bool:
    """Whether a FLUSHED mark still holds: a cut may have lowered what it says."""
    partition = state.partitions.get(mark.key)
    return partition is not None and mark.value <= partition.log.flushed_offset


def on_truncate_ended(state: DirectoryState, error: TidelogError | None) -> None:
    """Nothing of the round is in a file any more; or that is not known, and the disk has failed."""
    state.end_truncating()
    if error is not None and state.failure is None:
        stopping.stop(state, error)
