"""Groups in protobuf, as operators see them. As `wire.admin`.

Owns method names, requests and answers. It must never decide anything.
"""

import itertools
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final

from tidelog.client.engine.group.admin_calls import Place
from tidelog.client.types.groups import (
    GroupDescription,
    GroupList,
    GroupListing,
    GroupPartition,
    GroupState,
    GroupType,
    MemberDescription,
    MemberToRemove,
    UndecidedOffset,
)
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.client.wire.calls import error_of, read_error
from tidelog.contract.groups import fetch_message, read_fetch_answer
from tidelog.v1 import common_pb2, coordinator_pb2, group_admin_pb2, groups_pb2
from tidelog.wire.calls.groups import FetchOffsets
from tidelog.wire.errors import TidelogError

LIST_GROUPS: Final = "/tidelog.v1.GroupAdminService/ListGroups"
DESCRIBE_GROUPS: Final = "/tidelog.v1.GroupAdminService/DescribeGroups"
ALTER_OFFSETS: Final = "/tidelog.v1.GroupAdminService/AlterGroupOffsets"
DELETE_OFFSETS: Final = "/tidelog.v1.GroupAdminService/DeleteGroupOffsets"
DELETE_GROUPS: Final = "/tidelog.v1.GroupAdminService/DeleteGroups"
REMOVE_MEMBERS: Final = "/tidelog.v1.GroupAdminService/RemoveMembers"

_STATES: Final = {
    group_admin_pb2.GROUP_STATE_EMPTY: GroupState.EMPTY,
    group_admin_pb2.GROUP_STATE_ASSIGNING: GroupState.ASSIGNING,
    group_admin_pb2.GROUP_STATE_RECONCILING: GroupState.RECONCILING,
    group_admin_pb2.GROUP_STATE_STABLE: GroupState.STABLE,
}
_TYPES: Final = {
    groups_pb2.GROUP_TYPE_RECONCILED: GroupType.RECONCILED,
    groups_pb2.GROUP_TYPE_CLASSIC: GroupType.CLASSIC,
    groups_pb2.GROUP_TYPE_SHARE: GroupType.SHARE,
}
_STATE_NUMBERS: Final = {state: number for number, state in _STATES.items()}
_TYPE_NUMBERS: Final = {kind: number for number, kind in _TYPES.items()}
_ASSIGNORS: Final = {
    groups_pb2.ASSIGNOR_UNSPECIFIED: "uniform",
    groups_pb2.ASSIGNOR_UNIFORM: "uniform",
    groups_pb2.ASSIGNOR_RANGE: "range",
}


def list_groups_request(
    states: Iterable[GroupState], types: Iterable[GroupType], *, after_name: str
) -> bytes:
    """One page; no states, no types: all of them."""
    return group_admin_pb2.ListGroupsRequest(
        states=[_STATE_NUMBERS[each] for each in states],
        types=[_TYPE_NUMBERS[each] for each in types],
        after_name=after_name,
    ).SerializeToString()


def read_groups(data: bytes) -> tuple[GroupList, str]:
    """A page, and after which name the next one begins; empty: it was the last."""
    answer = group_admin_pb2.ListGroupsResponse.FromString(data)
    groups = tuple(
        GroupListing(
            group_id=each.group,
            state=_STATES.get(each.state, GroupState.UNKNOWN),
            group_type=_TYPES.get(each.type, GroupType.UNKNOWN),
            member_count=each.member_count,
            lag=each.lag,
        )
        for each in answer.groups
    )
    found = GroupList(groups=groups, missing_coordinators=answer.missing_coordinators)
    return found, answer.next_after_name


def describe_groups_request(groups: Iterable[str]) -> bytes:
    """By name, none twice."""
    return group_admin_pb2.DescribeGroupsRequest(groups=groups).SerializeToString()


def read_descriptions(
    data: bytes, names: Mapping[bytes, str]
) -> list[GroupDescription | TidelogError]:
    """One for each group, in order; `names` of topics by id."""
    answer = group_admin_pb2.DescribeGroupsResponse.FromString(data)
    return [error_of(each.error) or _description(each, names) for each in answer.groups]


def _description(
    group: group_admin_pb2.GroupDescription, names: Mapping[bytes, str]
) -> GroupDescription:
    return GroupDescription(
        group_id=group.group,
        state=_STATES.get(group.state, GroupState.UNKNOWN),
        group_type=_TYPES.get(group.type, GroupType.UNKNOWN),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=_ASSIGNORS.get(group.assignor, "unknown"),
        coordinator_id=group.coordinator_id,
        members=tuple(_member(each, names) for each in group.members),
        partitions=tuple(
            GroupPartition(
                topic=each.topic_name,
                topic_id=each.topic_id,
                partition=each.partition,
                committed_offset=each.committed_offset,
                log_start_offset=each.log_start_offset,
                high_watermark=each.high_watermark,
                lag=each.lag,
                member_id=each.member_id,
                commit_time_ms=each.commit_time_ms,
                metadata=each.metadata,
                undecided=_undecided(each),
            )
            for each in group.partitions
        ),
    )


