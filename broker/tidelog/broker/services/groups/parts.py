"""Parts that several messages about groups have in common: protobuf and the core's Structs."""

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.broker.groups.state import limits
from tidelog.broker.groups.state.answers import AssignedPartition
from tidelog.broker.groups.state.messages import Assignor, OffsetToCommit, Subscription
from tidelog.broker.handlers.topic_ids import validate_topic_id
from tidelog.broker.shared.errors import invalid
from tidelog.metadata_quorum.shared.wire_errors import fill_error
from tidelog.v1 import common_pb2, errors_pb2, groups_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey

RETRY_AFTER_MS: Final = 200
"""After so long a coordinator that is loading is asked again."""
PARTITION_MAX: Final = 2**31 - 1


def partition_key(topic_id: bytes, partition: int, *, tried: str) -> PartitionKey:
    """A partition as others name it."""
    if partition > PARTITION_MAX:
        raise invalid(tried, f"partition {partition} is no number of a partition")
    return PartitionKey(validate_topic_id(topic_id, tried=tried), PartitionId(partition))


def partition_keys(
    topics: Sequence[common_pb2.TopicPartitions], *, tried: str
) -> tuple[PartitionKey, ...]:
    """Partitions by topic; INVALID_ARGUMENT if one stands there twice, or more than a group has."""
    refuse_too_many(sum(len(topic.partitions) for topic in topics), tried=tried)
    keys = tuple(
        partition_key(topic.topic_id, partition, tried=tried)
        for topic in topics
        for partition in topic.partitions
    )
    refuse_twice(keys, tried=tried)
    return keys


def refuse_too_many(count: int, *, tried: str) -> None:
    """INVALID_ARGUMENT for more partitions than a group may have: a message names millions, and to
    read them takes seconds. What a call admits of fewer is the coordinator's to say."""
    if count > limits.PARTITIONS_PER_GROUP_MAX:
        raise invalid(tried, f"{count} partitions, the limit is {limits.PARTITIONS_PER_GROUP_MAX}")


def refuse_twice(keys: Sequence[PartitionKey], *, tried: str) -> None:
    """INVALID_ARGUMENT for a partition that is named twice."""
    if len(dict.fromkeys(keys)) < len(keys):
        raise invalid(tried, "the request names a partition twice", "Name each one once.")


def by_topic(keys: Iterable[PartitionKey]) -> list[common_pb2.TopicPartitions]:
    """Partitions by topic, in ascending order of both."""
    topics: dict[bytes, common_pb2.TopicPartitions] = {}
    for key in sorted(keys):
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = common_pb2.TopicPartitions(topic_id=key.topic_id)
        topic.partitions.append(key.partition)
    return list(topics.values())


def read_subscription(message: groups_pb2.Subscription) -> Subscription:
    """What a member wants to read."""
    if message.assignor not in groups_pb2.Assignor.values():
        raise invalid("join a group", f"the assignor is number {message.assignor}")
    return Subscription(
        topics=tuple(message.topics),
        topic_pattern=message.topic_pattern,
        assignor=Assignor(message.assignor),
    )


def read_offset(message: groups_pb2.OffsetCommit, *, tried: str) -> OffsetToCommit:
    """How far one partition was read."""
    return OffsetToCommit(
        key=partition_key(message.topic_id, message.partition, tried=tried),
        committed_offset=Offset(message.committed_offset),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        metadata=message.metadata,
    )


def assigned_message(assigned: AssignedPartition) -> groups_pb2.AssignedPartition:
    """A partition that a member owns."""
    return groups_pb2.AssignedPartition(
        topic_id=assigned.key.topic_id,
        partition=assigned.key.partition,
        partition_assignment_epoch=assigned.partition_assignment_epoch,
        topic_name=assigned.topic_name,
    )


def fill_group_error(message: errors_pb2.Error, error: TidelogError) -> None:
    """An error of a coordinator, with when to ask again."""
    fill_error(message, error)
    if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        message.retry_after_ms = RETRY_AFTER_MS
