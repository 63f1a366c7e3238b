"""A member's heartbeats: joining, staying, reporting, leaving. Pure.

Owns who is a member. A refusal comes before the first record of a draft: a heartbeat that is
refused has changed nothing.
"""

from collections.abc import Mapping

from tidelog.broker.groups.core import targets
from tidelog.broker.groups.core.reconcile import heartbeat_interval_ms, reconcile
from tidelog.broker.groups.core.words import TRIED, check_request, heard_words
from tidelog.broker.groups.state import limits, replay
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import NEVER_MS, Group, Member, subscription_of
from tidelog.broker.groups.state.messages import Caller
from tidelog.broker.groups.state.notes import DepartureReason
from tidelog.broker.groups.state.records import MemberKey, OwnedKey, TargetKey
from tidelog.broker.groups.state.refusals import exhausted, fenced, unknown_member
from tidelog.broker.groups.state.world import World
from tidelog.wire.calls.groups import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    AssignedPartition,
    Heartbeat,
    HeartbeatAnswer,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey
from tidelog.wire.refusals import invalid


def quick_answer(world: World, heartbeat: Heartbeat, caller: Caller) -> HeartbeatAnswer | None:
    """For a member that has nothing new and for which there is nothing new; None: look closer."""
    group = world.groups.get(heartbeat.group)
    member = group.members.get(heartbeat.member_id) if group is not None else None
    if (
        group is None
        or member is None
        or not member.is_settled
        or heartbeat.member_epoch != member.epoch
        or member.epoch != group.epoch
        or (heartbeat.heartbeat_sequence and heartbeat.heartbeat_sequence <= member.sequence)
        or heartbeat.subscription is not None
        or heartbeat.owned is not None
        or heartbeat.rack is not None
        or heartbeat.session_timeout_ms is not None
        or heartbeat.rebalance_timeout_ms is not None
        or heartbeat.group_instance_id != member.words.group_instance_id
        or caller.carrier != member.carrier
    ):
        return None
    _hear(world, member, heartbeat)
    return _answer(world, group, member, is_assignment_told=False)


def on_heartbeat(
    world: World, draft: Draft, heartbeat: Heartbeat, caller: Caller
) -> HeartbeatAnswer:
    """Any heartbeat."""
    check_request(world, heartbeat)
    if heartbeat.member_epoch == JOINING_EPOCH:
        _check_carrier(world, heartbeat, caller)
        return _on_join(world, draft, heartbeat, caller)
    if heartbeat.member_epoch in (LEAVING_EPOCH, AWAY_EPOCH):
        return _on_departure(world, draft, heartbeat)
    member = draft.group().members.get(heartbeat.member_id)
    if member is None:
        raise unknown_member(heartbeat.group, heartbeat.member_id, "stay in")
    return _on_stay(world, draft, member, heartbeat, caller)


def _on_join(world: World, draft: Draft, heartbeat: Heartbeat, caller: Caller) -> HeartbeatAnswer:
    group = draft.group()
    member = group.members.get(heartbeat.member_id)
    if member is None:
        return _on_first_join(world, draft, heartbeat, caller)
    if member.previous_epoch == JOINING_EPOCH and not member.is_away:
        # It joined, and the answer was lost; or it begins again before it has done anything.
        return _on_stay(world, draft, member, heartbeat, caller)
    _check_order(group, member, heartbeat)
    _check_instance(group, member, heartbeat)
    words = heard_words(world, member.words, heartbeat, caller)
    _hear(world, member, heartbeat)
    draft.put(MemberKey(group.name, member.member_id), words)
    # It owns nothing, as it says. What it gets now it gets at a new epoch: a commit that it sent
    # before is one of another life.
    _store_owned(draft, member, {}, epoch=member.epoch, previous_epoch=JOINING_EPOCH)
    member.revoke_due_ms = NEVER_MS
    targets.on_change(world, draft, is_urgent=True)
    return _settle(world, draft, member, None, JOINING_EPOCH, is_assignment_told=True)


def _on_first_join(
    world: World, draft: Draft, heartbeat: Heartbeat, caller: Caller
) -> HeartbeatAnswer:
    group = draft.group()
    if heartbeat.subscription is None:
        raise invalid(TRIED.format(heartbeat), "a member that joins says what it subscribes to")
    former = _find_former(group, heartbeat)
    _check_room(world, group, former)
    if former is not None:
        return _replace(world, draft, former, heartbeat, caller)
    words = heard_words(world, None, heartbeat, caller)
    draft.put(MemberKey(group.name, heartbeat.member_id), words)
    member = draft.group().members[heartbeat.member_id]
    _hear(world, member, heartbeat)
    targets.on_change(world, draft)
    return _settle(world, draft, member, None, JOINING_EPOCH, is_assignment_told=True)