def _undecided(partition: group_admin_pb2.GroupPartition) -> UndecidedOffset | None:
    if not partition.HasField("undecided"):
        return None
    held = partition.undecided
    return UndecidedOffset(
        transactional_id=held.transactional_id,
        producer_id=held.producer_id,
        producer_epoch=held.producer_epoch,
        offset=held.offset,
        since_ms=held.since_ms,
    )


def _member(
    member: group_admin_pb2.MemberDescription, names: Mapping[bytes, str]
) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        address=member.address,
        member_epoch=member.member_epoch,
        topics=tuple(member.subscription.topics),
        topic_pattern=member.subscription.topic_pattern,
        assigned=tuple(
            sorted(TopicPartition(each.topic_name, each.partition) for each in member.assigned)
        ),
        target=tuple(
            sorted(
                TopicPartition(names.get(each.topic_id, ""), partition)
                for each in member.target
                for partition in each.partitions
            )
        ),
        silence_ms=member.silence_ms,
    )


def delete_groups_request(groups: Iterable[str], *, validate_only: bool) -> bytes:
    """By name, none twice."""
    return group_admin_pb2.DeleteGroupsRequest(
        groups=groups, validate_only=validate_only
    ).SerializeToString()


def read_deleted_groups(data: bytes) -> list[TidelogError | None]:
    """One for each group, in order; None: it is gone."""
    answer = group_admin_pb2.DeleteGroupsResponse.FromString(data)
    return [error_of(each.error) for each in answer.results]


def alter_offsets_request(
    group: str, offsets: Iterable[tuple[Place, OffsetAndMetadata]], *, validate_only: bool
) -> bytes:
    """Where the group is to go on."""
    return group_admin_pb2.AlterGroupOffsetsRequest(
        group=group,
        offsets=[
            groups_pb2.OffsetCommit(
                topic_id=topic_id,
                partition=partition,
                committed_offset=wanted.offset,
                leader_epoch=wanted.leader_epoch,
                metadata=wanted.metadata,
            )
            for (topic_id, partition), wanted in offsets
        ],
        validate_only=validate_only,
    ).SerializeToString()


def read_altered_offsets(data: bytes) -> list[list[int | TidelogError] | TidelogError]:
    """What was there before for each partition (-1: nothing), or why nothing was set.

    One answer for the whole group: all are set or none.
    """
    answer = group_admin_pb2.AlterGroupOffsetsResponse.FromString(data)
    results: list[int | TidelogError] = [
        error_of(each.error) or each.previous_offset for each in answer.results
    ]
    whole = error_of(answer.error)
    if whole is None:
        return [results]
    is_told = any(isinstance(each, TidelogError) for each in results)
    return [results if is_told and not whole.retriable else whole]


def delete_offsets_request(group: str, places: Iterable[Place], *, validate_only: bool) -> bytes:
    """Topic by topic, in ascending order of partition."""
    return group_admin_pb2.DeleteGroupOffsetsRequest(
        group=group,
        topics=[
            common_pb2.TopicPartitions(topic_id=topic_id, partitions=[each for _, each in found])
            for topic_id, found in itertools.groupby(places, key=itemgetter(0))
        ],
        validate_only=validate_only,
    ).SerializeToString()


def read_deleted_offsets(data: bytes) -> list[list[TidelogError | None] | TidelogError]:
    """For each partition None (it is forgotten) or why it is not.

    One answer for the whole group: its partitions share a coordinator, which may be asked again.
    """
    answer = group_admin_pb2.DeleteGroupOffsetsResponse.FromString(data)
    results = [error_of(each.error) for each in answer.results]
    passing = next((each for each in results if each is not None and each.retriable), None)
    return [results if passing is None else passing]


def remove_members_request(group: str, members: Iterable[MemberToRemove]) -> bytes:
    """No members: all."""
    chosen = list(members)
    return group_admin_pb2.RemoveMembersRequest(
        group=group,
        member_ids=[each.member_id for each in chosen if each.member_id],
        group_instance_ids=[each.group_instance_id for each in chosen if each.group_instance_id],
    ).SerializeToString()


def read_removed_members(data: bytes) -> list[list[str]]:
    """Ids of those that were members: one answer for the whole group."""
    return [list(group_admin_pb2.RemoveMembersResponse.FromString(data).removed_member_ids)]


def read_coordinators(data: bytes) -> list[str | TidelogError]:
    """An address for each group, in order."""
    answer = coordinator_pb2.FindCoordinatorsResponse.FromString(data)
    return [error_of(each.error) or each.address for each in answer.coordinators]


def fetch_offsets_request(group: str) -> bytes:
    """All that the group has committed."""
    return fetch_message(FetchOffsets(group=group)).SerializeToString()


def read_offsets(data: bytes) -> dict[Place, OffsetAndMetadata]:
    """Where the group goes on; the first error is raised."""
    answer = read_fetch_answer(groups_pb2.FetchOffsetsResponse.FromString(data), read_error)
    if isinstance(answer, TidelogError):
        raise answer
    found: dict[Place, OffsetAndMetadata] = {}
    for key, stored in answer.offsets:
        if isinstance(stored, TidelogError):
            raise stored
        if stored is not None:
            found[key.topic_id, key.partition] = OffsetAndMetadata(
                stored.committed_offset, stored.metadata, stored.leader_epoch
            )
    return found
