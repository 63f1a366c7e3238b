"""The metadata in memory: an immutable value that everybody may keep and nobody may change.

Owns `Image` and its nodes. It must never be mutated: `apply` makes a new one that shares every
topic which an entry did not touch.
"""

from collections.abc import Mapping

import msgspec

from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    TopicId,
)

NO_LEADER = BrokerId(-1)


class BrokerImage(msgspec.Struct, frozen=True, kw_only=True):
    """A registered broker."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    incarnation: bytes
    listeners: Mapping[str, str]
    host_name: str
    rack: str
    is_fenced: bool


class PartitionImage(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a partition and who leads it."""

    partition: PartitionId
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    in_sync_replicas: tuple[BrokerId, ...]


class TopicImage(msgspec.Struct, frozen=True, kw_only=True):
    """A topic with its partitions in ascending order."""

    topic_id: TopicId
    name: str
    configuration: Mapping[str, str]
    is_internal: bool
    partitions: tuple[PartitionImage, ...] = ()

    @property
    def replication_factor(self) -> int:
        """Replicas of each partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """All metadata as of one version: `version` entries of the log have been applied."""

    version: int = 0
    cluster_id: str = ""
    topics: Mapping[TopicId, TopicImage] = {}
    topic_ids: Mapping[str, TopicId] = {}
    brokers: Mapping[BrokerId, BrokerImage] = {}

    def topic_named(self, name: str) -> TopicImage | None:
        """The topic of this name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def live_brokers(self) -> list[BrokerImage]:
        """Brokers that may lead, in ascending order of id."""
        return [
            self.brokers[key] for key in sorted(self.brokers) if not self.brokers[key].is_fenced
        ]
