"""What must hold in a group member's core after every step; tests check it.

Owns no state. A violated invariant is a bug of the engine, never of a coordinator: it asserts.
"""

from tidelog.client.engine.group.group import GroupCore
from tidelog.client.engine.group.membership import Membership, Stage
from tidelog.client.engine.group.messages import Assign, Revoke
from tidelog.wire.ids import PartitionKey


def check_group(core: GroupCore) -> None:
    """After a step."""
    check_membership(core.membership)
    desk = core.desk
    assert all(commit.left for commit in desk.commits), "a commit that is settled is kept"
    assert all(lookup.left for lookup in desk.lookups), "a lookup that is answered is kept"
    sent = desk.commits_sent
    if sent is not None:
        stamps = {commit.stamp for commit in sent.commits}
        request = sent.request
        assert stamps == {(request.member_id, request.member_epoch)}, "commits of two epochs mixed"


def check_membership(member: Membership) -> None:
    """What is read is held; what is held is read, wanted, or about to be read."""
    assert member.reading.keys() <= member.held.keys(), "reads what the coordinator does not know"
    told: set[PartitionKey] = set()
    if isinstance(member.pending, Assign | Revoke):
        told = {each.key for each in member.pending.partitions}
    if isinstance(member.pending, Revoke):
        assert told <= member.reading.keys(), "takes away what is not read"
    if isinstance(member.pending, Assign):
        assert not told & member.reading.keys(), "assigns what is read already"
    allowed = member.reading.keys() | member.target.keys() | told
    assert member.held.keys() <= allowed, "holds what nobody wants"
    if member.stage is not Stage.JOINED:
        assert not member.held, f"holds partitions while {member.stage.value}"
        assert member.lease_until_ns is None, f"has a lease while {member.stage.value}"
