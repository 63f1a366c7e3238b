"""What the image consists of: brokers, topics, partitions, quotas and cluster-wide values.

Immutable, so that two images may share them. Equal parts are often one object: `apply` hands the
same tuple to every partition of the same replicas.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.metadata.records.broker import BrokerDirectory, DirectoryEpoch, FeatureRange
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    TopicId,
)

NO_LEADER: Final = BrokerId(-1)
NO_DIRECTORY: Final = b""
"""Of a replica of which it is not known yet in which directory it lies."""


class ClusterImage(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided when the cluster was formatted. Zeros: nothing was."""

    default_replication_factor: int = 0
    internal_replication_factor: int = 0
    internal_partition_counts: Mapping[str, int] = {}
    """Internal topic → partition count; never changes."""


class BrokerImage(msgspec.Struct, frozen=True, kw_only=True):
    """A registered broker."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    incarnation: bytes
    listeners: Mapping[str, str]
    host_name: str
    rack: str
    is_fenced: bool
    is_shutting_down: bool = False
    """Its process has asked to stop: it gets no new leaders."""
    is_draining: bool = False
    """An operator empties it: it gets no replicas."""
    directories: tuple[BrokerDirectory, ...] = ()
    features: Mapping[str, FeatureRange] = {}
    boot_id: str = ""
    release: str = ""
    unflushed_since: BrokerEpoch | None = None
    """The epoch since which what it stored may be in its machine's memory alone; None: `epoch`."""
    directory_epochs: tuple[DirectoryEpoch, ...] = ()
    """How new each directory must be; of one that is not there nothing is known."""


class PartitionImage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who holds a partition and who leads it. Fields as in `PartitionRecord`."""

    partition: PartitionId
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    in_sync_replicas: tuple[BrokerId, ...]
    directories: tuple[bytes, ...] = ()
    """Of each replica; empty: of none is it known."""
    eligible_replicas: tuple[BrokerId, ...] = ()
    last_known_eligible: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    is_recovered_unclean: bool = False
    called_off_replicas: tuple[BrokerId, ...] = ()
    unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas come or go."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def last_replica(self) -> BrokerId | None:
        """The only one that the reassignment under way will leave; None: there is no such."""
        if not self.removing_replicas:
            return None
        staying = [each for each in self.replicas if each not in self.removing_replicas]
        return staying[0] if len(staying) == 1 else None

    def directory_of(self, broker_id: BrokerId) -> bytes:
        """The directory in which the broker's replica lies, or `NO_DIRECTORY`."""
        if not self.directories:
            return NO_DIRECTORY
        return self.directories[self.replicas.index(broker_id)]


class TopicImage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A topic with its partitions in ascending order."""

    topic_id: TopicId
    name: str
    configuration: Mapping[str, str]
    is_internal: bool
    partitions: tuple[PartitionImage, ...] = ()
    flushed_since: BrokerEpoch | None = None
    """Given last when `flush` became sync; None: it was never anything else before."""

    @property
    def replication_factor(self) -> int:
        """Replicas of each partition, those that a reassignment will leave."""
        if not self.partitions:
            return 0
        first = self.partitions[0]
        return len(first.replicas) - len(first.removing_replicas)


class QuotaImage(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a client id; None: no limit."""

    produce_bytes_per_second: int | None = None
    fetch_bytes_per_second: int | None = None
    requests_per_second: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it limits nothing."""
        return self == QuotaImage()
