"""How the cluster stands, counted in the image of its metadata. Pure.

Each topic is counted once as long as it does not change: the image shares what an entry did not
touch, so that a scrape of 10,000 partitions costs what changed since the last one.
"""

import msgspec

from tidelog.metadata.eligibility import in_sync_min
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.wire.ids import TopicId


class PartitionCounts(msgspec.Struct, kw_only=True):
    """Of some partitions."""

    partitions: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    not_preferred: int = 0
    reassigning: int = 0

    def take(self, partition: PartitionImage, minimum: int) -> None:
        """One more."""
        in_sync, replicas = partition.in_sync_replicas, partition.replicas
        self.partitions += 1
        self.offline += partition.leader_id == NO_LEADER
        self.under_replicated += len(in_sync) < len(replicas)
        self.under_min_isr += len(in_sync) < minimum
        self.not_preferred += partition.leader_id not in (NO_LEADER, replicas[0])
        self.reassigning += partition.is_reassigning

    def join(self, other: "PartitionCounts") -> None:
        """All of these as well."""
        self.partitions += other.partitions
        self.offline += other.offline
        self.under_replicated += other.under_replicated
        self.under_min_isr += other.under_min_isr
        self.not_preferred += other.not_preferred
        self.reassigning += other.reassigning


class ImageCounts:
    """`count` again and again."""

    def __init__(self) -> None:
        self._known: dict[TopicId, tuple[TopicImage, PartitionCounts]] = {}

    def count(self, image: Image) -> PartitionCounts:
        """Of all topics in the image."""
        known: dict[TopicId, tuple[TopicImage, PartitionCounts]] = {}
        total = PartitionCounts()
        for topic_id, topic in image.topics.items():
            found = self._known.get(topic_id)
            if found is None or found[0] is not topic:
                found = (topic, count_topic(topic))
            known[topic_id] = found
            total.join(found[1])
        self._known = known
        return total


def count_topic(topic: TopicImage) -> PartitionCounts:
    """Of one topic."""
    counts, minimum = PartitionCounts(), in_sync_min(topic)
    for partition in topic.partitions:
        counts.take(partition, minimum)
    return counts
