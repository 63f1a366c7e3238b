"""GroupAdminService, on every broker: who is asked, and how the answers become one.

Owns the split of a request by coordinator, and what the leaders of partitions add to it: the
offsets of their logs, and with them the lag. A broker that does not answer within its deadline is
told of in its part of the answer.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Final

from tidelog.broker.coordination.finding import CoordinatorFinder
from tidelog.broker.groups.coordinator.leader_offsets import LeaderOffsets
from tidelog.broker.groups.coordinator.watermarks import OwnOffsets
from tidelog.broker.groups.state.limits import PARTITIONS_PER_GROUP_MAX
from tidelog.broker.groups.state.messages import Caller
from tidelog.broker.groups.state.places import GROUPS
from tidelog.broker.groups.state.refusals import not_found
from tidelog.broker.services.groups.methods import (
    ALTER_OFFSETS,
    DELETE_GROUPS,
    DELETE_OFFSETS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    REMOVE_MEMBERS,
    AnswerT,
    AskedT,
    GroupMethod,
)
from tidelog.broker.services.groups.peers import GroupPeers
from tidelog.contract.groups import fill_group_error, read_offset
from tidelog.contract.partitions import read_partition, refuse_twice, validate_partitions
from tidelog.metadata.image.image import NO_LEADER
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import RequestContext, TaskScope, UnaryHandler
from tidelog.v1 import group_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.ids import BrokerId, PartitionKey
from tidelog.wire.refusals import invalid

LISTED_MAX: Final = 10_000
GROUPS_MAX: Final = 1_000
"""Of one request."""
OFFSETS_MAX: Final = 10_000
"""Of one request."""
FILTERS_MAX: Final = 100
"""States and types of one request, each looked for in every group: there are fewer."""
NOT_KNOWN: Final = -1

Ask = Callable[[BrokerId, Sequence[str]], Coroutine[object, object, None]]
"""Asks a broker of groups that it coordinates."""


class GroupAdminRpc:
    """The service's six methods."""

    def __init__(
        self,
        peers: GroupPeers,
        finder: CoordinatorFinder,
        offsets: LeaderOffsets,
        metadata: ImageSource,
    ) -> None:
        self._peers = peers
        self._finder = finder
        self._offsets = offsets
        self._metadata = metadata

    def table(self) -> dict[str, UnaryHandler]:
        """By full name."""
        return {
            LIST_GROUPS.name: self.list_groups,
            DESCRIBE_GROUPS.name: self.describe_groups,
            ALTER_OFFSETS.name: self.alter_group_offsets,
            DELETE_OFFSETS.name: self.delete_group_offsets,
            DELETE_GROUPS.name: self.delete_groups,
            REMOVE_MEMBERS.name: self.remove_members,
        }

    async def list_groups(self, context: RequestContext, message: bytes) -> bytes:
        """`ListGroups`."""
        asked = group_admin_pb2.ListGroupsRequest.FromString(message)
        count = len(asked.states) + len(asked.types)
        if count > FILTERS_MAX:
            raise invalid("list groups", f"{count} states and types, the limit is {FILTERS_MAX}")
        most = min(asked.max_groups or LISTED_MAX, LISTED_MAX)
        coordinators, missing = self._coordinators()
        found: list[group_admin_pb2.GroupListing] = []
        call = group_admin_pb2.ListGroupsRequest(states=asked.states, types=asked.types)
        caller = _caller_of(context)

        async def ask(broker_id: BrokerId, led_count: int) -> None:
            nonlocal missing
            try:
                answer = await self._peers.coordinate(caller, broker_id, LIST_GROUPS, call)
            except TidelogError:
                missing += led_count
                return
            missing += answer.missing_coordinators
            found.extend(answer.groups)

        async with TaskScope() as scope:
            for broker_id, led_count in coordinators.items():
                scope.start(ask(broker_id, led_count), name="list groups")
        # A group that has just moved may be told by both.
        by_name = {each.group: each for each in found if each.group > asked.after_name}
        names = sorted(by_name)
        return group_admin_pb2.ListGroupsResponse(
            groups=[by_name[name] for name in names[:most]],
            next_after_name=names[most - 1] if len(names) > most else "",
            missing_coordinators=missing,
        ).SerializeToString()

    async def describe_groups(self, context: RequestContext, message: bytes) -> bytes:
        """`DescribeGroups`."""
        asked = group_admin_pb2.DescribeGroupsRequest.FromString(message)
        _check_groups(asked.groups, tried="describe groups")
        described: dict[str, group_admin_pb2.GroupDescription] = {}
        caller = _caller_of(context)

        async def ask(broker_id: BrokerId, groups: Sequence[str]) -> None:
            part = group_admin_pb2.DescribeGroupsRequest(groups=groups)
            answer = await self._peers.coordinate(caller, broker_id, DESCRIBE_GROUPS, part)
            described.update((each.group, each) for each in answer.groups)

        failures = await self._ask_each(context, asked.groups, ask)
        await self._fill_offsets(described.values())
        response = group_admin_pb2.DescribeGroupsResponse()
        for group in asked.groups:
            if group in described:
                response.groups.append(described[group])
            else:
                each = response.groups.add(group=group, coordinator_id=NO_LEADER)
                fill_group_error(each.error, failures.get(group) or _unanswered(group))
        return response.SerializeToString()

    async def alter_group_offsets(self, context: RequestContext, message: bytes) -> bytes:
        """`AlterGroupOffsets`."""
        asked = group_admin_pb2.AlterGroupOffsetsRequest.FromString(message)
        tried = f"alter the offsets of group {asked.group}"
        if len(asked.offsets) > OFFSETS_MAX:
            raise invalid(tried, f"{len(asked.offsets)} offsets, the limit is {OFFSETS_MAX}")
        wanted = [read_offset(each, tried=tried) for each in asked.offsets]
        refuse_twice([each.key for each in wanted], tried=tried)
        held = await self._offsets.of(each.key for each in wanted)
        image = self._metadata.image()
        errors: dict[PartitionKey, TidelogError | None] = {}
        for each in wanted:
            name = image.name_partition(each.key.topic_id, each.key.partition)
            errors[each.key] = _objection(held[each.key], name, each.committed_offset, tried)
        if any(errors.values()):
            return _refused(errors).SerializeToString()
        if self._is_before_groups(asked.group):
            if asked.validate_only:
                return _refused(errors).SerializeToString()
            # As the first commit of a group would: it has the topic of the groups made.
            await self._finder.find(context, [asked.group])
        answer = await self._ask_one(context, asked.group, ALTER_OFFSETS, asked)
        return answer.SerializeToString()

    async def delete_group_offsets(self, context: RequestContext, message: bytes) -> bytes:
        """`DeleteGroupOffsets`."""
        asked = group_admin_pb2.DeleteGroupOffsetsRequest.FromString(message)
        if self._is_before_groups(asked.group):
            return _forgotten(asked).SerializeToString()
        answer = await self._ask_one(context, asked.group, DELETE_OFFSETS, asked)
        return answer.SerializeToString()

    async def delete_groups(self, context: RequestContext, message: bytes) -> bytes:
        """`DeleteGroups`."""
        asked = group_admin_pb2.DeleteGroupsRequest.FromString(message)
        _check_groups(asked.groups, tried="delete groups")
        results: dict[str, group_admin_pb2.DeleteGroupResult] = {}
        caller = _caller_of(context)

        async def ask(broker_id: BrokerId, groups: Sequence[str]) -> None:
            part = group_admin_pb2.DeleteGroupsRequest(
                groups=groups, validate_only=asked.validate_only
            )
            answer = await self._peers.coordinate(caller, broker_id, DELETE_GROUPS, part)
            results.update((each.group, each) for each in answer.results)

        failures = await self._ask_each(context, asked.groups, ask)
        response = group_admin_pb2.DeleteGroupsResponse()
        for group in asked.groups:
            if group in results:
                response.results.append(results[group])
            else:
                each = response.results.add(group=group)
                fill_group_error(each.error, failures.get(group) or _unanswered(group))
        return response.SerializeToString()

    async def remove_members(self, context: RequestContext, message: bytes) -> bytes:
        """`RemoveMembers`."""
        asked = group_admin_pb2.RemoveMembersRequest.FromString(message)
        if self._is_before_groups(asked.group):
            return group_admin_pb2.RemoveMembersResponse().SerializeToString()
        answer = await self._ask_one(context, asked.group, REMOVE_MEMBERS, asked)
        return answer.SerializeToString()

    # -- who is asked ----------------------------------------------------------------------------

    def _coordinators(self) -> tuple[dict[BrokerId, int], int]:
        """Brokers by how many partitions of groups they lead, and how many nobody leads."""
        topic = GROUPS.topic_in(self._metadata.image())
        counts: dict[BrokerId, int] = {}
        for partition in () if topic is None else topic.partitions:
            counts[partition.leader_id] = counts.get(partition.leader_id, 0) + 1
        return counts, counts.pop(NO_LEADER, 0)

    async def _ask_each(
        self, context: RequestContext, groups: Sequence[str], ask: Ask
    ) -> dict[str, TidelogError]:
        """Ask each coordinator of its groups, all at once; of which groups nobody told, and why."""
        failures: dict[str, TidelogError] = {}
        by_broker: dict[BrokerId, list[str]] = {}
        image = self._metadata.image()
        if GROUPS.topic_in(image) is None:
            # No coordinator was ever asked for, so there is no group that it could know of.
            return {group: not_found(group, tried=f"find group `{group}`") for group in groups}
        for group in groups:
            try:
                place = GROUPS.place_of(group, image, context.listener)
            except TidelogError as error:
                failures[group] = error
            else:
                by_broker.setdefault(place.broker_id, []).append(group)

        async def ask_one(broker_id: BrokerId, named: Sequence[str]) -> None:
            try:
                await ask(broker_id, named)
            except TidelogError as error:
                failures.update((group, error) for group in named)

        async with TaskScope() as scope:
            for broker_id, named in by_broker.items():
                scope.start(ask_one(broker_id, named), name="ask a coordinator")
        return failures

    def _is_before_groups(self, group: str) -> bool:
        """Nobody has asked for a coordinator yet: what is asked of a group is answered as for one
        that is not there. To wait for the coordinator would be to wait for ever."""
        validate_group_name(group, tried="find the coordinator of a group")
        return GROUPS.topic_in(self._metadata.image()) is None

    async def _ask_one(
        self,
        context: RequestContext,
        group: str,
        method: GroupMethod[AskedT, AnswerT],
        asked: AskedT,
    ) -> AnswerT:
        validate_group_name(group, tried="find the coordinator of a group")
        place = GROUPS.place_of(group, self._metadata.image(), context.listener)
        return await self._peers.coordinate(_caller_of(context), place.broker_id, method, asked)

    async def _fill_offsets(self, groups: Iterable[group_admin_pb2.GroupDescription]) -> None:
        """What the leaders of the partitions know."""
        partitions = [each for group in groups for each in group.partitions]
        held = await self._offsets.of(_key_of(each) for each in partitions)
        for each in partitions:
            found = held[_key_of(each)]
            if isinstance(found, TidelogError):
                continue
            each.log_start_offset = found.log_start_offset
            each.high_watermark = found.high_watermark
            if each.committed_offset >= 0:
                each.lag = found.lag(each.committed_offset)


