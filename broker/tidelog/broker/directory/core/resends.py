"""Batches of idempotent producers: told from those that were sent again, which get the answer of
the first. Pure. Stop 5 of a record's walk.

Owns what is known of producers while batches are planned and not written. It must never answer a
batch that was sent again sooner than the first one could be.
"""

from tidelog.broker.directory.core.messages import AppendBatch
from tidelog.broker.directory.core.partition import Following, Partition
from tidelog.broker.directory.core.producer_check import find_duplicate, is_next
from tidelog.broker.directory.core.role_errors import indeterminate, node_stopping
from tidelog.broker.directory.core.rounds import Again, Awaiting, WriteRound
from tidelog.broker.directory.core.stamping import NO_APPEND_TIME_MS
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.log.producer_state import NO_TRANSACTION, Producer
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset


def judge(partition: Partition, append: AppendBatch) -> Again | None:
    """The batch that this one is again; None: it is the producer's next. Else it is refused."""
    header = append.header
    last = last_planned(partition, header.producer_id)
    if last is not None and is_next(last, header) and not last.is_transactional:
        return None
    known = known_in_turn(partition, header.producer_id)
    if known is not None and known.transaction_start != NO_TRANSACTION:
        _refuse_outside(known, append)
    return first_of(partition, append, known)


def last_planned(partition: Partition, producer_id: int) -> BatchHeader | None:
    """The producer's last batch in the write that is being planned."""
    plan = partition.plan
    if plan is None or plan.producers is None:
        return None
    planned = plan.producers.get(producer_id)
    return None if planned is None else planned[-1]


def known_in_turn(partition: Partition, producer_id: int) -> Producer | None:
    """What is known of the producer once the write that is being planned is in the log."""
    producers, plan = partition.log.producers, partition.plan
    known = producers.find(producer_id)
    if plan is not None and plan.producers is not None:
        for each in plan.producers.get(producer_id, ()):
            known = producers.after(known, each, plan.markers.get(each.base_offset))
    return known


def first_of(partition: Partition, append: AppendBatch, known: Producer | None) -> Again | None:
    """The batch that this one is again, by what is `known` of its producer."""
    found = find_duplicate(known, append.header, tried=f"append to {append.key}")
    if found is None:
        return None
    is_append_time = partition.settings.is_append_time
    first = Awaiting(
        append.token,
        partition,
        found.base_offset,
        Offset(found.base_offset + found.last_offset_delta + 1),
        found.timestamp if is_append_time else NO_APPEND_TIME_MS,
    )
    return Again(append, first)


def _refuse_outside(known: Producer, append: AppendBatch) -> None:
    """A batch outside of the transaction would be read whatever becomes of that, and its sequence
    would stand between those of the transaction."""
    raise TidelogError(
        ErrorCode.INVALID_TRANSACTION_STATE,
        tried=f"append to {append.key}",
        happened=f"the batch is marked as one of no transaction, and producer "
        f"{known.producer_id} has one open here since offset {known.transaction_start}",
        hint="End the transaction first, or send the batch as a part of it: with the transactional "
        "flag, and the transactional id in the request.",
    )


def take(state: DirectoryState, again: Again, round_: WriteRound) -> None:
    """Answer it at once, or with the write that the first one is planned in."""
    state.note_duplicate()
    if again.first.end_offset > again.first.partition.log.log_end_offset:
        round_.take_again(again)
    else:
        answer(state, again)


def answer(state: DirectoryState, again: Again) -> None:
    """The first one is written: answer as it was, or will be."""
    append, first = again.append, again.first
    partition, role = first.partition, first.partition.role
    if isinstance(role, Following):
        state.refuse(append.token, indeterminate(append.key))
    elif not append.is_flush_awaited:
        state.acknowledge(first)
    elif role is None:
        _await_flush(state, first)
    elif first.end_offset <= _answered_offset(partition):
        state.acknowledge(first)
    elif partition.log.failure is not None:
        state.refuse(append.token, partition.log.failure)
    elif state.is_stopping:
        state.refuse(append.token, node_stopping(append.key))
    else:
        role.await_commit(first)
        state.release_bytes(append.token)


def _answered_offset(partition: Partition) -> Offset:
    """Up to where it is committed, and as safe as what is committed from now on."""
    log = partition.log
    if partition.is_flush_counted:
        return min(log.high_watermark, log.flushed_offset)
    return log.high_watermark


def _await_flush(state: DirectoryState, first: Awaiting) -> None:
    partition = first.partition
    if first.end_offset <= partition.log.flushed_offset:
        state.acknowledge(first)
        return
    state.release_bytes(first.token)
    if state.flush is not None and state.flush.covers(partition, first.end_offset):
        state.flush.await_end(first)
    else:
        state.make_dirty(partition)
        state.await_flush(first)
