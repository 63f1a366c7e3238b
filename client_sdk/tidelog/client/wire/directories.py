"""Data directories in protobuf. As `wire.admin`.

Owns method name, request and answer. It must never decide anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelog.client.types.directories import BrokerLogDirs, LogDir, LogDirReplica
from tidelog.client.wire.calls import error_of
from tidelog.v1 import common_pb2, log_dirs_pb2

DESCRIBE_LOG_DIRS: Final = "/tidelog.v1.LogDirService/DescribeLogDirs"


def describe_log_dirs_request(
    broker_ids: Iterable[int], topics: Mapping[bytes, Sequence[int]], *, directories_only: bool
) -> bytes:
    """No brokers: all. No topics: all replicas."""
    return log_dirs_pb2.DescribeLogDirsRequest(
        broker_ids=broker_ids,
        topics=[
            common_pb2.TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        directories_only=directories_only,
    ).SerializeToString()


def read_log_dirs(data: bytes) -> list[BrokerLogDirs]:
    """In ascending order of broker id."""
    answer = log_dirs_pb2.DescribeLogDirsResponse.FromString(data)
    return [
        BrokerLogDirs(
            broker_id=broker.broker_id,
            directories=tuple(_directory(each) for each in broker.directories),
            failure=error_of(broker.error),
        )
        for broker in answer.brokers
    ]


def _directory(directory: log_dirs_pb2.LogDir) -> LogDir:
    return LogDir(
        path=directory.path,
        directory_uuid=directory.directory_uuid,
        free_bytes=directory.free_bytes,
        replicas=tuple(
            LogDirReplica(
                topic=each.topic_name,
                topic_id=each.partition.topic_id,
                partition=each.partition.partition,
                size_bytes=each.size_bytes,
                log_end_offset=each.log_end_offset,
                offset_lag=each.lag,
                failure=error_of(each.error),
            )
            for each in directory.replicas
        ),
        failure=error_of(directory.error),
    )
