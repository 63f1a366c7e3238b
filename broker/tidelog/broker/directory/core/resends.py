"""Batches of idempotent producers: told from those that were sent again, which get the answer of
the first. Pure. Stop 5 of a record's walk.

Owns what is known of producers while batches are planned and not written. It must never answer a
batch that was sent again sooner than the first one could be.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tidelog.broker.directory.core.messages import Acknowledge, AppendBatch, Effect, Refuse, Written
from tidelog.broker.directory.core.producer_check import find_duplicate, is_next
from tidelog.broker.directory.core.role_errors import indeterminate, node_stopping
from tidelog.broker.directory.core.rounds import (
    Again,
    Awaiting,
    Following,
    Partition,
    SegmentPlan,
    WriteRound,
)
from tidelog.broker.directory.core.stamping import NO_APPEND_TIME_MS
from tidelog.wire.batch import BatchHeader
from tidelog.wire.ids import Offset

if TYPE_CHECKING:
    from tidelog.broker.directory.core.core import DirectoryCore


def judge(partition: Partition, append: AppendBatch) -> Again | None:
    """The batch that this one is again; None: it is the producer's next. Else it is refused."""
    header, plan = append.header, partition.plan
    known = partition.log.producers.find(header.producer_id)
    planned = None
    if plan is not None and plan.producers is not None:
        planned = plan.producers.get(header.producer_id)
    if planned is not None:
        if is_next(planned[-1], header):
            return None
        for each in planned:
            known = partition.log.producers.after(known, each)
    found = find_duplicate(known, header, tried=f"append to {append.key}")
    if found is None:
        return None
    is_append_time = partition.settings.is_append_time
    return Again(
        append,
        Acknowledge(
            token=append.token,
            base_offset=found.base_offset,
            append_time_ms=found.timestamp if is_append_time else NO_APPEND_TIME_MS,
        ),
        partition,
        Offset(found.base_offset + found.last_offset_delta + 1),
    )


def note(plan: SegmentPlan, header: BatchHeader) -> None:
    """The batch is planned: what comes behind it is judged by it."""
    if plan.producers is None:
        plan.producers = {}
    planned = plan.producers.get(header.producer_id)
    if planned is None:
        plan.producers[header.producer_id] = [header]
    else:
        planned.append(header)


def take(core: DirectoryCore, again: Again, round_: WriteRound, effects: list[Effect]) -> None:
    """Answer it at once, or with the write that the first one is planned in."""
    core.duplicates_answered += 1
    if again.end_offset > again.partition.log.log_end_offset:
        round_.again.append(again)
    else:
        answer(core, again, effects)


def answer(core: DirectoryCore, again: Again, effects: list[Effect]) -> None:
    """The first one is written: answer as it was, or will be."""
    partition, append, role = again.partition, again.append, again.partition.role
    if isinstance(role, Following):
        effects.append(Refuse(token=append.token, error=indeterminate(append.key)))
    elif not append.is_flush_awaited:
        effects.append(again.answer)
    elif role is None:
        _await_flush(core, again, effects)
    elif again.end_offset <= _answered_offset(partition):
        effects.append(again.answer)
    elif partition.log.failure is not None:
        effects.append(Refuse(token=append.token, error=partition.log.failure))
    elif core.is_stopping:
        effects.append(Refuse(token=append.token, error=node_stopping(append.key)))
    else:
        place = bisect_right(role.awaiting, again.end_offset, key=_end_offset_of)
        role.awaiting.insert(place, Awaiting(again.answer, partition, again.end_offset))
        effects.append(Written(token=append.token))


def _answered_offset(partition: Partition) -> Offset:
    """Up to where it is committed, and as safe as what is committed from now on."""
    log = partition.log
    if partition.is_flush_counted:
        return min(log.high_watermark, log.flushed_offset)
    return log.high_watermark


def _await_flush(core: DirectoryCore, again: Again, effects: list[Effect]) -> None:
    partition = again.partition
    waiting = Awaiting(again.answer, partition, again.end_offset)
    if again.end_offset <= partition.log.flushed_offset:
        effects.append(again.answer)
        return
    effects.append(Written(token=again.append.token))
    if core.flush is not None and any(
        each is partition and end_offset >= again.end_offset
        for each, end_offset, _ in core.flush.ends
    ):
        core.flush.awaiting.append(waiting)
    else:
        core.make_dirty(partition)
        core.awaiting.append(waiting)


def _end_offset_of(waiting: Awaiting) -> Offset:
    return waiting.end_offset
