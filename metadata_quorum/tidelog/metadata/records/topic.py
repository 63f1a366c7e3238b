"""Records of topics and partitions.

A partition's record comes in two forms: whole, which replaces what was known, and small, which
names only what changed. Both say the partition epoch that they lead to.
"""

import msgspec

from tidelog.metadata.records.cluster import Record
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    TopicId,
)


class TopicRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag="topic", tag_field="type", gc=False
):
    """A topic came to be; its partitions follow, in ascending order."""

    version: int = 1
    is_optional: bool = False
    topic_id: TopicId
    name: str
    configuration: dict[str, str] = {}
    is_internal: bool = False


class TopicRemovedRecord(Record, frozen=True, kw_only=True, tag="topic_removed"):
    """A topic is gone with all its partitions and settings."""

    topic_id: TopicId


class PartitionRecord(Record, frozen=True, kw_only=True, tag="partition"):
    """The whole state of one partition: it replaces what was known."""

    topic_id: TopicId
    partition: PartitionId
    leader_id: BrokerId
    """`NO_LEADER` (-1): nobody leads it."""
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    """In order of preference."""
    in_sync_replicas: tuple[BrokerId, ...]
    directories: tuple[bytes, ...] = ()
    """The uuid of the directory of each replica, in the order of `replicas`; `b""`: not known
    yet. Empty: of none is it known."""
    eligible_replicas: tuple[BrokerId, ...] = ()
    """Not in sync, but with every acknowledged record: they may be elected."""
    last_known_eligible: tuple[BrokerId, ...] = ()
    """With no replica in sync or eligible: those of which the longest log is taken."""
    adding_replicas: tuple[BrokerId, ...] = ()
    """Of a reassignment under way: those of `replicas` that come."""
    removing_replicas: tuple[BrokerId, ...] = ()
    """Of a reassignment under way: those of `replicas` that go."""
    is_recovered_unclean: bool = False
    """A replica was elected that may lack acknowledged records, and not every replica has gone on
    from its log yet."""
    called_off_replicas: tuple[BrokerId, ...] = ()
    """Those of `removing_replicas` that came by a reassignment that was called off or replaced."""
    unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """The leader epoch that began when a replica was elected last that may lack acknowledged
    records. It stays: a copy whose records are all of earlier epochs may be from before that."""


class PartitionChangeRecord(Record, frozen=True, kw_only=True, tag="partition_change"):
    """Something of a partition changed; None: it did not."""

    topic_id: TopicId
    partition: PartitionId
    partition_epoch: PartitionEpoch
    """After the change: one more than before it."""
    leader_id: BrokerId | None = None
    leader_epoch: LeaderEpoch | None = None
    """Given, and higher, with every new leader."""
    replicas: tuple[BrokerId, ...] | None = None
    in_sync_replicas: tuple[BrokerId, ...] | None = None
    directories: tuple[bytes, ...] | None = None
    """Given with every change of `replicas` once it was given at all."""
    eligible_replicas: tuple[BrokerId, ...] | None = None
    last_known_eligible: tuple[BrokerId, ...] | None = None
    adding_replicas: tuple[BrokerId, ...] | None = None
    removing_replicas: tuple[BrokerId, ...] | None = None
    is_recovered_unclean: bool | None = None
    called_off_replicas: tuple[BrokerId, ...] | None = None
    unclean_epoch: LeaderEpoch | None = None
