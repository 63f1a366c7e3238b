"""What a controller decides: a request and the image → records to write, or a typed refusal.

Pure. Owns the rules for topic names, partition counts and placement. It must never write or wait:
whoever calls it puts the records into the log and decides again if the image moved meanwhile.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidelog.metadata_quorum.controller.load import candidates_of
from tidelog.metadata_quorum.controller.placement import place_partitions
from tidelog.metadata_quorum.controller.topic_configuration import canonical_configuration
from tidelog.metadata_quorum.image import BrokerImage, Image
from tidelog.metadata_quorum.records import (
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    TOPIC_ID_BYTES,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    TopicId,
)
from tidelog.wire.nearest import did_you_mean

TOPIC_NAME_LENGTH_MAX: Final = 249
PARTITIONS_PER_REQUEST_MAX: Final = 20_000
"""Created by one request, which is one entry of the log: at 210 bytes each and 20 more a replica,
50 replicas of each stay below the largest entry."""
_NAME_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create; 0 means the cluster's default."""

    name: str
    partition_count: int = 0
    replication_factor: int = 0
    configuration: Mapping[str, str] = {}


class TopicDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster fills in, and the limits that it holds topics to."""

    partition_count: int = 1
    replication_factor: int = 1
    partition_count_max: int = 10_000
    """Of one topic."""
    partitions_total_max: int = 100_000
    """Of all topics together."""


class TopicPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A creation that was found right, with everything filled in."""

    topic_id: TopicId
    name: str
    partition_count: int
    replication_factor: int
    records: tuple[MetadataRecord, ...]


def validate_topic_name(name: str) -> None:
    """Refuse what could not be a directory's or a metric's name everywhere."""
    tried = f"use the topic name `{name[:TOPIC_NAME_LENGTH_MAX]}`"
    if not name:
        raise _invalid_name(tried, "it is empty")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise _invalid_name(
            tried, f"it has {len(name)} characters, more than {TOPIC_NAME_LENGTH_MAX}"
        )
    if name in (".", ".."):
        raise _invalid_name(tried, "it means a directory")
    for character in name:
        if character not in _NAME_CHARACTERS:
            raise _invalid_name(tried, f"it contains {character!r}")


def plan_topic(
    image: Image, wanted: NewTopic, topic_id: TopicId, defaults: TopicDefaults
) -> TopicPlan:
    """The records that create the topic, or why it cannot be created."""
    assert len(topic_id) == TOPIC_ID_BYTES, "a topic id has 16 bytes"
    assert topic_id not in image.topics, "a topic id is drawn once"
    validate_topic_name(wanted.name)
    _validate_is_new(image, wanted.name)
    configuration = canonical_configuration(wanted.configuration, topic=wanted.name)
    partition_count = _partition_count(image, wanted, defaults)
    live = image.live_brokers()
    replication_factor = _replication_factor(wanted, defaults, live)
    topic = TopicRecord(topic_id=topic_id, name=wanted.name, configuration=configuration)
    placed = place_partitions(
        candidates_of(image),
        partition_count=partition_count,
        replication_factor=replication_factor,
        tried=f"create topic {wanted.name}",
    ).replicas
    partitions = tuple(
        PartitionRecord(
            topic_id=topic_id,
            partition=PartitionId(number),
            leader_id=replicas[0],
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            replicas=replicas,
            in_sync_replicas=replicas,
        )
        for number, replicas in enumerate(placed)
    )
    return TopicPlan(
        topic_id=topic_id,
        name=wanted.name,
        partition_count=partition_count,
        replication_factor=replication_factor,
        records=(topic, *partitions),
    )


def unknown_topic(
    name: str, image: Image, *, tried: str, hint: str = "", may_guess: bool = True
) -> TidelogError:
    """The error for a name that no topic has, with the nearest one if it may be looked for."""
    near = did_you_mean(name, image.topic_ids) if may_guess else ""
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC,
        tried=tried,
        happened=f"there is no topic `{name}`",
        hint=" ".join(part for part in (near, hint) if part),
    )


def _validate_is_new(image: Image, name: str) -> None:
    if name in image.topic_ids:
        raise TidelogError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            tried=f"create topic {name}",
            happened="a topic of this name exists",
        )


def _partition_count(image: Image, wanted: NewTopic, defaults: TopicDefaults) -> int:
    count = wanted.partition_count or defaults.partition_count
    if not 1 <= count <= defaults.partition_count_max:
        raise TidelogError(
            ErrorCode.INVALID_PARTITION_COUNT,
            tried=f"create topic {wanted.name} with {count} partitions",
            happened=f"a topic has 1 to {defaults.partition_count_max} partitions",
        )
    total = sum(len(topic.partitions) for topic in image.topics.values())
    if total + count > defaults.partitions_total_max:
        raise TidelogError(
            ErrorCode.INVALID_PARTITION_COUNT,
            tried=f"create topic {wanted.name} with {count} partitions",
            happened=f"the cluster has {total} and holds at most {defaults.partitions_total_max}",
        )
    return count


def _replication_factor(
    wanted: NewTopic, defaults: TopicDefaults, live: Sequence[BrokerImage]
) -> int:
    factor = wanted.replication_factor or defaults.replication_factor
    if not 1 <= factor <= len(live):
        raise TidelogError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            tried=f"create topic {wanted.name} with replication factor {factor}",
            happened=f"{len(live)} brokers are alive",
        )
    return factor


def _invalid_name(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_TOPIC_NAME, tried=tried, happened=happened)
