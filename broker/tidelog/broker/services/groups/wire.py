"""GroupService: conversions only. What a coordinator refuses is part of the answer."""

from tidelog.broker.groups.state.limits import PARTITIONS_PER_GROUP_MAX
from tidelog.broker.groups.state.messages import Caller
from tidelog.broker.services.groups.handler import GroupsHandler
from tidelog.contract.groups import (
    fill_commit_answer,
    fill_fetch_answer,
    fill_group_error,
    fill_heartbeat_answer,
    read_commit,
    read_fetch,
    read_heartbeat,
    read_send_offsets,
)
from tidelog.ports import RequestContext
from tidelog.v1 import groups_pb2, transactions_pb2
from tidelog.wire.errors import TidelogError


class GroupRpc:
    """The service's three methods, and SendOffsets of TransactionService."""

    def __init__(self, handler: GroupsHandler) -> None:
        self._handler = handler

    async def heartbeat(self, context: RequestContext, message: bytes) -> bytes:
        """`GroupHeartbeat`."""
        asked = groups_pb2.GroupHeartbeatRequest.FromString(message)
        caller = Caller(client_id=context.client_id, address=context.address)
        return (await self.answer_heartbeat(caller, asked)).SerializeToString()

    async def commit_offsets(self, context: RequestContext, message: bytes) -> bytes:
        """`CommitOffsets`."""
        del context
        asked = groups_pb2.CommitOffsetsRequest.FromString(message)
        return (await self.answer_commit(asked)).SerializeToString()

    async def fetch_offsets(self, context: RequestContext, message: bytes) -> bytes:
        """`FetchOffsets`."""
        del context
        asked = groups_pb2.FetchOffsetsRequest.FromString(message)
        return (await self.answer_fetch(asked)).SerializeToString()

    async def send_offsets(self, context: RequestContext, message: bytes) -> bytes:
        """`SendOffsets`."""
        del context
        asked = transactions_pb2.SendOffsetsRequest.FromString(message)
        response = transactions_pb2.SendOffsetsResponse()
        request = read_send_offsets(asked, partitions_max=PARTITIONS_PER_GROUP_MAX)
        try:
            await self._handler.send_offsets(request)
        except TidelogError as error:
            fill_group_error(response.error, error)
        return response.SerializeToString()

    async def answer_heartbeat(
        self, caller: Caller, asked: groups_pb2.GroupHeartbeatRequest
    ) -> groups_pb2.GroupHeartbeatResponse:
        """What the coordinator tells a member, or a broker that is one for a client."""
        response = groups_pb2.GroupHeartbeatResponse()
        request = read_heartbeat(asked, partitions_max=PARTITIONS_PER_GROUP_MAX)
        try:
            fill_heartbeat_answer(response, await self._handler.heartbeat(request, caller))
        except TidelogError as error:
            fill_group_error(response.error, error)
        return response

    async def answer_commit(
        self, asked: groups_pb2.CommitOffsetsRequest
    ) -> groups_pb2.CommitOffsetsResponse:
        """What became of each offset."""
        response = groups_pb2.CommitOffsetsResponse()
        request = read_commit(asked, partitions_max=PARTITIONS_PER_GROUP_MAX)
        try:
            fill_commit_answer(response, request, await self._handler.commit(request))
        except TidelogError as error:
            fill_group_error(response.error, error)
        return response

    async def answer_fetch(
        self, asked: groups_pb2.FetchOffsetsRequest
    ) -> groups_pb2.FetchOffsetsResponse:
        """What was committed."""
        response = groups_pb2.FetchOffsetsResponse()
        request = read_fetch(asked, partitions_max=PARTITIONS_PER_GROUP_MAX)
        try:
            fill_fetch_answer(response, await self._handler.fetch(request))
        except TidelogError as error:
            fill_group_error(response.error, error)
        return response