def _find_former(group: Group, heartbeat: Heartbeat) -> Member | None:
    """The static member whose place it takes."""
    holder = group.by_instance.get(heartbeat.group_instance_id)
    if not heartbeat.group_instance_id or holder is None:
        return None
    former = group.members[holder]
    if not (former.is_away or heartbeat.takes_over):
        raise TidelogError(
            ErrorCode.INSTANCE_ID_IN_USE,
            tried=TRIED.format(heartbeat),
            happened=f"group_instance_id `{heartbeat.group_instance_id}` belongs to member "
            f"`{holder}`, which has not left and was heard of "
            "within its session timeout",
        )
    return former


def _check_carrier(world: World, heartbeat: Heartbeat, caller: Caller) -> None:
    """COORDINATOR_NOT_AVAILABLE for a stream at a broker that counts as dead: its member would
    hold partitions that nobody reads."""
    life = caller.carrier
    if life is not None and world.is_over(life):
        raise TidelogError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            tried=TRIED.format(heartbeat),
            happened=f"broker {life.broker_id}, which carries the stream, is fenced or has begun "
            "anew",
            hint="Begin again at another broker.",
        )


def _check_room(world: World, group: Group, former: Member | None) -> None:
    tried = f"join group `{group.name}`"
    if former is None and len(group.members) >= limits.MEMBERS_PER_GROUP_MAX:
        limit = limits.MEMBERS_PER_GROUP_MAX
        raise exhausted(tried, "the group is full", "MEMBERS_PER_GROUP_MAX", limit)
    if group.is_nothing and len(world.groups) > limits.GROUPS_MAX:
        raise exhausted(tried, "there are too many groups", "GROUPS_MAX", limits.GROUPS_MAX)


def _replace(
    world: World, draft: Draft, former: Member, heartbeat: Heartbeat, caller: Caller
) -> HeartbeatAnswer:
    """A static member is back under a new member id: nothing else moves.

    One that has not left before may read on until it hears of it; nothing that it commits counts.
    """
    group = draft.group()
    words = heard_words(world, former.words, heartbeat, caller)
    assigned, target = former.assigned, group.targets.get(former.member_id)
    is_change = former.subscription != subscription_of(words)
    world.notes.depart(group.name, former.member_id, DepartureReason.REPLACED)
    _put_tombstones(draft, former.member_id)
    draft.put(MemberKey(group.name, heartbeat.member_id), words)
    if target:
        draft.put(TargetKey(group.name, heartbeat.member_id), replay.target_value(target))
    member = group.members[heartbeat.member_id]
    _hear(world, member, heartbeat)
    _store_owned(draft, member, assigned, epoch=former.epoch, previous_epoch=JOINING_EPOCH)
    if is_change:
        targets.on_change(world, draft)
    return _settle(world, draft, member, None, JOINING_EPOCH, is_assignment_told=True)


def _on_departure(world: World, draft: Draft, heartbeat: Heartbeat) -> HeartbeatAnswer:
    group = draft.group()
    member = group.members.get(heartbeat.member_id)
    if member is not None:
        _check_order(group, member, heartbeat)
        if heartbeat.member_epoch == LEAVING_EPOCH:
            remove(world, draft, {member.member_id: DepartureReason.LEFT})
        else:
            _go_away(world, draft, member, heartbeat)
    return HeartbeatAnswer(member_epoch=heartbeat.member_epoch)


def _go_away(world: World, draft: Draft, member: Member, heartbeat: Heartbeat) -> None:
    if not member.instance_id:
        happened = "only a static member, one with a group_instance_id, leaves for a while"
        raise invalid(TRIED.format(heartbeat), happened)
    group = draft.group()
    _hear(world, member, heartbeat)
    member.revoke_due_ms = NEVER_MS
    target = group.targets.get(member.member_id, {})
    kept = {key: epoch for key, epoch in member.assigned.items() if key in target}
    before = member.previous_epoch
    _store_owned(draft, member, kept, epoch=member.epoch, previous_epoch=before, is_away=True)


def remove(world: World, draft: Draft, gone: Mapping[str, DepartureReason]) -> None:
    """They are gone, and what they owned is free."""
    for member_id, reason in gone.items():
        world.notes.depart(draft.name, member_id, reason)
        _put_tombstones(draft, member_id)
    targets.on_change(world, draft)


def _put_tombstones(draft: Draft, member_id: str) -> None:
    draft.put(OwnedKey(draft.name, member_id), None)
    draft.put(TargetKey(draft.name, member_id), None)
    draft.put(MemberKey(draft.name, member_id), None)


