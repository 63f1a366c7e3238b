"""GroupService: conversions only. What a coordinator refuses is part of the answer."""

from tidelog.broker.groups.state.answers import CommitAnswer, FetchOffsetsAnswer, HeartbeatAnswer
from tidelog.broker.groups.state.messages import (
    BrokerLife,
    Caller,
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
)
from tidelog.broker.services.groups.handler import GroupsHandler
from tidelog.broker.services.groups.parts import (
    assigned_message,
    fill_group_error,
    partition_keys,
    read_offset,
    read_subscription,
    refuse_too_many,
    refuse_twice,
)
from tidelog.broker.shared.errors import invalid
from tidelog.ports import RequestContext
from tidelog.v1 import groups_pb2
from tidelog.wire.errors import TidelogError

NOTHING_COMMITTED = -1


class GroupRpc:
    """The service's three methods."""

    def __init__(self, handler: GroupsHandler) -> None:
        self._handler = handler

    async def heartbeat(self, context: RequestContext, message: bytes) -> bytes:
        """`GroupHeartbeat`."""
        asked = groups_pb2.GroupHeartbeatRequest.FromString(message)
        return (await self.answer_heartbeat(context, asked)).SerializeToString()

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

    async def answer_heartbeat(
        self,
        context: RequestContext,
        asked: groups_pb2.GroupHeartbeatRequest,
        carrier: BrokerLife | None = None,
    ) -> groups_pb2.GroupHeartbeatResponse:
        """What the coordinator tells a member, or a broker that is one for a client."""
        response = groups_pb2.GroupHeartbeatResponse()
        request = read_heartbeat(asked)
        caller = Caller(client_id=context.client_id, address=context.address, carrier=carrier)
        try:
            fill_heartbeat(response, await self._handler.heartbeat(request, caller))
        except TidelogError as error:
            fill_group_error(response.error, error)
        return response

    async def answer_commit(
        self, asked: groups_pb2.CommitOffsetsRequest
    ) -> groups_pb2.CommitOffsetsResponse:
        """What became of each offset."""
        response = groups_pb2.CommitOffsetsResponse()
        request = read_commit(asked)
        try:
            fill_commit(response, request, await self._handler.commit(request))
        except TidelogError as error:
            fill_group_error(response.error, error)
        return response

    async def answer_fetch(
        self, asked: groups_pb2.FetchOffsetsRequest
    ) -> groups_pb2.FetchOffsetsResponse:
        """What was committed. `require_stable` is always met: there are no transactions."""
        response = groups_pb2.FetchOffsetsResponse()
        request = read_fetch(asked)
        try:
            fill_fetched(response, await self._handler.fetch(request))
        except TidelogError as error:
            fill_group_error(response.error, error)
        return response


def read_heartbeat(message: groups_pb2.GroupHeartbeatRequest) -> Heartbeat:
    """What a member says; what it did not send stays None."""
    tried = f"send a heartbeat to group {message.group}"
    return Heartbeat(
        group=message.group,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        heartbeat_sequence=message.heartbeat_sequence,
        group_instance_id=message.group_instance_id,
        takes_over=message.takes_over,
        rack=message.rack if message.HasField("rack") else None,
        session_timeout_ms=message.session_timeout_ms or None,
        rebalance_timeout_ms=message.rebalance_timeout_ms or None,
        subscription=(
            read_subscription(message.subscription) if message.HasField("subscription") else None
        ),
        owned=(
            partition_keys(message.owned.topics, tried=tried) if message.HasField("owned") else None
        ),
    )


def fill_heartbeat(message: groups_pb2.GroupHeartbeatResponse, answer: HeartbeatAnswer) -> None:
    """What the coordinator tells."""
    message.member_epoch = answer.member_epoch
    message.heartbeat_interval_ms = answer.heartbeat_interval_ms
    message.group_epoch = answer.group_epoch
    message.assignment_epoch = answer.assignment_epoch
    message.session_timeout_ms = answer.session_timeout_ms
    message.is_idle = answer.is_idle
    if answer.assignment is not None:
        message.assignment.SetInParent()
        message.assignment.partitions.extend(assigned_message(each) for each in answer.assignment)


def read_commit(message: groups_pb2.CommitOffsetsRequest) -> CommitOffsets:
    """How far a group has read."""
    tried = f"commit offsets of group {message.group}"
    refuse_too_many(len(message.offsets), tried=tried)
    offsets = tuple(read_offset(each, tried=tried) for each in message.offsets)
    refuse_twice([each.key for each in offsets], tried=tried)
    for place, each in enumerate(offsets):
        if each.committed_offset < 0:
            raise invalid(
                tried,
                f"offset {each.committed_offset} of partition {each.key.partition}, at place "
                f"{place} of the request, is below 0",
            )
    return CommitOffsets(
        group=message.group,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        offsets=offsets,
    )


def fill_commit(
    message: groups_pb2.CommitOffsetsResponse, request: CommitOffsets, answer: CommitAnswer
) -> None:
    """What became of each offset."""
    for offset, error in zip(request.offsets, answer.errors, strict=True):
        each = message.results.add(topic_id=offset.key.topic_id, partition=offset.key.partition)
        if error is not None:
            fill_group_error(each.error, error)


def read_fetch(message: groups_pb2.FetchOffsetsRequest) -> FetchOffsets:
    """Which committed offsets are wanted."""
    tried = f"fetch the offsets of group {message.group}"
    return FetchOffsets(
        group=message.group,
        keys=partition_keys(message.topics, tried=tried),
        member_id=message.member_id,
        member_epoch=message.member_epoch,
    )


def fill_fetched(message: groups_pb2.FetchOffsetsResponse, answer: FetchOffsetsAnswer) -> None:
    """What was committed."""
    for key, stored in answer.offsets:
        each = message.offsets.add(
            topic_id=key.topic_id,
            partition=key.partition,
            committed_offset=NOTHING_COMMITTED,
            leader_epoch=NOTHING_COMMITTED,
            commit_time_ms=NOTHING_COMMITTED,
        )
        if stored is not None:
            each.committed_offset = stored.committed_offset
            each.leader_epoch = stored.leader_epoch
            each.metadata = stored.metadata
            each.commit_time_ms = stored.commit_time_ms
