"""Where the coordinator of a group is, as this broker's image says. Pure.

Owns the rule: a group belongs to one partition of `__groups`, by the murmur2 of its name, and who
leads that partition coordinates it. It must never guess a broker: without a leader there is no
coordinator, and the error names who would have to come back. While `group.version` is at level 0
there is none for anybody.
"""

from typing import Final

import msgspec

from tidelog.metadata.features import GROUP_VERSION
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.metadata.internal_topics import GROUPS_TOPIC, shortage_of
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId
from tidelog.wire.partitioner import coordinator_partition

NAMED_MAX: Final = 20
"""Brokers that an error names."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one coordinator is."""

    key: str
    broker_id: BrokerId
    address: str


def check_groups_on(image: Image, *, tried: str) -> None:
    """UNSUPPORTED_VERSION while the cluster runs without groups."""
    level = image.features.get(GROUP_VERSION, 0)
    if level < 1:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried=tried,
            happened=f"the cluster runs {GROUP_VERSION} at level {level}: groups are off",
            hint=f"`tidelog cluster features {GROUP_VERSION}=1 --execute` turns them on, once "
            "every broker is of this release.",
        )


def groups_topic(image: Image) -> TopicImage | None:
    """The topic of the coordinators; None: nobody has asked for it yet."""
    return image.topic_named(GROUPS_TOPIC)


def partition_of(group: str, topic: TopicImage) -> PartitionImage:
    """The partition to which the group belongs."""
    return topic.partitions[coordinator_partition(group, len(topic.partitions))]


def place_of(group: str, image: Image, listener: str) -> Place:
    """Who coordinates the group and where it listens; else COORDINATOR_NOT_AVAILABLE."""
    topic = groups_topic(image)
    if topic is None:
        raise not_available(group, why_no_topic(image))
    partition = partition_of(group, topic)
    broker = image.brokers.get(partition.leader_id)
    if partition.leader_id == NO_LEADER or broker is None:
        raise _no_leader(image, group, partition)
    address = broker.listeners.get(listener, "")
    return Place(key=group, broker_id=partition.leader_id, address=address)


def not_available(group: str, happened: str) -> TidelogError:
    """COORDINATOR_NOT_AVAILABLE."""
    return TidelogError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        tried=f"find the coordinator of group {group}",
        happened=happened,
    )


def why_no_topic(image: Image) -> str:
    """Why there is no topic for coordinators."""
    shortage = shortage_of(image)
    if shortage is None:
        return f"topic {GROUPS_TOPIC} is not there yet: the first FindCoordinators call makes it"
    return f"topic {GROUPS_TOPIC} cannot be made: {shortage}"


def _no_leader(image: Image, group: str, partition: PartitionImage) -> TidelogError:
    gone = [
        each
        for each in partition.replicas
        if each not in image.brokers or image.brokers[each].is_fenced
    ]
    named = ", ".join(str(each) for each in gone[:NAMED_MAX]) or "none"
    return not_available(
        group,
        f"nobody leads {GROUPS_TOPIC}-{partition.partition}; of its brokers these are missing: "
        f"{named}",
    )
