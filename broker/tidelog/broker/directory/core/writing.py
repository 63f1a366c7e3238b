"""Writes of a data directory: what goes into one, and what becomes of it when it ends. Pure.

It must never write behind bytes of which the fate is unknown, nor answer for a batch before it is
written. Stop 6 of a record's walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.directory.core import planning, resends, role_changes, stopping, trimming
from tidelog.broker.directory.core.messages import (
    Acknowledge,
    Advanced,
    AppendBatch,
    Effect,
    Refuse,
    SegmentWrite,
    Truncate,
    Write,
    WriteEnded,
    Written,
)
from tidelog.broker.directory.core.rounds import Awaiting, SegmentPlan, WriteRound
from tidelog.broker.log.marks.marks import Mark, MarkKind
from tidelog.broker.log.names import directory_name
from tidelog.broker.log.state.log import NO_GAPS
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

if TYPE_CHECKING:
    from tidelog.broker.directory.core.core import DirectoryCore
    from tidelog.wire.ids import PartitionKey


def begin_write(core: DirectoryCore, effects: list[Effect]) -> None:
    """Plan a write of what waits, unless one is in flight or the last one is being cut back."""
    if core.write is not None or core.is_truncating:
        return
    is_mark_due = bool(core.marks or core.promises or core.are_committed_marks_due)
    if not (core.queue or is_mark_due or core.rolls):
        return
    round_ = WriteRound()
    if core.rolls:
        _plan_rolls(core, round_)
    while core.queue and round_.size_bytes < core.write_bytes_max:
        _plan(core, core.queue.popleft(), round_, effects)
    if not (round_.plans or is_mark_due):
        return
    core.write = round_
    trimming.take_marks(core, round_)
    effects.append(
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


def _plan(
    core: DirectoryCore, append: AppendBatch, round_: WriteRound, effects: list[Effect]
) -> None:
    """Give the batch its offset and place, or hold it until its full segment is flushed."""
    partition = core.partitions[append.key]
    if partition.held:
        partition.held.append(append)
        return
    if partition.role is not None:
        error = role_changes.objection(partition, append)
        if error is not None:
            effects.append(Refuse(token=append.token, error=error))
            return
    try:
        if append.header.producer_id >= 0 and not append.is_replica:
            again = resends.judge(partition, append)
            if again is not None:
                resends.take(core, again, round_, effects)
                return
        is_planned = planning.plan_batch(partition, append, round_)
    except TidelogError as error:
        effects.append(Refuse(token=append.token, error=error))
        return
    if not is_planned:
        partition.held.append(append)
        if partition.is_lazy:
            core.make_dirty(partition)


def _plan_rolls(core: DirectoryCore, round_: WriteRound) -> None:
    rolls, core.rolls = core.rolls, []
    for partition in rolls:
        if not partition.is_roll_asked or partition.is_removed:
            continue
        if not planning.plan_roll(partition, round_):
            core.rolls.append(partition)
            if partition.is_lazy:
                core.make_dirty(partition)


def on_write_ended(core: DirectoryCore, message: WriteEnded, effects: list[Effect]) -> None:
    error, round_ = message.error, core.write
    assert round_ is not None, "a write ended that never began"
    core.write = None
    for plan in round_.plans:
        plan.partition.plan = None
    if core.failure is not None:
        stopping.refuse_write(core, round_, core.failure, effects)
    elif error is None:
        for key, unusable in message.unusable.items():
            _leave_out(core, round_, key, unusable, effects)
        _take_in(core, round_, effects)
    elif error.code is ErrorCode.STORAGE_FULL:
        _cut_back(core, round_, error, effects)
    else:
        stopping.refuse_write(core, round_, error, effects)
        stopping.stop(core, error, effects)


def _leave_out(
    core: DirectoryCore,
    round_: WriteRound,
    key: PartitionKey,
    error: TidelogError,
    effects: list[Effect],
) -> None:
    """Nothing of one partition was written, for want of its file: it stops, and nobody else.

    Its log is as it was before the round: what was planned for it was never taken in.
    """
    refused = [each.append.token for each in round_.planned if each.append.key == key]
    refused += [each.append.token for each in round_.again if each.append.key == key]
    effects += [Refuse(token=token, error=error) for token in refused]
    round_.planned = [each for each in round_.planned if each.append.key != key]
    round_.again = [each for each in round_.again if each.append.key != key]
    round_.plans = [each for each in round_.plans if each.partition.log.key != key]
    stopping.fail_partition(core, key, error, effects)


def _take_in(core: DirectoryCore, round_: WriteRound, effects: list[Effect]) -> None:
    """What was written becomes part of the logs; acks=1 is answered."""
    if round_.is_flush_wanted:
        core.are_marks_unflushed = True
        core.written_promises += round_.promises
    _begin_segments(core, round_)
    for planned in round_.planned:
        header, plan, append = planned.header, planned.plan, planned.append
        partition = plan.partition
        partition.log.take_in(header)
        answer = Acknowledge(
            token=append.token,
            base_offset=header.base_offset,
            append_time_ms=planned.append_time_ms,
        )
        if partition.role is not None or plan.role is not None:
            role_changes.answer_written(core, planned, answer, effects)
        elif append.is_flush_awaited:
            core.awaiting.append(Awaiting(answer, partition, planned.end_offset))
            effects.append(Written(token=append.token))
        else:
            effects.append(answer)
    for plan in round_.plans:
        _take_in_plan(core, plan, effects)
    for again in round_.again:
        resends.answer(core, again, effects)


def _begin_segments(core: DirectoryCore, round_: WriteRound) -> None:
    """Logs go on in new segments; the ones before may lie below their logs' start."""
    for plan in round_.plans:
        if plan.is_new:
            log = plan.partition.log
            log.begin_segment(plan.segment)
            trimming.doom(core, log.key, log.drop_trimmed())


