"""What is true of groups after every step, and between two steps. Pure.

Owns the list. `check` looks at a state, `check_step` at two of them, one step apart; a core checks
itself after a load, tests and simulations after everything.

1. A partition has one owner, and `owners` tells it.
2. partition_assignment_epoch ≤ member_epoch ≤ assignment_epoch ≤ group_epoch.
3. No partition is in two targets.
4. A group_instance_id belongs to one member.
5. A group tells since when it is empty if and only if it is.
6. No epoch falls; what one life of a group has, another begins with anew.
7. A partition that has another owner than before has a higher partition_assignment_epoch, unless a
   static member is back under a new member id.
8. What a living member owns is changed by nothing but its own heartbeat. That takes a partition
   from it, or gives it the same one anew, only if it lets go of it: it says what it owns and does
   not name the partition, or it joins, or it goes away. And what is to be given up stays so until
   then. One that is away reads nothing: whatever comes may take from it, and gives it nothing.
9. What a transaction has sent stands under its producer, in parts that each name something.
"""

from collections.abc import Mapping

import msgspec

from tidelog.broker.groups.state.group import Group, Member
from tidelog.broker.groups.state.messages import Asked, Completion, Message, Tick
from tidelog.wire.calls.groups import AWAY_EPOCH, JOINING_EPOCH, Heartbeat
from tidelog.wire.ids import PartitionKey

Told = Message | Completion | Tick
"""What a core is told in one step."""


def check(groups: Mapping[str, Group]) -> None:
    """Of a state; groups of which nothing is stored are none."""
    for name, group in groups.items():
        assert group.name == name, f"`{group.name}` stands as `{name}`"
        assert not group.is_nothing, f"`{name}` is nothing and still there"
        _check_group(group)
        for member in group.members.values():
            _check_member(group, member)


def _check_group(group: Group) -> None:
    where = f"group `{group.name}`"
    assert group.assignment_epoch <= group.epoch, f"{where}: target ahead of the group"
    owned: dict[PartitionKey, str] = {}
    wanted: dict[PartitionKey, str] = {}
    for member_id, member in group.members.items():
        for key in (*member.assigned, *member.revoking):
            assert key not in owned, f"{where}: {key} belongs to {owned[key]} and {member_id}"
            owned[key] = member_id
    assert owned == group.owners, f"{where}: owners {group.owners}, and members own {owned}"
    for member_id, target in group.targets.items():
        assert member_id in group.members, f"{where}: a target of {member_id}, which is no member"
        for key in target:
            assert key not in wanted, f"{where}: {key} is a target of two members"
            wanted[key] = member_id
    instances = {
        each.instance_id: member_id for member_id, each in group.members.items() if each.instance_id
    }
    assert instances == group.by_instance, f"{where}: {group.by_instance} for {instances}"
    count = sum(1 for each in group.members.values() if each.instance_id)
    assert len(instances) == count, f"{where}: two members with one group_instance_id"
    for producer_id, transaction in group.staged.items():
        assert transaction.identity.producer_id == producer_id, f"{where}: {transaction.identity}"
        assert transaction.parts, f"{where}: nothing is staged by {transaction.identity}"
        assert all(transaction.parts.values()), f"{where}: {transaction.identity} sent nothing"
    is_told_empty = group.empty_since_ms >= 0
    assert not group.is_stored or is_told_empty == (not group.members), f"{where}: empty or not"


def _check_member(group: Group, member: Member) -> None:
    where = f"member {member.member_id} of `{group.name}`"
    assert 0 <= member.previous_epoch <= member.epoch <= group.assignment_epoch, (
        f"{where}: epochs {member.previous_epoch}, {member.epoch}, {group.assignment_epoch}"
    )
    for epoch in (*member.assigned.values(), *member.revoking.values()):
        assert 1 <= epoch <= member.epoch, f"{where}: a partition of epoch {epoch}"
    assert not (member.is_away and member.revoking), f"{where} is away and gives up something"
    assert not (member.is_away and not member.instance_id), f"{where} is away and not static"


