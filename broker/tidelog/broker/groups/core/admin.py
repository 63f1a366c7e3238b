"""Groups as operators see and change them. Pure."""

from tidelog.broker.groups.core import membership
from tidelog.broker.groups.core.offsets import forget
from tidelog.broker.groups.state.answers import (
    DeleteGroupAnswer,
    DescribeGroupAnswer,
    GroupListing,
    GroupPartition,
    GroupType,
    ListGroupsAnswer,
    MemberDescription,
    RemoveMembersAnswer,
    StagedView,
)
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import Group, Member
from tidelog.broker.groups.state.messages import DeleteGroup, DescribeGroup, RemoveMembers
from tidelog.broker.groups.state.notes import DepartureReason
from tidelog.broker.groups.state.records import GroupKey
from tidelog.broker.groups.state.refusals import holds_group, not_empty, not_found
from tidelog.broker.groups.state.staged import StagedTransaction, holders
from tidelog.broker.groups.state.world import World
from tidelog.wire.calls.groups import AssignedPartition
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.ids import PartitionKey


def list_groups(world: World) -> ListGroupsAnswer:
    """All, in ascending order of name."""
    return ListGroupsAnswer(
        groups=tuple(
            GroupListing(
                group=name,
                state=world.groups[name].state,
                type=GroupType(world.groups[name].group_type),
                member_count=len(world.groups[name].members),
            )
            for name in sorted(world.groups)
        )
    )


def on_describe(world: World, draft: Draft, request: DescribeGroup) -> DescribeGroupAnswer:
    """GROUP_NOT_FOUND if there is nothing of it."""
    tried = f"describe group `{request.group}`"
    validate_group_name(request.group, tried=tried)
    group = draft.group()
    if group.is_nothing:
        raise not_found(request.group, tried)
    return DescribeGroupAnswer(
        group=group.name,
        state=group.state,
        type=GroupType(group.group_type),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor,
        members=tuple(
            _describe_member(world, group, group.members[id_]) for id_ in sorted(group.members)
        ),
        partitions=_describe_partitions(world, group),
    )


def _describe_member(world: World, group: Group, member: Member) -> MemberDescription:
    owned = {**member.assigned, **member.revoking}
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.words.client_id,
        address=member.words.address,
        member_epoch=member.epoch,
        topics=member.words.topics,
        topic_pattern=member.words.topic_pattern,
        assignor=member.words.assignor,
        assigned=tuple(
            AssignedPartition(key, owned[key], world.topics.name_of(key.topic_id))
            for key in sorted(owned)
        ),
        target=tuple(sorted(group.targets.get(member.member_id, {}))),
        silence_ms=world.now_ms - member.heard_ms,
    )


def _describe_partitions(world: World, group: Group) -> tuple[GroupPartition, ...]:
    held = holders(group.staged.values())
    found = [
        GroupPartition(
            key=key,
            topic_name=world.topics.name_of(key.topic_id),
            stored=group.offsets.get(key),
            member_id=group.owners.get(key, ""),
            staged=_view(held[key], key) if key in held else None,
        )
        for key in sorted({**group.offsets, **group.owners, **held})
    ]
    return tuple(sorted(found, key=lambda each: (each.topic_name, each.key)))


def _view(holder: StagedTransaction, key: PartitionKey) -> StagedView:
    return StagedView(
        identity=holder.identity,
        transactional_id=holder.transactional_id,
        since_ms=holder.since_ms,
        offset=holder.offsets()[key],
    )


def on_remove_members(world: World, draft: Draft, request: RemoveMembers) -> RemoveMembersAnswer:
    """Those that are members; the others are gone already."""
    tried = f"remove members of group `{request.group}`"
    validate_group_name(request.group, tried=tried)
    group = draft.group()
    if request.member_ids or request.group_instance_ids:
        named = dict.fromkeys(request.member_ids)
        named |= dict.fromkeys(
            group.by_instance.get(each, "") for each in request.group_instance_ids
        )
        removed = sorted(each for each in named if each in group.members)
    else:
        removed = sorted(group.members)
    if removed:
        membership.remove(world, draft, dict.fromkeys(removed, DepartureReason.REMOVED))
    return RemoveMembersAnswer(removed_member_ids=tuple(removed))


def on_delete_group(world: World, draft: Draft, request: DeleteGroup) -> DeleteGroupAnswer:
    """With all of its offsets; sent again after a failover it deletes what was left."""
    tried = f"delete group `{request.group}`"
    validate_group_name(request.group, tried=tried)
    group = draft.group()
    if group.is_nothing:
        raise not_found(request.group, tried)
    if group.members:
        raise not_empty(group, tried)
    for holder in group.staged.values():
        # Forgotten now, its offsets would make the group anew when the transaction is committed.
        raise holds_group(group, holder, tried)
    if not request.validate_only:
        delete(draft)
    return DeleteGroupAnswer()


def delete(draft: Draft) -> None:
    """Offsets first: a group of which only a part is gone is still there."""
    group = draft.group()
    draft.is_atomic = False
    is_stored = group.is_stored
    for key in sorted(group.offsets):
        forget(draft, key)
    if is_stored:
        draft.put(GroupKey(draft.name), None)