def _take_in_plan(core: DirectoryCore, plan: SegmentPlan, effects: list[Effect]) -> None:
    """The partition's segment is to be flushed: soon, or once it has waited long enough."""
    partition, log = plan.partition, plan.partition.log
    assert log.log_end_offset == plan.end_offset, f"{log.key}: an offset was skipped"
    if not plan.byte_position:
        core.dirty_directories[""] = None
        core.dirty_directories[directory_name(log.key)] = None
    if plan.gaps_from != NO_GAPS:
        log.gaps_from = plan.gaps_from
    is_sole = partition.role is None
    is_soon = (plan.is_flush_awaited and is_sole) or partition.held or core.is_stopping
    if partition.is_flush_counted or is_soon:
        core.make_dirty(partition)
    elif not (partition.is_dirty or partition.is_lazy):
        partition.is_lazy, partition.lazy_since_ms = True, core.now_ms
        core.lazy[log.key] = partition
    if not is_sole:
        core.moved[log.key] = partition
    elif not partition.settings.is_flush_sync and partition.cut is None:
        log.commit(log.log_end_offset, log.end_position())
        effects.append(Advanced(key=log.key))


def _cut_back(
    core: DirectoryCore, round_: WriteRound, error: TidelogError, effects: list[Effect]
) -> None:
    """Nothing of a round that did not fit may come back after a crash: refused once flushed.

    A segment that was made for it stays, empty and active: were the older one to grow again, a
    restart would find a gap between them. The round's marks wait for the next batches:
    writing them by themselves again and again would keep a full disk busy.
    """
    core.postponed_marks = {
        mark.key: Offset(mark.value)
        for mark in round_.marks
        if mark.kind is MarkKind.FLUSHED and _is_flushed(core, mark)
    }
    lengths = []
    _begin_segments(core, round_)
    for plan in round_.plans:
        lengths.append((plan.segment, plan.byte_position))
        log = plan.partition.log
        log.led_from = min(log.led_from, log.log_end_offset)
        core.make_dirty(plan.partition)
    core.awaiting += [
        Awaiting(
            Refuse(token=planned.append.token, error=error),
            planned.plan.partition,
            planned.end_offset,
        )
        for planned in round_.planned
    ]
    core.awaiting += [
        Awaiting(Refuse(token=again.append.token, error=error), again.partition, again.end_offset)
        for again in round_.again
    ]
    stopping.refuse_promises(core, round_.promises, error, effects)
    core.is_truncating = True
    effects.append(Truncate(lengths=tuple(lengths)))


def _is_flushed(core: DirectoryCore, mark: Mark) -> bool:
    """Whether a FLUSHED mark still holds: a cut may have lowered what it says."""
    partition = core.partitions.get(mark.key)
    return partition is not None and mark.value <= partition.log.flushed_offset


def on_truncate_ended(
    core: DirectoryCore, error: TidelogError | None, effects: list[Effect]
) -> None:
    assert core.is_truncating, "a truncation ended that never began"
    core.is_truncating = False
    if error is not None and core.failure is None:
        stopping.stop(core, error, effects)