class MemberView(msgspec.Struct, frozen=True):
    """What `check_step` compares of a member."""

    epoch: int
    instance_id: str
    assigned: Mapping[PartitionKey, int]
    revoking: Mapping[PartitionKey, int]
    is_away: bool


class GroupView(msgspec.Struct, frozen=True):
    """What `check_step` compares of a group."""

    epoch: int
    assignment_epoch: int
    members: Mapping[str, MemberView]


def view(groups: Mapping[str, Group]) -> dict[str, GroupView]:
    """A state as it is now: later steps do not change the view."""
    return {
        name: GroupView(
            group.epoch,
            group.assignment_epoch,
            {
                member_id: MemberView(
                    each.epoch, each.instance_id, each.assigned, each.revoking, each.is_away
                )
                for member_id, each in group.members.items()
            },
        )
        for name, group in groups.items()
    }


def check_step(before: Mapping[str, GroupView], after: Mapping[str, GroupView], told: Told) -> None:
    """Of two states, one step apart; `told`: what the core was told in that step."""
    for name, old in before.items():
        new = after.get(name)
        if new is not None and new.epoch > 0:
            _check_group_step(name, old, new, told)


def _check_group_step(name: str, old: GroupView, new: GroupView, told: Told) -> None:
    assert new.epoch >= old.epoch, f"`{name}`: group_epoch fell"
    assert new.assignment_epoch >= old.assignment_epoch, f"`{name}`: assignment_epoch fell"
    owners: dict[PartitionKey, tuple[str, int]] = {}
    for member_id, member in new.members.items():
        for owned in (member.assigned, member.revoking):
            for key, epoch in owned.items():
                owners[key] = (member_id, epoch)
    for member_id, former in old.members.items():
        present = new.members.get(member_id)
        if present is not None:
            said = _said_by(told, name, member_id)
            _check_member_step(f"{member_id} of `{name}`", former, present, said)
        for owned in (former.assigned, former.revoking):
            for key, epoch in owned.items():
                holder, now = owners.get(key, (member_id, epoch))
                if holder != member_id and not _is_same_instance(former, new.members[holder]):
                    assert now > epoch, f"`{name}`: {key} of {member_id}@{epoch} now {holder}@{now}"


def _said_by(told: Told, group: str, member_id: str) -> Heartbeat | None:
    said = told.request if isinstance(told, Asked) else None
    if isinstance(said, Heartbeat) and (said.group, said.member_id) == (group, member_id):
        return said
    return None


def _is_same_instance(former: MemberView, present: MemberView) -> bool:
    return former.instance_id != "" and former.instance_id == present.instance_id


def _check_member_step(who: str, old: MemberView, new: MemberView, said: Heartbeat | None) -> None:
    """`said`: the member's own heartbeat; None: the step was about something else."""
    assert new.epoch >= old.epoch, f"{who}: member_epoch fell"
    if said is None and old.is_away and new.is_away:
        assert new.assigned.items() <= old.assigned.items(), f"{who} is away and was given more"
        return
    if said is None:
        assert new == old, f"{who}: what it owns changed behind its back"
        return
    for key, epoch in (*old.assigned.items(), *old.revoking.items()):
        now = new.assigned.get(key, new.revoking.get(key))
        if now is None or now > epoch:
            assert _lets_go(said, key), f"{who}: {key} went without having been given up"
        else:
            assert now == epoch, f"{who}: {key} has epoch {now} after {epoch}"
            is_back = key in old.revoking and key in new.assigned
            assert not is_back, f"{who}: {key} is its own again and was not given up"


def _lets_go(said: Heartbeat, key: PartitionKey) -> bool:
    """Whether by this heartbeat the member reads the partition no more."""
    if said.member_epoch in (JOINING_EPOCH, AWAY_EPOCH):
        return True
    return said.owned is not None and key not in said.owned
