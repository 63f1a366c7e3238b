"""Where the coordinator of a name is, as this broker's image says. Pure.

Owns the rule: a name belongs to one partition of the internal topic of its kind, by its murmur2,
and who leads that partition coordinates it. It must never guess a broker: without a leader there is
no coordinator, and the error names who would have to come back. While the kind's feature is off
there is none for anybody.
"""

from typing import Final

import msgspec

from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.metadata.internal_topics import shortage_of
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey
from tidelog.wire.partitioner import coordinator_partition

NAMED_MAX: Final = 20
"""Brokers that an error names."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one coordinator is."""

    key: str
    broker_id: BrokerId
    address: str


class CoordinatedKind(msgspec.Struct, frozen=True, kw_only=True):
    """What a coordinator coordinates: groups, transactions."""

    noun: str
    """Of one name, as errors call it."""
    plural: str
    topic_name: str
    feature: str
    level: int
    """From which level of the feature on there are coordinators."""
    off_code: ErrorCode
    """What is told below that level."""

    def check_on(self, image: Image, *, tried: str) -> None:
        """Refuses while the cluster runs without this kind."""
        level = image.features.get(self.feature, 0)
        if level < self.level:
            raise TidelogError(
                self.off_code,
                tried=tried,
                happened=f"the cluster runs {self.feature} at level {level}: {self.plural} are off",
                hint=f"`tidelog cluster features {self.feature}={self.level} --execute` turns them "
                "on, once every broker is of this release.",
            )

    def topic_in(self, image: Image) -> TopicImage | None:
        """The topic of the coordinators; None: nobody has asked for it yet."""
        return image.topic_named(self.topic_name)

    def place_of(self, name: str, image: Image, listener: str) -> Place:
        """Who coordinates the name and where it listens; else COORDINATOR_NOT_AVAILABLE."""
        topic = self.topic_in(image)
        if topic is None:
            raise self.not_available(name, self.why_no_topic(image))
        partition = partition_of(name, topic)
        broker = image.brokers.get(partition.leader_id)
        if partition.leader_id == NO_LEADER or broker is None:
            raise self._no_leader(image, name, partition)
        address = broker.listeners.get(listener, "")
        return Place(key=name, broker_id=partition.leader_id, address=address)

    def not_available(self, name: str, happened: str) -> TidelogError:
        """COORDINATOR_NOT_AVAILABLE."""
        return TidelogError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            tried=f"find the coordinator of {self.noun} {name}",
            happened=happened,
        )

    def why_no_topic(self, image: Image) -> str:
        """Why there is no topic for coordinators."""
        shortage = shortage_of(image)
        if shortage is None:
            return (
                f"topic {self.topic_name} is not there yet: the first FindCoordinators call "
                "makes it"
            )
        return f"topic {self.topic_name} cannot be made: {shortage}"

    def not_coordinator(self, key: PartitionKey) -> TidelogError:
        """NOT_COORDINATOR."""
        return TidelogError(
            ErrorCode.NOT_COORDINATOR,
            tried=f"coordinate {key}",
            happened=f"this broker does not lead the partition of the {self.plural}' topic",
        )

    def loading(self, key: PartitionKey) -> TidelogError:
        """COORDINATOR_NOT_AVAILABLE, for a moment."""
        return TidelogError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            tried=f"coordinate {key}",
            happened=f"what was stored of its {self.plural} is being loaded",
        )

    def _no_leader(self, image: Image, name: str, partition: PartitionImage) -> TidelogError:
        gone = [
            each
            for each in partition.replicas
            if each not in image.brokers or image.brokers[each].is_fenced
        ]
        named = ", ".join(str(each) for each in gone[:NAMED_MAX]) or "none"
        return self.not_available(
            name,
            f"nobody leads {self.topic_name}-{partition.partition}; of its brokers these are "
            f"missing: {named}",
        )


def partition_of(name: str, topic: TopicImage) -> PartitionImage:
    """The partition to which the name belongs."""
    return topic.partitions[coordinator_partition(name, len(topic.partitions))]
