"""QuorumAdminService, executed by the quorum's leader: describe, add, remove, hand over.

Owns what stands before a change of the members: nothing may be in flight while the leadership is
handed over. Voters that do not lead, and brokers, pass the calls on (`forwarding`).
"""

import asyncio
from collections.abc import Callable, Sequence

from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.admin.execution import Execute
from tidelog.metadata_quorum.port import Executed
from tidelog.metadata_quorum.quorum.port import Quorum
from tidelog.metadata_quorum.raft.core_port import Description, MemberProgress
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.types import NO_INDEX, Member, MemberId, Members, NodeId
from tidelog.metadata_quorum.stream.server import ObserverStatus
from tidelog.ports import RequestContext
from tidelog.v1 import quorum_admin_pb2, quorum_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.refusals import invalid

ANY_NODE = -1
NEVER_MS = -1
Observers = Callable[[], Sequence[ObserverStatus]]
"""Who reads the metadata stream of this node."""


class QuorumAdmin:
    """The service's methods; each refuses with NOT_CONTROLLER where this node does not lead."""

    def __init__(self, controller: ActiveController, observers: Observers) -> None:
        self._controller = controller
        self._quorum: Quorum = controller.quorum
        self._observers = observers

    def table(self) -> dict[str, Execute]:
        """By full method name."""
        return {
            "/tidelog.v1.QuorumAdminService/DescribeQuorum": self.describe_quorum,
            "/tidelog.v1.QuorumAdminService/AddVoter": self.add_voter,
            "/tidelog.v1.QuorumAdminService/RemoveVoter": self.remove_voter,
            "/tidelog.v1.QuorumAdminService/TransferLeadership": self.transfer_leadership,
        }

    async def describe_quorum(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`DescribeQuorum`: linearizable, since the leader asks a majority first."""
        del context
        tried = "describe the quorum"
        quorum_admin_pb2.DescribeQuorumRequest.FromString(message)
        self._led(tried)
        await self._quorum.read_index(timeout_ms=timeout_ms)
        description = self._led(tried)
        response = quorum_admin_pb2.DescribeQuorumResponse(
            leader_id=description.id.node_id,
            term=description.term,
            last_index=description.last_index,
            commit_index=description.commit_index,
            log_start_index=description.log_start_index,
            is_membership_changing=description.members != description.committed_members,
        )
        progress = {each.id: each for each in description.progress}
        for member in sorted(description.members, key=lambda each: (each.is_learner, each.id)):
            _fill_status(response.members.add(), member, description, progress.get(member.id))
        for observer in sorted(self._observers(), key=lambda each: each.node_id):
            response.observers.add(node_id=observer.node_id, applied_index=observer.applied_index)
        return Executed(response=response.SerializeToString(), applied_index=NO_INDEX)

    async def add_voter(self, context: RequestContext, message: bytes, timeout_ms: int) -> Executed:
        """`AddVoter`."""
        del context
        asked = quorum_admin_pb2.AddVoterRequest.FromString(message)
        tried = f"make node {asked.node_id} a voter"
        members = self._led(tried).members
        member = _find(members, asked.node_id, asked.directory_uuid, tried)
        if not asked.validate_only:
            # Also one that is a voter here: what made it one may not be committed yet.
            members = await self._quorum.promote(member.id, timeout_ms=timeout_ms)
        response = quorum_admin_pb2.AddVoterResponse(members=_members_message(members))
        return Executed(response=response.SerializeToString(), applied_index=NO_INDEX)

    async def remove_voter(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`RemoveVoter`. A leader hands over first: the next one removes it when asked again."""
        del context
        asked = quorum_admin_pb2.RemoveVoterRequest.FromString(message)
        tried = f"remove node {asked.node_id} from the quorum"
        description = self._led(tried)
        members = description.members
        member = _find_leaving(description, asked.node_id, asked.directory_uuid, tried)
        if members.voters == (member.id,):
            raise invalid(tried, "it is the last voter", "Add another voter first.")
        if not asked.validate_only:
            if member.id == description.id:
                await self._hand_over(None, tried=tried, timeout_ms=timeout_ms)
                raise self._controller.not_controller(tried)
            members = await self._quorum.remove_member(member.id, timeout_ms=timeout_ms)
        response = quorum_admin_pb2.RemoveVoterResponse(members=_members_message(members))
        return Executed(response=response.SerializeToString(), applied_index=NO_INDEX)

    async def transfer_leadership(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`TransferLeadership`."""
        del context
        asked = quorum_admin_pb2.TransferLeadershipRequest.FromString(message)
        tried = f"hand the leadership over to node {asked.node_id}"
        description = self._led(tried)
        if asked.node_id != description.id.node_id:
            to = _find_voter(description.members, asked.node_id, tried)
            await self._hand_over(to, tried=tried, timeout_ms=timeout_ms)
            description = self._quorum.describe()
        leader = description.leader
        response = quorum_admin_pb2.TransferLeadershipResponse(
            leader_id=asked.node_id if leader is None else leader.node_id, term=description.term
        )
        return Executed(response=response.SerializeToString(), applied_index=NO_INDEX)

    async def _hand_over(self, to: MemberId | None, *, tried: str, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._controller.hold():
                await self._quorum.transfer(to, timeout_ms=timeout_ms)
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=tried,
                happened=f"the leadership was not handed over within {timeout_ms} ms",
            ) from None

    def _led(self, tried: str) -> Description:
        description = self._quorum.describe()
        if description.role is not Role.LEADER:
            raise self._controller.not_controller(tried)
        return description


def _find(members: Members, node_id: int, directory_uuid: bytes, tried: str) -> Member:
    member = members.find(MemberId(NodeId(node_id), directory_uuid))
    if member is None:
        known = ", ".join(f"{each.id.node_id}:{each.id.directory_uuid.hex()}" for each in members)
        raise TidelogError(
            ErrorCode.UNKNOWN_VOTER,
            tried=tried,
            happened=f"no member has this node id and directory {directory_uuid.hex()}",
            hint=f"The members are {known}.",
        )
    return member


def _find_leaving(
    description: Description, node_id: int, directory_uuid: bytes, tried: str
) -> Member:
    """One whose removal is not committed yet may be asked for again, and then waits for that."""
    member_id = MemberId(NodeId(node_id), directory_uuid)
    leaving = description.committed_members.find(member_id)
    if leaving is not None:
        return leaving
    return _find(description.members, node_id, directory_uuid, tried)


def _find_voter(members: Members, node_id: int, tried: str) -> MemberId | None:
    if node_id == ANY_NODE:
        return None
    for voter in members.voters:
        if voter.node_id == node_id:
            return voter
    known = ", ".join(str(each.node_id) for each in members.voters)
    raise TidelogError(
        ErrorCode.UNKNOWN_VOTER,
        tried=tried,
        happened=f"node {node_id} is no voter",
        hint=f"The voters are nodes {known}.",
    )


def _fill_status(
    message: quorum_admin_pb2.QuorumMemberStatus,
    member: Member,
    description: Description,
    progress: MemberProgress | None,
) -> None:
    _fill_member(message.member, member)
    if member.id == description.id:
        message.match_index = description.persisted_index
        message.is_repairing = description.is_repairing
    elif progress is None:
        message.last_contact_ms = NEVER_MS
    else:
        message.match_index = progress.match_index
        message.last_contact_ms = progress.last_contact_ms
        message.is_repairing = progress.state == "repair"
        message.is_installing_snapshot = progress.state == "snapshot"
    message.lag = max(0, description.last_index - message.match_index)


def _members_message(members: Members) -> quorum_pb2.QuorumMembers:
    message = quorum_pb2.QuorumMembers()
    for member in members:
        _fill_member(message.members.add(), member)
    return message


def _fill_member(message: quorum_pb2.QuorumMember, member: Member) -> None:
    message.node_id = member.id.node_id
    message.directory_uuid = member.id.directory_uuid
    message.address = member.address
    message.is_learner = member.is_learner
