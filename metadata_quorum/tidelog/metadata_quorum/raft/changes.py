"""Changes of members: one voter at a time, in force as soon as they are in the log.

Owns what may be changed when. Two majorities of member sets that differ in one voter always share a
voter; that is why a change waits for the one before it to be committed, and for an entry of the
leader's own term, without which an older leader's change could still be in the air.
"""

from tidelog.metadata_quorum.raft import leader as leading
from tidelog.metadata_quorum.raft import replication
from tidelog.metadata_quorum.raft.effects import Done, Refused
from tidelog.metadata_quorum.raft.inputs import AddLearner, Promote, RemoveMember
from tidelog.metadata_quorum.raft.membership import (
    DIRECTORY_UUID_BYTES,
    MEMBERS_MAX,
    encode_members,
    sorted_members,
)
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.roles import LeaderState, WaitingChange
from tidelog.metadata_quorum.raft.types import EntryKind, Member, MemberId, Members
from tidelog.wire.errors import ErrorCode

Change = AddLearner | Promote | RemoveMember


def on_change(node: Node, leader: LeaderState, request: Change) -> None:
    """Into the log, if it may be; what is in force already only waits for its commit."""
    wanted = _wanted(node, leader, request)
    if isinstance(wanted, Members):
        if wanted == node.members:
            _wait(node, leader, request.request_id)
            return
        refusal = _not_now(node, leader)
        if refusal is None:
            _append(node, leader, wanted)
            _wait(node, leader, request.request_id)
            return
        wanted = refusal
    node.answer(request.request_id, wanted)


def _wait(node: Node, leader: LeaderState, request_id: int) -> None:
    index = node.membership.index
    if index <= node.commit_index:
        node.answer(request_id, Done(members=node.members, index=index))
    else:
        leader.changes.append(WaitingChange(request_id=request_id, index=index))


def _append(node: Node, leader: LeaderState, members: Members) -> None:
    leading.append_entry(node, leader, EntryKind.MEMBERS, encode_members(members))
    leader.leaving = node.membership.leaving(node.commit_index)
    # Those who leave were sent this entry like everybody, so that they learn that they left; once
    # it is committed they are told that as well, so that they stay quiet.
    for member_id in leader.leaving:
        leader.progress.pop(member_id, None)
    for member in members:
        if member.id != node.id and member.id not in leader.progress:
            leading.add_progress(node, leader, member.id)
            replication.send_heartbeat(node, leader, leader.progress[member.id])


def _not_now(node: Node, leader: LeaderState) -> Refused | None:
    if node.membership.index > node.commit_index:
        code = ErrorCode.MEMBERSHIP_CHANGE_IN_PROGRESS
        return _refused(node, code, "another change of members is not committed yet")
    if node.commit_index < leader.first_index:
        return _refused(
            node, ErrorCode.UNAVAILABLE, "the leader is new and has committed nothing of its term"
        )
    if leader.hand_over is not None:
        return _refused(node, ErrorCode.UNAVAILABLE, "leadership is being handed over")
    return None


def _wanted(node: Node, leader: LeaderState, request: Change) -> Members | Refused:
    match request:
        case AddLearner():
            return _with_learner(node, request.member)
        case Promote():
            return _with_voter(node, leader, request.member_id)
        case RemoveMember():
            return _without(node, request.member_id)


def _with_learner(node: Node, member: Member) -> Members | Refused:
    found = node.members.find(member.id)
    if found is not None:
        # The same directory at another address keeps its vote.
        return _replaced(node, found, member.address)
    code = ErrorCode.INVALID_ARGUMENT
    if len(member.id.directory_uuid) != DIRECTORY_UUID_BYTES or not member.address:
        return _refused(node, code, "a member has a directory uuid of 16 bytes and an address")
    if len(node.members.members) >= MEMBERS_MAX:
        return _refused(node, code, f"there are {MEMBERS_MAX} members already")
    learner = Member(id=member.id, address=member.address, is_learner=True)
    return sorted_members((*node.members, learner))


def _replaced(node: Node, found: Member, address: str, is_learner: bool | None = None) -> Members:
    replacement = Member(
        id=found.id,
        address=address or found.address,
        is_learner=found.is_learner if is_learner is None else is_learner,
    )
    return Members(
        tuple(replacement if member.id == found.id else member for member in node.members)
    )


def _with_voter(node: Node, leader: LeaderState, member_id: MemberId) -> Members | Refused:
    found = node.members.find(member_id)
    if found is None:
        happened = f"node {member_id.node_id} with this directory is no member"
        return _refused(node, ErrorCode.UNKNOWN_VOTER, happened)
    if not found.is_learner:
        return node.members
    if any(voter.node_id == member_id.node_id for voter in node.membership.voters):
        return _refused(
            node,
            ErrorCode.INVALID_ARGUMENT,
            f"node {member_id.node_id} is a voter with another directory",
            "Remove the old directory's voter first.",
        )
    lag = _lag(node, leader, member_id)
    if lag is None or lag > node.options.catch_up_entries_max:
        how_far = "has not been heard of" if lag is None else f"is {lag} entries behind"
        happened = f"node {member_id.node_id} {how_far}"
        return _refused(node, ErrorCode.VOTER_NOT_CAUGHT_UP, happened)
    return _replaced(node, found, found.address, is_learner=False)


def _lag(node: Node, leader: LeaderState, member_id: MemberId) -> int | None:
    progress = leader.progress.get(member_id)
    if progress is None or not progress.was_heard or progress.is_repairing:
        return None
    if progress.heard_ms <= node.now_ms - node.options.election_timeout_ms:
        return None
    return node.log.last_index - progress.match_index


def _without(node: Node, member_id: MemberId) -> Members | Refused:
    if node.membership.voters == (member_id,):
        return _refused(node, ErrorCode.INVALID_ARGUMENT, "the last voter cannot be removed")
    return Members(tuple(member for member in node.members if member.id != member_id))


def _refused(node: Node, code: ErrorCode, happened: str, hint: str = "") -> Refused:
    return Refused(code=code, happened=happened, hint=hint, leader=node.leader)
