"""The metadata in memory: an immutable value that everybody may keep and nobody may change.

Owns `Image`; its nodes are in `image.nodes`. It must never be mutated: `apply` makes a new one
that shares every topic which an entry did not touch. Everything in it comes in ascending order of
its key.
"""

from collections.abc import Iterator, Mapping

import msgspec

from tidelog.metadata.image.index import EMPTY_SET, PartitionIndex, PartitionSet
from tidelog.metadata.image.map import ImageMap
from tidelog.metadata.image.nodes import (
    NO_DIRECTORY,
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    QuotaImage,
    TopicImage,
)
from tidelog.wire.ids import BrokerEpoch, BrokerId, PartitionId, ProducerId, TopicId

__all__ = [
    "NO_DIRECTORY",
    "NO_LEADER",
    "BrokerImage",
    "ClusterImage",
    "Image",
    "ImageMap",
    "PartitionImage",
    "PartitionSet",
    "QuotaImage",
    "TopicImage",
]


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """All metadata as of one version."""

    version: int = 0
    """The log's index of the last entry that is visible here."""
    cluster_id: str = ""
    cluster: ClusterImage = ClusterImage()
    features: ImageMap[str, int] = msgspec.field(default_factory=ImageMap)
    """Feature → level in force; one that is not there is off (level 0)."""
    brokers: ImageMap[BrokerId, BrokerImage] = msgspec.field(default_factory=ImageMap)
    last_broker_epoch: BrokerEpoch = BrokerEpoch(0)
    """The highest that any broker ever had, those removed included."""
    topics: ImageMap[TopicId, TopicImage] = msgspec.field(default_factory=ImageMap)
    topic_ids: ImageMap[str, TopicId] = msgspec.field(default_factory=ImageMap)
    index: PartitionIndex = msgspec.field(default_factory=PartitionIndex)
    cluster_configuration: ImageMap[str, str] = msgspec.field(default_factory=ImageMap)
    broker_configurations: ImageMap[BrokerId, Mapping[str, str]] = msgspec.field(
        default_factory=ImageMap
    )
    group_configurations: ImageMap[str, Mapping[str, str]] = msgspec.field(default_factory=ImageMap)
    quotas: ImageMap[str, QuotaImage] = msgspec.field(default_factory=ImageMap)
    """By client id; the empty one is for all that have none of their own."""
    next_producer_id: ProducerId = ProducerId(0)

    def topic_named(self, name: str) -> TopicImage | None:
        """The topic of this name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def name_partition(self, topic_id: TopicId, partition: int) -> str:
        """`orders-3`, as people know it; of a topic that is not there by its id."""
        topic = self.topics.get(topic_id)
        return (
            f"topic id {topic_id.hex()}-{partition}"
            if topic is None
            else f"{topic.name}-{partition}"
        )

    def partition(self, topic_id: TopicId, partition: PartitionId) -> PartitionImage | None:
        """The partition, if topic and partition are there."""
        topic = self.topics.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]

    def live_brokers(self) -> list[BrokerImage]:
        """Brokers that may lead, in ascending order of id."""
        return [broker for broker in self.brokers.values() if not broker.is_fenced]

    def held_by(self, broker_id: BrokerId) -> PartitionSet:
        """The partitions of which the broker has a replica."""
        return self.index.held.get(broker_id, EMPTY_SET)

    def led_by(self, broker_id: BrokerId) -> PartitionSet:
        """The partitions that the broker leads; `NO_LEADER`: those that nobody leads."""
        return self.index.led.get(broker_id, EMPTY_SET)

    def partitions_in(self, found: PartitionSet) -> Iterator[tuple[TopicImage, PartitionImage]]:
        """The partitions of a set of this image, by topic id, then number."""
        for topic_id in found.masks:
            topic = self.topics[topic_id]
            for partition in found.partitions_of(topic_id):
                yield topic, topic.partitions[partition]

    @property
    def partition_count(self) -> int:
        """Of all topics together."""
        return self.index.partition_count
