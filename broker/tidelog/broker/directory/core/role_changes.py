"""What a replica is: the only one, a leader, a follower; and what is committed then. Pure.

Owns the change from role to role and the moves of the high watermark of partitions with several
replicas. It must never answer in a new role what was asked of the old one, nor commit what is not
at every replica that the commit rule names (`commit`). Stop 8 of a record's walk.

    queued, planned ── Follow ──▶ refused with NOT_LEADER: nothing was stored
    written, not committed ── Follow ──▶ INDETERMINATE: the next leader may have it, or may not
    a follower's log ends elsewhere ── FollowerAt ──▶ the watermark moves, acks=all is answered
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidelog.broker.directory.core import cutting, invariants, stopping
from tidelog.broker.directory.core.commit import NOT_KNOWN, agreed_offset, answered_offset
from tidelog.broker.directory.core.messages import (
    Acknowledge,
    Advanced,
    AppendBatch,
    CommitTo,
    Effect,
    Follow,
    FollowerAt,
    Forget,
    Lead,
    Refuse,
    Written,
)
from tidelog.broker.directory.core.role_errors import indeterminate, node_stopping, not_leader
from tidelog.broker.directory.core.rounds import Awaiting, Following, Leading, Partition, Planned
from tidelog.broker.log.state.log import NOT_LED
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.broker.directory.core.core import DirectoryCore


def on_lead(core: DirectoryCore, message: Lead, effects: list[Effect]) -> None:
    """Lead, or go on leading with others in sync; who waits for a commit goes on waiting."""
    partition = core.partitions.get(message.key)
    if partition is None:
        return
    log = partition.log
    is_new = message.leader_epoch != log.leader_epoch or not isinstance(partition.role, Leading)
    _refuse_copies(core, partition, effects)
    role = _leading(core, partition, message, effects)
    if message.leader_epoch != log.leader_epoch:
        cutting.give_up(core, partition, effects)
        log.lead(message.leader_epoch)
    if role is None:
        return
    if is_new:
        role.others = {}
        log.led_from = log.log_end_offset if partition.plan is None else partition.plan.end_offset
    unknown = (NOT_KNOWN, NOT_KNOWN)
    role.others = {each: role.others.get(each, unknown) for each in message.others}
    role.in_sync_count = message.in_sync_count
    if partition.is_lazy and partition.is_flush_counted:
        # From now on only the flush commits.
        core.make_dirty(partition)
    advance(core, partition, effects)


def _leading(
    core: DirectoryCore, partition: Partition, message: Lead, effects: list[Effect]
) -> Leading | None:
    """The role from now on; None: the only replica."""
    role = partition.role
    if message.is_sole or (message.is_sole is None and role is None and not message.others):
        assert not message.others, f"{message.key}: an only replica waits for no other"
        _become_sole(core, partition, effects)
        return None
    if isinstance(role, Leading):
        return role
    made = Leading()
    if role is None and partition.plan is not None:
        # It led before as well: what is being written is answered.
        partition.plan.role = made
    partition.role = made
    partition.log.keep_uncommitted()
    if role is None:
        # What waited for the flush waits for the others as well.
        taken = sorted(_take_awaiting(core, partition), key=lambda each: each.end_offset)
        made.awaiting.extend(taken)
    return made


def _become_sole(core: DirectoryCore, partition: Partition, effects: list[Effect]) -> None:
    """Without others a flush commits."""
    role, log = partition.role, partition.log
    if role is None:
        return
    partition.role = None
    if partition.plan is not None and partition.plan.role is role:
        partition.plan.role = None
    log.uncommitted = None
    log.led_from = NOT_LED
    if isinstance(role, Leading):
        core.awaiting += role.awaiting
    if log.failure is not None or not log.segments or partition.cut is not None:
        return
    # The next round finds all of it flushed, commits it, and answers.
    core.make_dirty(partition)
    core.moved[log.key] = partition


def on_follow(core: DirectoryCore, message: Follow, effects: list[Effect]) -> None:
    """Follow: whoever waits is told that this one does not lead."""
    partition = core.partitions.get(message.key)
    if partition is None:
        return
    role, log = partition.role, partition.log
    if isinstance(role, Following) and message.leader_epoch == log.leader_epoch:
        return
    stopping.refuse_waiting(core, partition, not_leader(message.key), effects)
    waiting = list(role.awaiting) if isinstance(role, Leading) else []
    waiting += _take_awaiting(core, partition)
    effects += [
        Refuse(token=each.answer.token, error=indeterminate(message.key)) for each in waiting
    ]
    if message.leader_epoch != log.leader_epoch:
        cutting.give_up(core, partition, effects)
        log.lead(message.leader_epoch)
    log.led_from = NOT_LED
    log.keep_uncommitted()
    partition.role = Following()


def on_follower_at(core: DirectoryCore, message: FollowerAt, effects: list[Effect]) -> None:
    """Take note of where the follower stands, if a commit waits for it."""
    partition = core.partitions.get(message.key)
    if partition is None or message.leader_epoch != partition.log.leader_epoch:
        return
    role = partition.role
    if not isinstance(role, Leading) or message.broker_id not in role.others:
        return
    role.others[message.broker_id] = (message.log_end_offset, message.flushed_offset)
    advance(core, partition, effects)


def on_commit_to(core: DirectoryCore, message: CommitTo, effects: list[Effect]) -> None:
    """Take the leader's watermark over, as far as its log is here."""
    partition = core.partitions.get(message.key)
    if partition is None or message.leader_epoch != partition.log.leader_epoch:
        return
    role = partition.role
    if isinstance(role, Following) and message.offset > role.leader_watermark:
        role.leader_watermark = message.offset
        advance(core, partition, effects)


