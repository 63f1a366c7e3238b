"""Partitions as messages name them: one by one, or by topic."""

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.v1 import common_pb2
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId
from tidelog.wire.refusals import invalid, validate_topic_id

PARTITION_MAX: Final = 2**31 - 1


def validate_partition(topic_id: bytes, partition: int, *, tried: str) -> PartitionKey:
    """A partition as somebody else names it; INVALID_ARGUMENT for one that there cannot be."""
    if partition > PARTITION_MAX:
        raise invalid(tried, f"partition {partition} is no number of a partition")
    return PartitionKey(validate_topic_id(topic_id, tried=tried), PartitionId(partition))


def validate_partitions(
    topics: Sequence[common_pb2.TopicPartitions], *, tried: str, count_max: int
) -> tuple[PartitionKey, ...]:
    """Partitions by topic; INVALID_ARGUMENT if one stands there twice, or more than a group has."""
    refuse_too_many(sum(len(topic.partitions) for topic in topics), count_max, tried=tried)
    keys = tuple(
        validate_partition(topic.topic_id, partition, tried=tried)
        for topic in topics
        for partition in topic.partitions
    )
    refuse_twice(keys, tried=tried)
    return keys


def refuse_too_many(count: int, count_max: int, *, tried: str) -> None:
    """INVALID_ARGUMENT for more partitions than a call may name: a message names millions, and to
    read them takes seconds."""
    if count > count_max:
        raise invalid(tried, f"{count} partitions, the limit is {count_max}")


def refuse_twice(keys: Sequence[PartitionKey], *, tried: str) -> None:
    """INVALID_ARGUMENT for a partition that is named twice."""
    if len(dict.fromkeys(keys)) < len(keys):
        raise invalid(tried, "the request names a partition twice", "Name each one once.")


def read_partition(topic_id: bytes, partition: int) -> PartitionKey:
    """A partition that a broker has named in its answer."""
    return PartitionKey(TopicId(topic_id), PartitionId(partition))


def by_topic(keys: Iterable[PartitionKey]) -> list[common_pb2.TopicPartitions]:
    """Partitions by topic, in ascending order of both."""
    topics: dict[bytes, common_pb2.TopicPartitions] = {}
    for key in sorted(keys):
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = common_pb2.TopicPartitions(topic_id=key.topic_id)
        topic.partitions.append(key.partition)
    return list(topics.values())
