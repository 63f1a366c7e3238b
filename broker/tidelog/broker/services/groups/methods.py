"""The methods about groups that one broker may ask another: names, messages, and who answers here.

Owns the table. Between brokers a call travels as its method's name and its request's bytes, so that
nothing but this table knows what calls there are.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

import msgspec
from google.protobuf.message import Message

from tidelog.broker.groups.state.messages import Caller
from tidelog.broker.services.groups.calls import GroupCalls
from tidelog.contract.groups import COMMIT_OFFSETS, FETCH_OFFSETS, GROUP_HEARTBEAT
from tidelog.v1 import group_admin_pb2, groups_pb2

AskedT = TypeVar("AskedT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)
SERVICE: Final = "/tidelog.v1.GroupAdminService"


class GroupMethod(msgspec.Struct, Generic[AskedT, AnswerT], frozen=True):
    """One of them."""

    name: str
    request: type[AskedT]
    response: type[AnswerT]
    serve: Callable[[GroupCalls, Caller, AskedT], Awaitable[AnswerT]]
    """By the coordinators of the broker that is asked."""

    async def serve_bytes(self, calls: GroupCalls, caller: Caller, request: bytes) -> bytes:
        """For another broker."""
        answer = await self.serve(calls, caller, self.request.FromString(request))
        return answer.SerializeToString()


HEARTBEAT: Final = GroupMethod(
    GROUP_HEARTBEAT,
    groups_pb2.GroupHeartbeatRequest,
    groups_pb2.GroupHeartbeatResponse,
    GroupCalls.heartbeat,
)
COMMIT: Final = GroupMethod(
    COMMIT_OFFSETS,
    groups_pb2.CommitOffsetsRequest,
    groups_pb2.CommitOffsetsResponse,
    GroupCalls.commit,
)
FETCH: Final = GroupMethod(
    FETCH_OFFSETS,
    groups_pb2.FetchOffsetsRequest,
    groups_pb2.FetchOffsetsResponse,
    GroupCalls.fetch,
)
LIST_GROUPS: Final = GroupMethod(
    f"{SERVICE}/ListGroups",
    group_admin_pb2.ListGroupsRequest,
    group_admin_pb2.ListGroupsResponse,
    GroupCalls.list_groups,
)
DESCRIBE_GROUPS: Final = GroupMethod(
    f"{SERVICE}/DescribeGroups",
    group_admin_pb2.DescribeGroupsRequest,
    group_admin_pb2.DescribeGroupsResponse,
    GroupCalls.describe_groups,
)
ALTER_OFFSETS: Final = GroupMethod(
    f"{SERVICE}/AlterGroupOffsets",
    group_admin_pb2.AlterGroupOffsetsRequest,
    group_admin_pb2.AlterGroupOffsetsResponse,
    GroupCalls.alter_offsets,
)
DELETE_OFFSETS: Final = GroupMethod(
    f"{SERVICE}/DeleteGroupOffsets",
    group_admin_pb2.DeleteGroupOffsetsRequest,
    group_admin_pb2.DeleteGroupOffsetsResponse,
    GroupCalls.delete_offsets,
)
DELETE_GROUPS: Final = GroupMethod(
    f"{SERVICE}/DeleteGroups",
    group_admin_pb2.DeleteGroupsRequest,
    group_admin_pb2.DeleteGroupsResponse,
    GroupCalls.delete_groups,
)
REMOVE_MEMBERS: Final = GroupMethod(
    f"{SERVICE}/RemoveMembers",
    group_admin_pb2.RemoveMembersRequest,
    group_admin_pb2.RemoveMembersResponse,
    GroupCalls.remove_members,
)

ServeBytes = Callable[[GroupCalls, Caller, bytes], Awaitable[bytes]]
SERVED: Final[Mapping[str, ServeBytes]] = {
    HEARTBEAT.name: HEARTBEAT.serve_bytes,
    COMMIT.name: COMMIT.serve_bytes,
    FETCH.name: FETCH.serve_bytes,
    LIST_GROUPS.name: LIST_GROUPS.serve_bytes,
    DESCRIBE_GROUPS.name: DESCRIBE_GROUPS.serve_bytes,
    ALTER_OFFSETS.name: ALTER_OFFSETS.serve_bytes,
    DELETE_OFFSETS.name: DELETE_OFFSETS.serve_bytes,
    DELETE_GROUPS.name: DELETE_GROUPS.serve_bytes,
    REMOVE_MEMBERS.name: REMOVE_MEMBERS.serve_bytes,
}
"""For other brokers."""