def on_forget(core: DirectoryCore, message: Forget, effects: list[Effect]) -> None:
    """Let those go who wait for a commit that may never come, and whom nobody hears any more.

    The batches stay, as any of which the outcome is unknown. Whoever waits for a write or a flush
    is answered soon, and stays as well.
    """
    for key, partition in core.partitions.items():
        role = partition.role
        if not isinstance(role, Leading) or not role.awaiting:
            continue
        kept: deque[Awaiting] = deque()
        for each in role.awaiting:
            if each.answer.token in message.tokens:
                effects.append(Refuse(token=each.answer.token, error=indeterminate(key)))
            else:
                kept.append(each)
        role.awaiting = kept


def advance(core: DirectoryCore, partition: Partition, effects: list[Effect]) -> None:
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
        invariants.check_moved(core, log.key, before)
        core.committed_marks[log.key] = log.high_watermark
        effects.append(Advanced(key=log.key))
    if isinstance(role, Leading) and role.awaiting:
        awaiting, answered = role.awaiting, answered_offset(partition, role)
        while awaiting and awaiting[0].end_offset <= answered:
            effects.append(awaiting.popleft().answer)


def answer_written(
    core: DirectoryCore, planned: Planned, answer: Acknowledge, effects: list[Effect]
) -> None:
    """A batch of one of several replicas is written: a copy and acks=1 are answered."""
    partition, append = planned.plan.partition, planned.append
    if append.is_replica:
        effects.append(answer)
    elif planned.plan.role is not partition.role:
        effects.append(Refuse(token=answer.token, error=indeterminate(append.key)))
    elif not append.is_flush_awaited:
        effects.append(answer)
    elif partition.log.failure is not None:
        effects.append(Refuse(token=answer.token, error=partition.log.failure))
    elif core.is_stopping:
        effects.append(Refuse(token=answer.token, error=node_stopping(append.key)))
    else:
        assert isinstance(partition.role, Leading), f"{append.key}: asked of one that follows"
        awaiting = Awaiting(answer, partition, planned.end_offset)
        partition.role.awaiting.append(awaiting)
        effects.append(Written(token=answer.token))


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


def _refuse_copies(core: DirectoryCore, partition: Partition, effects: list[Effect]) -> None:
    """What another leader has sent does not belong behind what this one will write."""
    if isinstance(partition.role, Following):
        error = TidelogError(
            ErrorCode.FENCED_LEADER_EPOCH,
            tried=f"append a copy to {partition.log.key}",
            happened="this broker leads it by now",
        )
        stopping.refuse_waiting(core, partition, error, effects)


def _take_awaiting(core: DirectoryCore, partition: Partition) -> list[Awaiting]:
    """Those who wait for a flush to be told that their batch is stored, in their order."""
    taken: list[Awaiting] = []
    if core.flush is not None:
        core.flush.awaiting[:] = _without(core.flush.awaiting, partition, taken)
    core.awaiting = _without(core.awaiting, partition, taken)
    return taken


def _without(
    awaiting: list[Awaiting], partition: Partition, taken: list[Awaiting]
) -> list[Awaiting]:
    kept: list[Awaiting] = []
    for each in awaiting:
        is_taken = each.partition is partition and isinstance(each.answer, Acknowledge)
        (taken if is_taken else kept).append(each)
    return kept
