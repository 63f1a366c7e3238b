"""How a member comes from what it owns to what it should own, step by step. Pure.

Owns the rules by which partitions change hands; only a member's own heartbeat, or its removal,
changes what it owns. What is in its target stays, with its epoch. What is not, is to be given up.
Only when all of that is reported given up does the member reach the assignment_epoch, and only
then is it given what is new and free. A partition that is to be given up is not handed back before
it was given up, even if the target has turned again: the member may be on its way out of it.
"""

from collections.abc import Mapping

import msgspec

from tidelog.broker.groups.state import limits, replay
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import NEVER_MS, Group, Member, is_at_target
from tidelog.broker.groups.state.records import OwnedKey
from tidelog.broker.groups.state.world import World
from tidelog.wire.ids import PartitionKey


class Ownership(msgspec.Struct, frozen=True):
    """What a member owns and how far it has come."""

    epoch: int
    assigned: dict[PartitionKey, int]
    revoking: dict[PartitionKey, int]


def reconcile(
    world: World,
    draft: Draft,
    member: Member,
    owned: Mapping[PartitionKey, None] | None,
    sent_epoch: int,
) -> None:
    """One step; `owned`: what the member says it owns, None: it does not say.

    `sent_epoch`: the member's epoch as it knows it.
    """
    group = draft.group()
    before = Ownership(member.epoch, member.assigned, member.revoking)
    after = next_step(group, member, owned)
    if after != before:
        was_revoking = member.revoking
        _store(draft, member, after, sent_epoch)
        _set_revoke_deadline(world, group, member, was_revoking)
    member.is_settled = is_at_target(group, member)


def next_step(group: Group, member: Member, owned: Mapping[PartitionKey, None] | None) -> Ownership:
    """What the member owns after it; changes nothing."""
    target = group.targets.get(member.member_id, {})
    revoking = member.revoking
    if owned is not None:
        revoking = {key: epoch for key, epoch in revoking.items() if key in owned}
    assigned = {key: epoch for key, epoch in member.assigned.items() if key in target}
    if len(assigned) != len(member.assigned):
        # What it was given by an answer that was lost, and says it does not own, it need not give
        # up: it would never report that it did.
        taken = {
            key: each
            for key, each in member.assigned.items()
            if key not in target and (owned is None or key in owned)
        }
        revoking = {**revoking, **taken}
    if revoking:
        return Ownership(member.epoch, assigned, revoking)
    for key in target:
        if key not in assigned and group.owners.get(key, member.member_id) == member.member_id:
            assigned[key] = group.assignment_epoch
    return Ownership(group.assignment_epoch, assigned, revoking)


def _store(draft: Draft, member: Member, after: Ownership, sent_epoch: int) -> None:
    has_moved = after.epoch != member.epoch
    value = replay.owned_value(
        member,
        assigned=after.assigned,
        revoking=after.revoking,
        epoch=after.epoch,
        previous_epoch=sent_epoch if has_moved else member.previous_epoch,
        sequence=max(member.sequence, member.stored_sequence),
    )
    draft.put(OwnedKey(draft.name, member.member_id), value)


def _set_revoke_deadline(
    world: World, group: Group, member: Member, was_revoking: dict[PartitionKey, int]
) -> None:
    """It begins anew when more is to be given up, and not when some of it was."""
    if not member.revoking:
        member.revoke_due_ms = NEVER_MS
    elif any(key not in was_revoking for key in member.revoking):
        member.revoke_due_ms = world.now_ms + member.patience_ms
        world.timers.watch_member(group, member)


def heartbeat_interval_ms(world: World, group: Group, member: Member) -> int:
    """Soon for one that waits for others or for the target; never later than a third session."""
    longest = max(1, member.words.session_timeout_ms // 3)
    calm = min(world.settings(group.name).heartbeat_interval_ms, longest)
    if member.is_settled and group.assignment_epoch == group.epoch:
        return calm
    soon = max(
        limits.RECONCILING_INTERVAL_MS_MIN,
        limits.RECONCILING_INTERVAL_MS_PER_MEMBER * len(group.members),
    )
    return min(calm, soon)
