"""The administrative services in protobuf: topics, settings, replicas, brokers. As `wire`.

Owns method names, requests and answers. It must never decide anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelog.client.types.admin import (
    BrokerStatus,
    ConfigDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    DeletedTopic,
    DrainOutcome,
    ElectionType,
    NewPartitions,
)
from tidelog.client.wire.calls import error_of
from tidelog.v1 import (
    broker_admin_pb2,
    common_pb2,
    config_admin_pb2,
    partition_admin_pb2,
    topic_admin_pb2,
)
from tidelog.wire.errors import TidelogError

DELETE_TOPICS: Final = "/tidelog.v1.TopicAdminService/DeleteTopics"
CREATE_PARTITIONS: Final = "/tidelog.v1.TopicAdminService/CreatePartitions"
DELETE_RECORDS: Final = "/tidelog.v1.TopicAdminService/DeleteRecords"
DESCRIBE_CONFIGS: Final = "/tidelog.v1.ConfigService/DescribeConfigs"
ALTER_CONFIGS: Final = "/tidelog.v1.ConfigService/AlterConfigs"
ALTER_REASSIGNMENTS: Final = "/tidelog.v1.PartitionAdminService/AlterReassignments"
LIST_REASSIGNMENTS: Final = "/tidelog.v1.PartitionAdminService/ListReassignments"
ELECT_LEADERS: Final = "/tidelog.v1.PartitionAdminService/ElectLeaders"
LIST_BROKERS: Final = "/tidelog.v1.BrokerAdminService/ListBrokers"
DRAIN_BROKER: Final = "/tidelog.v1.BrokerAdminService/DrainBroker"
REMOVE_BROKER: Final = "/tidelog.v1.BrokerAdminService/RemoveBroker"

_KINDS: Final = {
    ConfigResourceType.TOPIC: config_admin_pb2.CONFIG_TARGET_KIND_TOPIC,
    ConfigResourceType.BROKER: config_admin_pb2.CONFIG_TARGET_KIND_BROKER,
    ConfigResourceType.CLUSTER: config_admin_pb2.CONFIG_TARGET_KIND_CLUSTER,
    ConfigResourceType.GROUP: config_admin_pb2.CONFIG_TARGET_KIND_GROUP,
}
_ELECTIONS: Final = {
    ElectionType.PREFERRED: partition_admin_pb2.ELECTION_KIND_PREFERRED,
    ElectionType.UNCLEAN: partition_admin_pb2.ELECTION_KIND_UNCLEAN,
}
Place = tuple[bytes, int]
"""Topic id and partition."""


def delete_topics_request(topics: Iterable[str | bytes], *, validate_only: bool) -> bytes:
    """A text is a name, bytes are an id."""
    selectors = [
        topic_admin_pb2.TopicSelector(name=topic)
        if isinstance(topic, str)
        else topic_admin_pb2.TopicSelector(topic_id=topic)
        for topic in topics
    ]
    return topic_admin_pb2.DeleteTopicsRequest(
        topics=selectors, validate_only=validate_only
    ).SerializeToString()


def read_deleted_topics(data: bytes) -> list[DeletedTopic | TidelogError]:
    """One for each topic, in order."""
    answer = topic_admin_pb2.DeleteTopicsResponse.FromString(data)
    return [
        error_of(result.error) or DeletedTopic(name=result.name, topic_id=result.topic_id)
        for result in answer.results
    ]


def create_partitions_request(topics: Mapping[str, NewPartitions], *, validate_only: bool) -> bytes:
    """Counts in all, not in addition."""
    changes = [
        topic_admin_pb2.PartitionCountChange(
            topic=name,
            partition_count=wanted.total_count,
            placements=[
                topic_admin_pb2.ReplicaPlacement(replicas=replicas)
                for replicas in wanted.new_assignments
            ],
        )
        for name, wanted in topics.items()
    ]
    return topic_admin_pb2.CreatePartitionsRequest(
        topics=changes, validate_only=validate_only
    ).SerializeToString()


def read_partition_counts(data: bytes) -> list[tuple[str, int] | TidelogError]:
    """Topic and its number of partitions now."""
    answer = topic_admin_pb2.CreatePartitionsResponse.FromString(data)
    return [
        error_of(result.error) or (result.topic, result.partition_count)
        for result in answer.results
    ]


def delete_records_request(points: Iterable[tuple[bytes, int, int]]) -> bytes:
    """Topic id, partition, and the offset below which all goes; -1: below the high watermark."""
    return topic_admin_pb2.DeleteRecordsRequest(
        points=[
            topic_admin_pb2.TrimPoint(
                partition=common_pb2.TopicPartition(topic_id=topic_id, partition=partition),
                before_offset=before_offset,
            )
            for topic_id, partition, before_offset in points
        ]
    ).SerializeToString()


def read_trims(data: bytes) -> list[int | TidelogError]:
    """The first offset that each partition keeps, in order."""
    answer = topic_admin_pb2.DeleteRecordsResponse.FromString(data)
    return [error_of(result.error) or result.log_start_offset for result in answer.results]


def _target(resource: ConfigResource) -> config_admin_pb2.ConfigTarget:
    return config_admin_pb2.ConfigTarget(kind=_KINDS[resource.resource_type], name=resource.name)


def describe_configs_request(resources: Iterable[ConfigResource], names: Iterable[str]) -> bytes:
    """No names: all settings."""
    return config_admin_pb2.DescribeConfigsRequest(
        targets=[_target(each) for each in resources], names=names
    ).SerializeToString()


def read_configs(
    data: bytes, resources: Sequence[ConfigResource]
) -> list[ConfigDescription | TidelogError]:
    """One for each resource, in order."""
    answer = config_admin_pb2.DescribeConfigsResponse.FromString(data)
    return [
        error_of(found.error)
        or ConfigDescription(
            resource=resource, entries=tuple(_config_entry(value) for value in found.values)
        )
        for resource, found in zip(resources, answer.descriptions, strict=True)
    ]


def _config_entry(value: config_admin_pb2.ConfigValue) -> ConfigEntry:
    prefix = "CONFIG_SOURCE_"
    source = config_admin_pb2.ConfigSource.Name(value.source)
    return ConfigEntry(
        name=value.name,
        value=value.value,
        source=source.removeprefix(prefix).lower(),
        is_read_only=value.is_read_only,
        is_secret=value.is_secret,
        documentation=value.documentation,
    )


def alter_configs_request(resources: Iterable[ConfigResource], *, validate_only: bool) -> bytes:
    """The settings that are named; None unsets."""
    alterations = [
        config_admin_pb2.ConfigAlteration(
            target=_target(resource),
            changes=[
                config_admin_pb2.ConfigChange(name=name, value=value)
                for name, value in resource.configs.items()
            ],
        )
        for resource in resources
    ]
    return config_admin_pb2.AlterConfigsRequest(
        alterations=alterations, validate_only=validate_only
    ).SerializeToString()


def read_alterations(data: bytes) -> list[TidelogError | None]:
    """One for each resource, in order; None: it is changed."""
    answer = config_admin_pb2.AlterConfigsResponse.FromString(data)
    return [error_of(each.error) for each in answer.results]


def _partition(place: Place) -> common_pb2.TopicPartition:
    topic_id, partition = place
    return common_pb2.TopicPartition(topic_id=topic_id, partition=partition)


def reassignments_request(
    moves: Iterable[tuple[Place, Sequence[int]]],
    *,
    validate_only: bool,
    throttle_bytes_per_second: int,
) -> bytes:
    """No replicas: call the move off."""
    return partition_admin_pb2.AlterReassignmentsRequest(
        reassignments=[
            partition_admin_pb2.Reassignment(partition=_partition(place), replicas=replicas)
            for place, replicas in moves
        ],
        validate_only=validate_only,
        throttle_bytes_per_second=throttle_bytes_per_second,
    ).SerializeToString()


def read_reassignment_results(data: bytes) -> list[TidelogError | None]:
    """One for each move, in order; None: it has begun, is called off, or nothing was to be done."""
    answer = partition_admin_pb2.AlterReassignmentsResponse.FromString(data)
    return [error_of(each.error) for each in answer.results]


def list_reassignments_request() -> bytes:
    """All of them."""
    return partition_admin_pb2.ListReassignmentsRequest().SerializeToString()


def read_reassignments(
    data: bytes,
) -> list[tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], int]]:
    """Topic, partition, replicas, those that come, those that go, bytes that remain."""
    answer = partition_admin_pb2.ListReassignmentsResponse.FromString(data)
    return [
        (
            each.topic_name,
            each.partition.partition,
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
            each.remaining_bytes,
        )
        for each in answer.reassignments
    ]


def elect_leaders_request(
    kind: ElectionType,
    topics: Mapping[bytes, Sequence[int]],
    *,
    broker_id: int,
    validate_only: bool,
) -> bytes:
    """Partitions by topic id; none: all, for preferred leaders."""
    return partition_admin_pb2.ElectLeadersRequest(
        kind=_ELECTIONS[kind],
        topics=[
            common_pb2.TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        broker_id=broker_id,
        validate_only=validate_only,
    ).SerializeToString()


def read_elections(data: bytes) -> list[tuple[bytes, int, int, TidelogError | None]]:
    """Topic id, partition, leader, error."""
    answer = partition_admin_pb2.ElectLeadersResponse.FromString(data)
    return [
        (
            each.partition.topic_id,
            each.partition.partition,
            each.leader_id,
            error_of(each.error),
        )
        for each in answer.results
    ]


def list_brokers_request() -> bytes:
    """All of them."""
    return broker_admin_pb2.ListBrokersRequest().SerializeToString()


def read_brokers(data: bytes) -> list[BrokerStatus]:
    """In ascending order of id."""
    answer = broker_admin_pb2.ListBrokersResponse.FromString(data)
    return [
        BrokerStatus(
            broker_id=each.broker_id,
            broker_epoch=each.broker_epoch,
            address=each.address,
            rack=each.rack,
            host=each.host,
            is_fenced=each.is_fenced,
            is_draining=each.is_draining,
            is_shutting_down=each.is_shutting_down,
            leader_count=each.leader_count,
            replica_count=each.replica_count,
            last_contact_ms=each.last_contact_ms,
            release=each.release,
            clock_state=_CLOCK_STATES.get(each.clock_state, "unknown"),
            clock_skew_ms=each.clock_skew_ms,
            clock_wall_ms=each.clock_wall_ms,
        )
        for each in answer.brokers
    ]


_CLOCK_STATES: Final = {
    broker_admin_pb2.CLOCK_STATE_RIGHT: "right",
    broker_admin_pb2.CLOCK_STATE_OFF: "off",
    broker_admin_pb2.CLOCK_STATE_NO_MAJORITY: "no_majority",
    broker_admin_pb2.CLOCK_STATE_ALONE: "alone",
    broker_admin_pb2.CLOCK_STATE_HELD: "held",
}


def drain_broker_request(
    broker_id: int, *, is_cancelled: bool, validate_only: bool, throttle_bytes_per_second: int
) -> bytes:
    """Empty a broker, or call that off."""
    return broker_admin_pb2.DrainBrokerRequest(
        broker_id=broker_id,
        is_cancelled=is_cancelled,
        validate_only=validate_only,
        throttle_bytes_per_second=throttle_bytes_per_second,
    ).SerializeToString()


def read_drain(data: bytes) -> DrainOutcome:
    """What has to move."""
    answer = broker_admin_pb2.DrainBrokerResponse.FromString(data)
    return DrainOutcome(
        remaining_replicas=answer.remaining_replicas, warnings=tuple(answer.warnings)
    )


def remove_broker_request(broker_id: int, *, validate_only: bool) -> bytes:
    """Forget a broker."""
    return broker_admin_pb2.RemoveBrokerRequest(
        broker_id=broker_id, validate_only=validate_only
    ).SerializeToString()
