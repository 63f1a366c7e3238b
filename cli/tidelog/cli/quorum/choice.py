"""Which member of the quorum is meant by a node id, and what to say where that is not clear. Pure.

Owns the refusals that need no call: a node that is no member, several directories of one node.
"""

from typing import TYPE_CHECKING, Final, NoReturn

from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.client.types.admin import QuorumDescription, QuorumMember


_JOIN: Final = (
    "a new node becomes a learner when it runs: `tidelog storage format --join`, then "
    "`tidelog server`, with quorum.bootstrap_servers set"
)
_LIST: Final = "`tidelog quorum describe` lists the members; one that was removed stays out"


def to_promote(
    quorum: "QuorumDescription", node_id: int, directory_uuid: bytes | None
) -> "QuorumMember":
    """The learner to make a voter; a voter, if there is nothing to do."""
    tried = f"add node {node_id} to the voters"
    found = _named(quorum, node_id, directory_uuid, tried)
    learners = [member for member in found if member.is_learner]
    voters = [member for member in found if not member.is_learner]
    if not learners:
        return voters[0]
    if len(learners) > 1:
        _ambiguous(tried, node_id, learners)
    all_of_node = _members(quorum, node_id)
    old = [member for member in all_of_node if not member.is_learner]
    if old:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=tried,
            happened=f"node {node_id} is a voter with another directory, "
            f"{old[0].directory_uuid.hex()}",
            hint="If that directory is lost, first remove it: tidelog quorum remove-voter "
            f"{node_id} --directory-uuid {old[0].directory_uuid.hex()}",
        )
    return learners[0]


def to_remove(
    quorum: "QuorumDescription", node_id: int, directory_uuid: bytes | None
) -> "QuorumMember":
    """The member to remove."""
    tried = f"remove node {node_id} from the quorum"
    found = _named(quorum, node_id, directory_uuid, tried, hint=_LIST)
    if len(found) > 1:
        _ambiguous(tried, node_id, found)
    return found[0]


def to_lead(quorum: "QuorumDescription", node_id: int) -> "QuorumMember":
    """The voter that is to lead."""
    tried = f"hand the quorum's leadership to node {node_id}"
    found = _named(quorum, node_id, None, tried)
    voters = [member for member in found if not member.is_learner]
    if not voters:
        raise TidelogError(
            ErrorCode.UNKNOWN_VOTER,
            tried=tried,
            happened=f"node {node_id} is a learner, and only voters lead",
            hint=f"first make it a voter: tidelog quorum add-voter {node_id}",
        )
    return voters[0]


def _members(quorum: "QuorumDescription", node_id: int) -> list["QuorumMember"]:
    return [each.member for each in quorum.members if each.member.node_id == node_id]


def _named(
    quorum: "QuorumDescription",
    node_id: int,
    directory_uuid: bytes | None,
    tried: str,
    hint: str = _JOIN,
) -> list["QuorumMember"]:
    members = _members(quorum, node_id)
    if not members:
        known = ", ".join(
            f"{each.member.node_id}{' (learner)' if each.member.is_learner else ''}"
            for each in quorum.members
        )
        raise TidelogError(
            ErrorCode.UNKNOWN_VOTER,
            tried=tried,
            happened=f"the quorum has no member of that node id; it has {known}",
            hint=hint,
        )
    if directory_uuid is None:
        return members
    found = [member for member in members if member.directory_uuid == directory_uuid]
    if not found:
        known = ", ".join(member.directory_uuid.hex() for member in members)
        raise TidelogError(
            ErrorCode.UNKNOWN_VOTER,
            tried=tried,
            happened=f"it has not the directory uuid {directory_uuid.hex()}, but {known}",
            hint="check the uuid with `tidelog quorum describe`, or leave --directory-uuid out",
        )
    return found


def _ambiguous(tried: str, node_id: int, members: list["QuorumMember"]) -> NoReturn:
    listed = ", ".join(
        f"{member.directory_uuid.hex()} ({'learner' if member.is_learner else 'voter'})"
        for member in members
    )
    raise TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=tried,
        happened=f"node {node_id} is a member with several directories: {listed}",
        hint="say which with --directory-uuid; `tidelog quorum describe` shows which one is alive",
    )
