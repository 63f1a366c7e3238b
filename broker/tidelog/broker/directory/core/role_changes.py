"""What a replica is: the only one, a leader, a follower; and what is committed then. Pure.

Owns the change from role to role and the moves of the high watermark of partitions with several
replicas. It must never answer in a new role what was asked of the old one, nor commit what is not
at every replica that the commit rule names (`commit`). Stop 8 of a record's walk.

    queued, planned ── Follow ──▶ refused with NOT_LEADER: nothing was stored
    written, not committed ── Follow ──▶ INDETERMINATE: the next leader may have it, or may not
    a follower's log ends elsewhere ── FollowerAt ──▶ the watermark moves, acks=all is answered
"""

from tidelog.broker.directory.core import cutting, invariants, stopping
from tidelog.broker.directory.core.commit import agreed_offset, answered_offset
from tidelog.broker.directory.core.messages import (
    AppendBatch,
    CommitTo,
    Follow,
    Forget,
    Lead,
    Moved,
)
from tidelog.broker.directory.core.partition import Following, Leading, Partition
from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.directory.core.role_errors import (
    indeterminate,
    led_anew,
    node_stopping,
    not_leader,
)
from tidelog.broker.directory.core.rounds import Awaiting, Planned
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.wire.errors import ErrorCode, TidelogError


def on_lead(state: DirectoryState, message: Lead) -> None:
    """Lead, or go on leading with others in sync; who waits for a commit goes on waiting."""
    partition = state.partitions.get(message.key)
    if partition is None:
        return
    log = partition.log
    is_new = message.leader_epoch != log.leader_epoch or not isinstance(partition.role, Leading)
    _refuse_copies(state, partition)
    if message.leader_epoch != log.leader_epoch:
        # The other leader may have ended what this one has verified.
        stopping.refuse_verifying(state, partition, led_anew(message.key))
    role = _leading(state, partition, message)
    if message.leader_epoch != log.leader_epoch:
        cutting.give_up(state, partition)
        log.lead(message.leader_epoch)
    if role is None:
        return
    if is_new:
        role.forget_positions()
        plan = partition.plan
        log.lead_others(log.log_end_offset if plan is None else plan.end_offset)
    role.wait_for(message.others, in_sync_count=message.in_sync_count)
    if partition.is_flush_counted:
        # From now on only the flush commits.
        state.hurry(partition)
    advance(state, partition)


def _leading(state: DirectoryState, partition: Partition, message: Lead) -> Leading | None:
    """The role from now on; None: the only replica."""
    role = partition.role
    if message.is_sole or (message.is_sole is None and role is None and not message.others):
        assert not message.others, f"{message.key}: an only replica waits for no other"
        _become_sole(state, partition)
        return None
    leading = partition.lead_others()
    if role is None:
        # What waited for the flush waits for the others as well.
        for each in sorted(_take_awaiting(state, partition), key=lambda each: each.end_offset):
            leading.await_commit(each)
    return leading


def _become_sole(state: DirectoryState, partition: Partition) -> None:
    """Without others a flush commits."""
    role, log = partition.role, partition.log
    if role is None:
        return
    partition.become_sole()
    if isinstance(role, Leading):
        for each in role.take_all():
            state.await_flush(each)
    if log.failure is not None or not log.segments or partition.cut is not None:
        return
    # The next round finds all of it flushed, commits it, and answers.
    state.make_dirty(partition)
    state.log_end_moved(partition)


def on_follow(state: DirectoryState, message: Follow) -> None:
    """Follow: whoever waits is told that this one does not lead."""
    partition = state.partitions.get(message.key)
    if partition is None:
        return
    role, log = partition.role, partition.log
    if isinstance(role, Following) and message.leader_epoch == log.leader_epoch:
        return
    stopping.refuse_waiting(state, partition, not_leader(message.key))
    waiting = role.take_all() if isinstance(role, Leading) else []
    waiting += _take_awaiting(state, partition)
    for each in waiting:
        state.refuse(each.token, indeterminate(message.key))
    if message.leader_epoch != log.leader_epoch:
        cutting.give_up(state, partition)
        log.lead(message.leader_epoch)
    partition.follow()


def on_follower_at(state: DirectoryState, message: FollowerAt) -> None:
    """Take note of where the follower stands, if a commit waits for it."""
    partition = state.partitions.get(message.key)
    if partition is None or message.leader_epoch != partition.log.leader_epoch:
        return
    role = partition.role
    if not isinstance(role, Leading) or message.broker_id not in role.others:
        return
    role.note_position(message)
    advance(state, partition)