def _caller_of(context: RequestContext) -> Caller:
    return Caller(client_id=context.client_id, address=context.address)


def _key_of(partition: group_admin_pb2.GroupPartition) -> PartitionKey:
    return read_partition(partition.topic_id, partition.partition)


def _check_groups(groups: Sequence[str], *, tried: str) -> None:
    if len(groups) > GROUPS_MAX:
        raise invalid(tried, f"{len(groups)} groups, the limit is {GROUPS_MAX}")
    if len(dict.fromkeys(groups)) < len(groups):
        raise invalid(tried, "the request names a group twice", "Name each group once.")
    for group in groups:
        validate_group_name(group, tried=tried)


def _objection(
    held: OwnOffsets | TidelogError, name: str, offset: int, tried: str
) -> TidelogError | None:
    """Why the offset cannot be set; None: it can."""
    if isinstance(held, TidelogError):
        return held
    if held.log_start_offset <= offset <= held.high_watermark:
        return None
    return TidelogError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        tried=f"{tried} to {offset} for {name}",
        happened=f"the log reaches from {held.log_start_offset} "
        f"to the high watermark {held.high_watermark}",
    )


def _refused(
    errors: Mapping[PartitionKey, TidelogError | None],
) -> group_admin_pb2.AlterGroupOffsetsResponse:
    """Nothing is set: of each partition what is wrong with it."""
    response = group_admin_pb2.AlterGroupOffsetsResponse()
    for key, error in errors.items():
        each = response.results.add(previous_offset=NOT_KNOWN)
        each.partition.topic_id = key.topic_id
        each.partition.partition = key.partition
        if error is not None:
            fill_group_error(each.error, error)
            if not response.HasField("error"):
                fill_group_error(response.error, error)
    return response


def _forgotten(
    asked: group_admin_pb2.DeleteGroupOffsetsRequest,
) -> group_admin_pb2.DeleteGroupOffsetsResponse:
    response = group_admin_pb2.DeleteGroupOffsetsResponse()
    for key in validate_partitions(
        asked.topics,
        tried=f"delete the offsets of group {asked.group}",
        count_max=PARTITIONS_PER_GROUP_MAX,
    ):
        partition = response.results.add().partition
        partition.topic_id, partition.partition = key.topic_id, key.partition
    return response


def _unanswered(group: str) -> TidelogError:
    return TidelogError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        tried=f"ask the coordinator of group {group}",
        happened="it has not answered of this group",
    )
