"""Calls about groups that this broker coordinates: protobuf and the core's requests.

Owns how each call of an operator becomes requests to coordinators, one a group, and how their
answers become the contract's. The same for a call made here and for one that came to another
broker. What only leaders of the partitions know is left out: whoever was asked fills it in.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Final, TypeVar

from tidelog.broker.groups.coordinator.coordinator import GroupCoordinator
from tidelog.broker.groups.coordinator.keeper import GroupCoordinators
from tidelog.broker.groups.state.answers import (
    AlterOffsetsAnswer,
    DeleteGroupAnswer,
    DeleteOffsetsAnswer,
    DescribeGroupAnswer,
    GroupListing,
    ListGroupsAnswer,
    MemberDescription,
    RemoveMembersAnswer,
)
from tidelog.broker.groups.state.limits import PARTITIONS_PER_GROUP_MAX
from tidelog.broker.groups.state.messages import (
    AlterOffsets,
    AnyRequest,
    Caller,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    ListGroups,
    RemoveMembers,
)
from tidelog.broker.services.groups.wire import GroupRpc
from tidelog.contract.groups import assigned_message, fill_group_error, read_offset
from tidelog.contract.partitions import by_topic, refuse_twice, validate_partitions
from tidelog.ports import TaskScope
from tidelog.v1 import group_admin_pb2, groups_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId

NOT_KNOWN: Final = -1
AnswerT = TypeVar("AnswerT")
T = TypeVar("T")
LagOf = Callable[[str], int]


class GroupCalls:
    """One method for every kind of call; who calls counts for heartbeats only."""

    def __init__(
        self,
        coordinators: GroupCoordinators,
        members: GroupRpc,
        *,
        broker_id: BrokerId,
        lag_of: LagOf,
        look_at_lags: Callable[[], Awaitable[None]],
    ) -> None:
        self._coordinators = coordinators
        self._members = members
        self._broker_id = broker_id
        self._lag_of = lag_of
        self._look_at_lags = look_at_lags

    async def heartbeat(
        self, caller: Caller, asked: groups_pb2.GroupHeartbeatRequest
    ) -> groups_pb2.GroupHeartbeatResponse:
        """What the coordinator tells a member, or a broker that is one for a client."""
        return await self._members.answer_heartbeat(caller, asked)

    async def commit(
        self, caller: Caller, asked: groups_pb2.CommitOffsetsRequest
    ) -> groups_pb2.CommitOffsetsResponse:
        """What became of each offset."""
        del caller
        return await self._members.answer_commit(asked)

    async def fetch(
        self, caller: Caller, asked: groups_pb2.FetchOffsetsRequest
    ) -> groups_pb2.FetchOffsetsResponse:
        """What was committed."""
        del caller
        return await self._members.answer_fetch(asked)

    async def list_groups(
        self, caller: Caller, asked: group_admin_pb2.ListGroupsRequest
    ) -> group_admin_pb2.ListGroupsResponse:
        """All groups that this broker coordinates; states and types filter."""
        del caller
        response = group_admin_pb2.ListGroupsResponse()
        await self._look_at_lags()

        async def ask(coordinator: GroupCoordinator) -> None:
            try:
                found = await _ask(coordinator, ListGroups(), ListGroupsAnswer)
            except TidelogError:
                response.missing_coordinators += 1
                return
            response.groups.extend(
                self._listing(each) for each in found.groups if _is_listed(each, asked)
            )

        await _all_at_once(ask, list(self._coordinators.led()))
        return response

    def _listing(self, listing: GroupListing) -> group_admin_pb2.GroupListing:
        return group_admin_pb2.GroupListing(
            group=listing.group,
            state=group_admin_pb2.GroupState.ValueType(listing.state),
            type=groups_pb2.GroupType.ValueType(listing.type),
            member_count=listing.member_count,
            lag=self._lag_of(listing.group),
        )

    async def describe_groups(
        self, caller: Caller, asked: group_admin_pb2.DescribeGroupsRequest
    ) -> group_admin_pb2.DescribeGroupsResponse:
        """Groups that this broker coordinates."""
        del caller
        response = group_admin_pb2.DescribeGroupsResponse()

        async def ask(message: group_admin_pb2.GroupDescription) -> None:
            try:
                request = DescribeGroup(group=message.group)
                found = await self._ask(message.group, request, DescribeGroupAnswer)
            except TidelogError as error:
                fill_group_error(message.error, error)
                return
            _fill_description(message, found)

        for group in asked.groups:
            response.groups.add(group=group, coordinator_id=self._broker_id)
        await _all_at_once(ask, response.groups)
        return response

    async def alter_offsets(
        self, caller: Caller, asked: group_admin_pb2.AlterGroupOffsetsRequest
    ) -> group_admin_pb2.AlterGroupOffsetsResponse:
        """The caller has compared the offsets with what the partitions hold."""
        del caller
        tried = f"alter the offsets of group {asked.group}"
        offsets = tuple(read_offset(each, tried=tried) for each in asked.offsets)
        refuse_twice([each.key for each in offsets], tried=tried)
        request = AlterOffsets(
            group=asked.group, offsets=offsets, validate_only=asked.validate_only
        )
        response = group_admin_pb2.AlterGroupOffsetsResponse()
        for offset in offsets:
            each = response.results.add(previous_offset=NOT_KNOWN)
            each.partition.topic_id = offset.key.topic_id
            each.partition.partition = offset.key.partition
        try:
            found = await self._ask(asked.group, request, AlterOffsetsAnswer)
        except TidelogError as error:
            fill_group_error(response.error, error)
            return response
        for message, result in zip(response.results, found.results, strict=True):
            if isinstance(result, TidelogError):
                fill_group_error(message.error, result)
                if not response.HasField("error"):
                    fill_group_error(response.error, result)
            elif result is not None:
                message.previous_offset = result.committed_offset
        return response

    async def delete_offsets(
        self, caller: Caller, asked: group_admin_pb2.DeleteGroupOffsetsRequest
    ) -> group_admin_pb2.DeleteGroupOffsetsResponse:
        """What became of each offset."""
        del caller
        tried = f"delete the offsets of group {asked.group}"
        keys = validate_partitions(asked.topics, tried=tried, count_max=PARTITIONS_PER_GROUP_MAX)
        request = DeleteOffsets(group=asked.group, keys=keys, validate_only=asked.validate_only)
        found = await self._ask(asked.group, request, DeleteOffsetsAnswer)
        response = group_admin_pb2.DeleteGroupOffsetsResponse()
        for key, error in zip(keys, found.errors, strict=True):
            message = response.results.add()
            message.partition.topic_id = key.topic_id
            message.partition.partition = key.partition
            if error is not None:
                fill_group_error(message.error, error)
        return response

    async def delete_groups(
        self, caller: Caller, asked: group_admin_pb2.DeleteGroupsRequest
    ) -> group_admin_pb2.DeleteGroupsResponse:
        """What became of each group."""
        del caller
        response = group_admin_pb2.DeleteGroupsResponse()

        async def ask(message: group_admin_pb2.DeleteGroupResult) -> None:
            group, validate_only = message.group, asked.validate_only
            try:
                request = DeleteGroup(group=group, validate_only=validate_only)
                await self._ask(group, request, DeleteGroupAnswer)
            except TidelogError as error:
                fill_group_error(message.error, error)

        for group in asked.groups:
            response.results.add(group=group)
        await _all_at_once(ask, response.results)
        return response

    async def remove_members(
        self, caller: Caller, asked: group_admin_pb2.RemoveMembersRequest
    ) -> group_admin_pb2.RemoveMembersResponse:
        """Which members are none any more."""
        del caller
        request = RemoveMembers(
            group=asked.group,
            member_ids=tuple(asked.member_ids),
            group_instance_ids=tuple(asked.group_instance_ids),
        )
        found = await self._ask(asked.group, request, RemoveMembersAnswer)
        return group_admin_pb2.RemoveMembersResponse(removed_member_ids=found.removed_member_ids)

    async def _ask(self, group: str, request: AnyRequest, kind: type[AnswerT]) -> AnswerT:
        return await _ask(self._coordinators.of(group), request, kind)


async def _all_at_once(
    ask: Callable[[T], Coroutine[object, object, None]], of: Iterable[T]
) -> None:
    """Each of them may wait: one that does not know whether it still leads takes a second."""
    async with TaskScope() as scope:
        for each in of:
            scope.start(ask(each), name="ask a coordinator")


async def _ask(coordinator: GroupCoordinator, request: AnyRequest, kind: type[AnswerT]) -> AnswerT:
    answer = await coordinator.ask(request)
    assert isinstance(answer, kind), f"{type(request).__name__} is answered by {kind.__name__}"
    return answer


def _is_listed(listing: GroupListing, asked: group_admin_pb2.ListGroupsRequest) -> bool:
    is_state = not asked.states or int(listing.state) in asked.states
    return is_state and (not asked.types or int(listing.type) in asked.types)


def _fill_description(
    message: group_admin_pb2.GroupDescription, found: DescribeGroupAnswer
) -> None:
    message.state = group_admin_pb2.GroupState.ValueType(found.state)
    message.type = groups_pb2.GroupType.ValueType(found.type)
    message.group_epoch = found.group_epoch
    message.assignment_epoch = found.assignment_epoch
    message.assignor = groups_pb2.Assignor.ValueType(found.assignor)
    message.members.extend(_member_message(each) for each in found.members)
    for each in found.partitions:
        partition = message.partitions.add(
            topic_name=each.topic_name,
            topic_id=each.key.topic_id,
            partition=each.key.partition,
            committed_offset=NOT_KNOWN,
            log_start_offset=NOT_KNOWN,
            high_watermark=NOT_KNOWN,
            lag=NOT_KNOWN,
            commit_time_ms=NOT_KNOWN,
            member_id=each.member_id,
        )
        if each.stored is not None:
            partition.committed_offset = each.stored.committed_offset
            partition.commit_time_ms = each.stored.commit_time_ms
            partition.metadata = each.stored.metadata
        if each.staged is not None:
            held, identity = partition.undecided, each.staged.identity
            held.transactional_id = each.staged.transactional_id
            held.producer_id, held.producer_epoch = identity.producer_id, identity.producer_epoch
            held.offset, held.since_ms = each.staged.offset.committed_offset, each.staged.since_ms


def _member_message(member: MemberDescription) -> group_admin_pb2.MemberDescription:
    return group_admin_pb2.MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        address=member.address,
        member_epoch=member.member_epoch,
        subscription=groups_pb2.Subscription(
            topics=member.topics,
            topic_pattern=member.topic_pattern,
            assignor=groups_pb2.Assignor.ValueType(member.assignor),
        ),
        assigned=[assigned_message(each) for each in member.assigned],
        target=by_topic(member.target),
        silence_ms=member.silence_ms,
    )