def on_commit_to(state: DirectoryState, message: CommitTo) -> None:
    """Take the leader's watermark over, as far as its log is here."""
    partition = state.partitions.get(message.key)
    if partition is None or message.leader_epoch != partition.log.leader_epoch:
        return
    role = partition.role
    if isinstance(role, Following) and role.note_watermark(message.offset):
        advance(state, partition)


def on_forget(state: DirectoryState, message: Forget) -> None:
    """Let those go who wait for a commit that may never come, and whom nobody hears any more.

    The batches stay, as any of which the outcome is unknown. Whoever waits for a write or a flush
    is answered soon, and stays as well.
    """
    for key, partition in state.partitions.items():
        role = partition.role
        if isinstance(role, Leading):
            for each in role.take_tokens(message.tokens):
                state.refuse(each.token, indeterminate(key))


def follow_up(state: DirectoryState) -> None:
    """This step has moved ends of replicas: the watermark may follow, and others are told."""
    for partition in state.take_moved():
        advance(state, partition)
        state.emit(Moved(key=partition.log.key))


def advance(state: DirectoryState, partition: Partition) -> None:
    """Move the high watermark of one of several replicas as far as it may, and answer."""
    role, log = partition.role, partition.log
    if role is None or log.failure is not None or partition.cut is not None:
        return
    if isinstance(role, Following):
        offset: int = role.leader_watermark
    else:
        offset = agreed_offset(partition, role)
    before = log.high_watermark
    if log.commit_to(offset):
        invariants.check_moved(state, log.key, before)
        state.marks.note_committed(log.key, log.high_watermark)
        state.tell_readers(log.key)
    if isinstance(role, Leading) and role.awaiting:
        for each in role.take_committed(answered_offset(partition, role)):
            state.acknowledge(each)


def answer_written(state: DirectoryState, planned: Planned, stored: Awaiting) -> None:
    """A batch of one of several replicas is written: a copy and acks=1 are answered."""
    partition, append = planned.plan.partition, planned.append
    if append.is_replica:
        state.acknowledge(stored)
    elif planned.plan.role is not partition.role:
        state.refuse(append.token, indeterminate(append.key))
    elif not append.is_flush_awaited:
        state.acknowledge(stored)
    elif partition.log.failure is not None:
        state.refuse(append.token, partition.log.failure)
    elif state.is_stopping:
        state.refuse(append.token, node_stopping(append.key))
    else:
        assert isinstance(partition.role, Leading), f"{append.key}: asked of one that follows"
        partition.role.await_commit(stored)
        state.release_bytes(append.token)


def objection(partition: Partition, append: AppendBatch) -> TidelogError | None:
    """Why one of several replicas does not take the batch; None: it does."""
    role = partition.role
    if append.is_replica:
        if isinstance(role, Following):
            return None
        return TidelogError(
            ErrorCode.FENCED_LEADER_EPOCH,
            tried=f"append a copy to {append.key}",
            happened=f"this broker leads it at leader epoch {partition.log.leader_epoch}",
        )
    if not isinstance(role, Leading):
        return not_leader(append.key)
    in_sync_min = partition.settings.in_sync_replicas_min
    if append.is_flush_awaited and role.in_sync_count < in_sync_min:
        return TidelogError(
            ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS,
            tried=f"append to {append.key}",
            happened=f"{role.in_sync_count} replicas are in sync, "
            f"the topic's min.insync.replicas is {in_sync_min}",
        )
    return None


def _refuse_copies(state: DirectoryState, partition: Partition) -> None:
    """What another leader has sent does not belong behind what this one will write."""
    if isinstance(partition.role, Following):
        error = TidelogError(
            ErrorCode.FENCED_LEADER_EPOCH,
            tried=f"append a copy to {partition.log.key}",
            happened="this broker leads it by now",
        )
        stopping.refuse_waiting(state, partition, error)


def _take_awaiting(state: DirectoryState, partition: Partition) -> list[Awaiting]:
    """Those who wait for a flush to be told that their batch is stored, in their order."""

    def is_stored(each: Awaiting) -> bool:
        return each.partition is partition and each.error is None

    taken = [] if state.flush is None else state.flush.take_awaiting(is_stored)
    return taken + state.take_awaiting(is_stored)
