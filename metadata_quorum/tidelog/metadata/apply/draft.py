"""The next image while entries are applied: what changed lies over the image that it began with.

Owns nothing that outlives one application. The maps of the image are changed once, at `finish`,
however many records there were.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar, cast

from tidelog.metadata.image.image import Image, PartitionImage, TopicImage
from tidelog.metadata.image.index import IndexChanges, partitions_in
from tidelog.metadata.image.map import REMOVED, ImageMap, K, Removed, V
from tidelog.wire.ids import BrokerId, TopicId

T = TypeVar("T")


class Layer(Generic[K, V]):
    """A map with changes that are not made yet."""

    __slots__ = ("_base", "changes")

    def __init__(self, base: ImageMap[K, V]) -> None:
        self._base = base
        self.changes: dict[K, V | Removed] = {}

    def get(self, key: K) -> V | None:
        """The value as it is now."""
        changed = self.changes.get(key)
        if changed is None:
            return self._base.get(key)
        return None if isinstance(changed, Removed) else changed

    def put(self, key: K, value: V) -> None:
        """Set it."""
        self.changes[key] = value

    def remove(self, key: K) -> None:
        """It goes."""
        self.changes[key] = REMOVED

    def finish(self) -> ImageMap[K, V]:
        """The map with the changes made."""
        return self._base.updated(self.changes) if self.changes else self._base


class Draft:
    """Used by `apply` only, for one run of entries."""

    def __init__(self, image: Image) -> None:
        self.before = image
        self.cluster_id = image.cluster_id
        self.cluster = image.cluster
        self.last_broker_epoch = image.last_broker_epoch
        self.next_producer_id = image.next_producer_id
        self.features = Layer(image.features)
        self.brokers = Layer(image.brokers)
        self.topics = Layer(image.topics)
        self.topic_ids = Layer(image.topic_ids)
        self.cluster_configuration = Layer(image.cluster_configuration)
        self.broker_configurations = Layer(image.broker_configurations)
        self.group_configurations = Layer(image.group_configurations)
        self.quotas = Layer(image.quotas)
        self._partitions: dict[TopicId, list[PartitionImage]] = {}
        """Of the topics of which partitions were touched: put into the topics at the end."""
        self._touched: dict[TopicId, int] = {}
        """Their partitions that were touched, as bits."""
        self._removed: dict[TopicId, None] = {}
        self._shared: dict[object, object] = {}

    def partitions_of(self, topic: TopicImage) -> Sequence[PartitionImage]:
        """As they are now."""
        return self._partitions.get(topic.topic_id, topic.partitions)

    def put_partition(self, topic: TopicImage, partition: PartitionImage) -> None:
        """In place: a copy for each record would cost their number squared."""
        topic_id = topic.topic_id
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            partitions = self._partitions[topic_id] = list(topic.partitions)
            self._touched[topic_id] = 0
        number = partition.partition
        if number == len(partitions):
            partitions.append(partition)
        else:
            partitions[number] = partition
        self._touched[topic_id] |= 1 << number

    def remove_topic(self, topic: TopicImage) -> None:
        """The topic with its partitions."""
        self.topics.remove(topic.topic_id)
        self.topic_ids.remove(topic.name)
        self._partitions.pop(topic.topic_id, None)
        self._touched.pop(topic.topic_id, None)
        self._removed[topic.topic_id] = None

    def is_removed(self, topic_id: TopicId) -> bool:
        """Whether the topic went while this draft was made."""
        return topic_id in self._removed

    def shared(self, value: T) -> T:
        """An equal value that is there already, if there is one: replica sets repeat themselves."""
        found = self._shared.setdefault(value, value)
        return cast(T, found)

    def holds_nothing(self, broker_id: BrokerId) -> bool:
        """Whether no partition has a replica on the broker, after what was applied so far."""
        for topic_id, partition in self.before.held_by(broker_id):
            topic = self.topics.get(topic_id)
            if topic is not None and broker_id in self.partitions_of(topic)[partition].replicas:
                return False
        return not any(
            broker_id in partitions[number].replicas
            for topic_id, partitions in self._partitions.items()
            for number in partitions_in(self._touched[topic_id])
        )

    def finish(self, version: int) -> Image:
        """The image with everything applied."""
        index = self._index_changes()
        for topic_id, partitions in self._partitions.items():
            topic = self.topics.get(topic_id)
            assert topic is not None, "partitions of a removed topic are forgotten with it"
            changed = TopicImage(
                topic_id=topic_id,
                name=topic.name,
                configuration=topic.configuration,
                is_internal=topic.is_internal,
                partitions=tuple(partitions),
                flushed_since=topic.flushed_since,
            )
            self.topics.put(topic_id, changed)
        return Image(
            version=version,
            cluster_id=self.cluster_id,
            cluster=self.cluster,
            features=self.features.finish(),
            brokers=self.brokers.finish(),
            last_broker_epoch=self.last_broker_epoch,
            topics=self.topics.finish(),
            topic_ids=self.topic_ids.finish(),
            index=self.before.index if index is None else index.apply_to(self.before.index),
            cluster_configuration=self.cluster_configuration.finish(),
            broker_configurations=self.broker_configurations.finish(),
            group_configurations=self.group_configurations.finish(),
            quotas=self.quotas.finish(),
            next_producer_id=self.next_producer_id,
        )

    def _index_changes(self) -> IndexChanges | None:
        if not self._touched and not self._removed:
            return None
        changes = IndexChanges()
        for topic_id in self._removed:
            known = self.before.topics.get(topic_id)
            for partition in () if known is None else known.partitions:
                changes.add(topic_id, partition, None)
        for topic_id, touched in self._touched.items():
            known = self.before.topics.get(topic_id)
            earlier = () if known is None else known.partitions
            later = self._partitions[topic_id]
            for number in partitions_in(touched):
                before = earlier[number] if number < len(earlier) else None
                changes.add(topic_id, before, later[number])
        return changes


def changed_settings(
    before: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str]:
    """Settings after the changes, in ascending order of name; None removes."""
    after: dict[str, str | None] = {**before, **changes}
    return {name: value for name, value in sorted(after.items()) if value is not None}
