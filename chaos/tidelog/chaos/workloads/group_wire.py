"""A member's calls in the contract's words, for members that stand on the Network port alone.

Owns the conversion between what a member of a simulation says and protobuf, written apart from
`tidelog.contract`, by which brokers and SDK convert: a mistake there is not repeated here.
"""

from collections.abc import Callable, Iterable
from typing import Final

from tidelog.broker.groups.state.answers import RemoveMembersAnswer, Response
from tidelog.broker.groups.state.messages import AnyRequest, RemoveMembers
from tidelog.chaos.workloads.log_client import error_of
from tidelog.v1 import common_pb2, errors_pb2, group_admin_pb2, groups_pb2
from tidelog.wire.calls.groups import (
    AssignedPartition,
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
    StoredOffset,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

_GROUPS: Final = "/tidelog.v1.GroupService/"
_ADMIN: Final = "/tidelog.v1.GroupAdminService/"

Decode = Callable[[bytes], Response | TidelogError]


def encode(request: AnyRequest) -> tuple[str, bytes, Decode] | None:
    """Method, request, and how to read the answer; None: members do not ask that."""
    match request:
        case Heartbeat():
            return f"{_GROUPS}GroupHeartbeat", _heartbeat(request), _read_heartbeat
        case CommitOffsets():
            return f"{_GROUPS}CommitOffsets", _commit(request), _read_commit
        case FetchOffsets():
            return f"{_GROUPS}FetchOffsets", _fetch(request), _read_fetched
        case RemoveMembers():
            message = group_admin_pb2.RemoveMembersRequest(
                group=request.group, member_ids=request.member_ids
            )
            return f"{_ADMIN}RemoveMembers", message.SerializeToString(), _read_removed
        case _:
            return None


def _heartbeat(request: Heartbeat) -> bytes:
    message = groups_pb2.GroupHeartbeatRequest(
        group=request.group,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_sequence=request.heartbeat_sequence,
        group_instance_id=request.group_instance_id,
    )
    if request.session_timeout_ms is not None:
        message.session_timeout_ms = request.session_timeout_ms
    if request.rebalance_timeout_ms is not None:
        message.rebalance_timeout_ms = request.rebalance_timeout_ms
    if request.subscription is not None:
        message.subscription.SetInParent()
        message.subscription.topics.extend(request.subscription.topics)
        message.subscription.topic_pattern = request.subscription.topic_pattern
        message.subscription.assignor = groups_pb2.Assignor.ValueType(request.subscription.assignor)
    if request.owned is not None:
        message.owned.SetInParent()
        message.owned.topics.extend(_by_topic(request.owned))
    return message.SerializeToString()


def _by_topic(keys: Iterable[PartitionKey]) -> list[common_pb2.TopicPartitions]:
    topics: dict[TopicId, list[int]] = {}
    for key in sorted(keys):
        topics.setdefault(key.topic_id, []).append(key.partition)
    return [
        common_pb2.TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in topics.items()
    ]


def _key(topic_id: bytes, partition: int) -> PartitionKey:
    return PartitionKey(TopicId(topic_id), PartitionId(partition))


def _error(message: errors_pb2.Error) -> TidelogError | None:
    return error_of(message) if message.code else None


def _read_heartbeat(data: bytes) -> Response | TidelogError:
    message = groups_pb2.GroupHeartbeatResponse.FromString(data)
    assignment = None
    if message.HasField("assignment"):
        assignment = tuple(
            AssignedPartition(
                _key(each.topic_id, each.partition),
                each.partition_assignment_epoch,
                each.topic_name,
            )
            for each in message.assignment.partitions
        )
    return _error(message.error) or HeartbeatAnswer(
        member_epoch=message.member_epoch,
        heartbeat_interval_ms=message.heartbeat_interval_ms,
        assignment=assignment,
        group_epoch=message.group_epoch,
        assignment_epoch=message.assignment_epoch,
        session_timeout_ms=message.session_timeout_ms,
        is_idle=message.is_idle,
    )


def _commit(request: CommitOffsets) -> bytes:
    message = groups_pb2.CommitOffsetsRequest(
        group=request.group, member_id=request.member_id, member_epoch=request.member_epoch
    )
    for each in request.offsets:
        message.offsets.add(
            topic_id=each.key.topic_id,
            partition=each.key.partition,
            committed_offset=each.committed_offset,
            leader_epoch=each.leader_epoch,
            metadata=each.metadata,
        )
    return message.SerializeToString()


def _read_commit(data: bytes) -> Response | TidelogError:
    message = groups_pb2.CommitOffsetsResponse.FromString(data)
    errors = tuple(_error(each.error) for each in message.results)
    return _error(message.error) or CommitAnswer(errors=errors)


def _fetch(request: FetchOffsets) -> bytes:
    return groups_pb2.FetchOffsetsRequest(
        group=request.group,
        topics=_by_topic(request.keys),
        member_id=request.member_id,
        member_epoch=request.member_epoch,
    ).SerializeToString()


def _read_fetched(data: bytes) -> Response | TidelogError:
    message = groups_pb2.FetchOffsetsResponse.FromString(data)
    found = []
    for each in message.offsets:
        stored = None
        if each.committed_offset >= 0:
            stored = StoredOffset(
                committed_offset=Offset(each.committed_offset),
                leader_epoch=LeaderEpoch(each.leader_epoch),
                metadata=each.metadata,
                commit_time_ms=each.commit_time_ms,
            )
        found.append((_key(each.topic_id, each.partition), stored))
    return _error(message.error) or FetchOffsetsAnswer(offsets=tuple(found))


def _read_removed(data: bytes) -> Response | TidelogError:
    message = group_admin_pb2.RemoveMembersResponse.FromString(data)
    return RemoveMembersAnswer(removed_member_ids=tuple(message.removed_member_ids))