def _store_owned(
    draft: Draft,
    member: Member,
    assigned: dict[PartitionKey, int],
    *,
    epoch: int,
    previous_epoch: int,
    is_away: bool = False,
) -> None:
    value = replay.owned_value(
        member,
        assigned=assigned,
        revoking={},
        epoch=epoch,
        previous_epoch=previous_epoch,
        sequence=max(member.sequence, member.stored_sequence),
        is_away=is_away,
    )
    draft.put(OwnedKey(draft.name, member.member_id), value)


def _on_stay(
    world: World, draft: Draft, member: Member, heartbeat: Heartbeat, caller: Caller
) -> HeartbeatAnswer:
    """A member at work, or one that repeats what was not answered."""
    group = draft.group()
    _check_order(group, member, heartbeat)
    _check_instance(group, member, heartbeat)
    owned = None if heartbeat.owned is None else dict.fromkeys(heartbeat.owned)
    if heartbeat.member_epoch == JOINING_EPOCH:
        # Whoever joins has stopped reading everything, whatever it was told to give up.
        owned = owned or {}
    else:
        _check_owned(group, member, heartbeat)
    _check_epoch(group, member, heartbeat)
    words = heard_words(world, member.words, heartbeat, caller)
    _hear(world, member, heartbeat)
    if words != member.words:
        is_change = member.subscription != subscription_of(words)
        draft.put(MemberKey(group.name, member.member_id), words)
        if is_change:
            targets.on_change(world, draft)
    is_behind = heartbeat.member_epoch != member.epoch
    return _settle(
        world, draft, member, owned, heartbeat.member_epoch, is_assignment_told=is_behind
    )


def _check_order(group: Group, member: Member, heartbeat: Heartbeat) -> None:
    sequence = heartbeat.heartbeat_sequence
    if sequence and sequence <= max(member.sequence, member.stored_sequence):
        happened = f"heartbeat {sequence} comes after a later one of this member"
        raise fenced(group, member, heartbeat.member_epoch, happened)


def _check_instance(group: Group, member: Member, heartbeat: Heartbeat) -> None:
    if heartbeat.group_instance_id not in ("", member.instance_id):
        happened = f"a member's group_instance_id (`{member.instance_id}`) stays for its whole life"
        raise invalid(TRIED.format(heartbeat), happened)


def _check_epoch(group: Group, member: Member, heartbeat: Heartbeat) -> None:
    """FENCED_MEMBER_EPOCH for one that does not stand where a living member can stand."""
    sent = heartbeat.member_epoch
    if member.is_away:
        raise fenced(group, member, sent, "it has left for a while; it comes back by joining")
    if sent not in (member.epoch, member.previous_epoch):
        raise fenced(group, member, sent, f"its epoch is {member.epoch}")


def _check_owned(group: Group, member: Member, heartbeat: Heartbeat) -> None:
    """FENCED_MEMBER_EPOCH for one that reads what somebody else may read."""
    for key in heartbeat.owned or ():
        if member.owned_epoch(key) is None:
            happened = f"it owns {key} as it says, and was not given it"
            raise fenced(group, member, heartbeat.member_epoch, happened)


def _hear(world: World, member: Member, heartbeat: Heartbeat) -> None:
    member.heard_ms = world.now_ms
    member.session_due_ms = world.now_ms + member.words.session_timeout_ms
    if heartbeat.heartbeat_sequence > member.sequence:
        member.sequence = heartbeat.heartbeat_sequence


def _settle(
    world: World,
    draft: Draft,
    member: Member,
    owned: Mapping[PartitionKey, None] | None,
    sent_epoch: int,
    *,
    is_assignment_told: bool,
) -> HeartbeatAnswer:
    """Reconcile and answer; an assignment that the member does not seem to know is told again."""
    group = draft.group()
    before = member.assigned
    reconcile(world, draft, member, owned, sent_epoch)
    member.session_due_ms = world.now_ms + member.words.session_timeout_ms
    world.timers.watch_member(group, member)
    is_news = member.assigned.keys() != before.keys()
    is_other = owned is not None and owned.keys() != member.assigned.keys()
    return _answer(
        world, group, member, is_assignment_told=is_assignment_told or is_news or is_other
    )


def _answer(
    world: World, group: Group, member: Member, *, is_assignment_told: bool
) -> HeartbeatAnswer:
    assignment = None
    if is_assignment_told:
        assignment = tuple(
            AssignedPartition(key, member.assigned[key], world.topics.name_of(key.topic_id))
            for key in sorted(member.assigned)
        )
    return HeartbeatAnswer(
        member_epoch=member.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(world, group, member),
        assignment=assignment,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        session_timeout_ms=member.words.session_timeout_ms,
        is_idle=_is_idle(world, group, member),
    )


def _is_idle(world: World, group: Group, member: Member) -> bool:
    """Its target is empty, and not because there is nothing to read."""
    if group.assignment_epoch < group.epoch or group.targets.get(member.member_id):
        return False
    return any(each.partition_count for each in world.topics.resolve(member.subscription))
