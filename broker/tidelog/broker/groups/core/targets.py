"""When a group's target assignment is computed, and what of it is stored. Pure.

Owns group_epoch and assignment_epoch. A change counts one group_epoch up at once. The target
follows at once if the last one is old enough, else with the next tick that is due: of a hundred
members that start together the first is served at once, and the others together.
"""

from collections import Counter
from typing import Final

from tidelog.broker.groups.assignors import range as range_assignor
from tidelog.broker.groups.assignors import uniform
from tidelog.broker.groups.assignors.types import Assignment, AssignorMember, Wanted
from tidelog.broker.groups.state import limits, replay
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import NEVER_MS, Group, Member
from tidelog.broker.groups.state.messages import GroupTopic
from tidelog.broker.groups.state.records import GroupKey, GroupValue, OwnedKey, TargetKey
from tidelog.broker.groups.state.topics import digest
from tidelog.broker.groups.state.world import World
from tidelog.wire.calls.groups import Assignor
from tidelog.wire.ids import PartitionKey, TopicId

_ASSIGNORS: Final = {Assignor.UNIFORM: uniform.assign, Assignor.RANGE: range_assignor.assign}


def subscribed(world: World, group: Group) -> dict[TopicId, GroupTopic]:
    """The topics that any member means and that exist, in ascending order of name.

    Those beyond the limit of partitions are left out: a subscription is refused that passes it, but
    topics may grow, and patterns may find more of them.
    """
    found: dict[str, GroupTopic] = {}
    for member in group.members.values():
        for topic in world.topics.resolve(member.subscription):
            found[topic.name] = topic
    taken: dict[TopicId, GroupTopic] = {}
    partitions = 0
    for name in sorted(found):
        partitions += found[name].partition_count
        if partitions <= limits.PARTITIONS_PER_GROUP_MAX:
            taken[found[name].topic_id] = found[name]
    return taken


def on_change(world: World, draft: Draft, *, is_urgent: bool = False) -> None:
    """Members, subscriptions or partition counts are others: one group_epoch more."""
    group = draft.group()
    topics = subscribed(world, group)
    epoch = group.epoch + 1
    is_due = (
        is_urgent
        or not group.members
        or group.assigned_at_ms is None
        or world.now_ms >= group.assigned_at_ms + limits.ASSIGNMENT_INTERVAL_MS
    )
    draft.put(
        GroupKey(group.name),
        GroupValue(
            group_type=group.group_type,
            group_epoch=epoch,
            assignment_epoch=epoch if is_due else group.assignment_epoch,
            assignor=_most_wanted(world, group) if is_due else group.assignor,
            topics_digest=digest(topics),
            empty_since_ms=-1 if group.members else _empty_since(world, group),
        ),
    )
    if is_due:
        _store_targets(world, draft, topics)
    elif group.assign_due_ms == NEVER_MS:
        assert group.assigned_at_ms is not None, "a computation is put off behind another"
        group.assign_due_ms = group.assigned_at_ms + limits.ASSIGNMENT_INTERVAL_MS
        world.timers.watch_group(group)


def compute(world: World, draft: Draft) -> None:
    """What was put off: assignment_epoch catches up with group_epoch."""
    group = draft.group()
    assert group.assignment_epoch < group.epoch, f"the target of `{group.name}` is up to date"
    assignor = _most_wanted(world, group)
    value = GroupValue(
        group_type=group.group_type,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor=assignor,
        topics_digest=group.topics_digest,
        empty_since_ms=group.empty_since_ms,
    )
    draft.put(GroupKey(group.name), value)
    _store_targets(world, draft, subscribed(world, group))


def _empty_since(world: World, group: Group) -> int:
    return group.empty_since_ms if group.empty_since_ms >= 0 else world.stamp_ms


def _most_wanted(world: World, group: Group) -> Assignor:
    """For which most members ask; of several the one with the lowest number."""
    default = world.settings(group.name).assignor
    votes = Counter(Assignor(member.words.assignor) or default for member in group.members.values())
    return min(votes, key=lambda each: (-votes[each], each), default=default)


def _store_targets(world: World, draft: Draft, topics: dict[TopicId, GroupTopic]) -> None:
    group = draft.group()
    group.assigned_at_ms = world.now_ms
    group.assign_due_ms = NEVER_MS
    world.notes.rebalances += 1
    assignment = _assignment(world, group, topics)
    for member_id in sorted(group.members):
        target = dict.fromkeys(assignment[member_id])
        if target.keys() != group.targets.get(member_id, {}).keys():
            value = replay.target_value(target) if target else None
            draft.put(TargetKey(group.name, member_id), value)
        _take_from_away(draft, group.members[member_id], target)


def _assignment(world: World, group: Group, topics: dict[TopicId, GroupTopic]) -> Assignment:
    members = [
        AssignorMember(
            member_id,
            member.instance_id or member_id,
            tuple(each.topic_id for each in world.topics.resolve(member.subscription)),
        )
        for member_id, member in group.members.items()
    ]
    wanted = Wanted(
        members=sorted(members, key=lambda each: (each.name, each.member_id)),
        partition_counts={each.topic_id: each.partition_count for each in topics.values()},
        former=group.targets,
    )
    return _ASSIGNORS[Assignor(group.assignor)](wanted)


def _take_from_away(draft: Draft, member: Member, target: dict[PartitionKey, None]) -> None:
    """A static member that is away reads nothing: what it is not to have is free at once."""
    if not member.is_away:
        return
    kept = {key: epoch for key, epoch in member.assigned.items() if key in target}
    if kept.keys() != member.assigned.keys():
        value = replay.owned_value(
            member,
            assigned=kept,
            revoking={},
            epoch=member.epoch,
            previous_epoch=member.previous_epoch,
            sequence=member.stored_sequence,
            is_away=True,
        )
        draft.put(OwnedKey(draft.name, member.member_id), value)
