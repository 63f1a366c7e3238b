"""CreateTopics, the calling end: for topics that a broker creates when a client asks for them."""

from collections.abc import Sequence

from tidelog.contract.errors import read_error
from tidelog.metadata.new_topic import NewTopic
from tidelog.metadata_quorum.port import CreatedTopic
from tidelog.v1 import admin_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import TopicId


def encode_create_topics(topics: Sequence[NewTopic], *, timeout_ms: int) -> bytes:
    """`CreateTopicsRequest`."""
    message = admin_pb2.CreateTopicsRequest(timeout_ms=timeout_ms)
    for topic in topics:
        message.topics.add(
            name=topic.name,
            partition_count=topic.partition_count,
            replication_factor=topic.replication_factor,
            configuration=dict(topic.configuration),
        )
    return message.SerializeToString()


def decode_created_topics(data: bytes, *, version: int) -> list[CreatedTopic | TidelogError]:
    """`CreateTopicsResponse`, in the order of the request."""
    results: list[CreatedTopic | TidelogError] = []
    for each in admin_pb2.CreateTopicsResponse.FromString(data).results:
        if each.HasField("error"):
            results.append(read_error(each.error))
            continue
        results.append(
            CreatedTopic(
                name=each.name,
                topic_id=TopicId(each.topic_id),
                partition_count=each.partition_count,
                replication_factor=each.replication_factor,
                version=version,
            )
        )
    return results
