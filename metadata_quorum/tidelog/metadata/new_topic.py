"""A topic that somebody wants, and the defaults for what is left open. Pure."""

from collections.abc import Mapping

import msgspec

from tidelog.wire.ids import (
    BrokerId,
)


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create; 0 means the cluster's default."""

    name: str
    partition_count: int = 0
    replication_factor: int = 0
    configuration: Mapping[str, str] = {}
    assignments: tuple[tuple[BrokerId, ...], ...] = ()
    """Replicas of each partition, in order of preference; empty: the controller places them."""
    is_internal: bool = False


class TopicDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What the node fills in where the cluster says nothing, and the limits of topics."""

    partition_count: int = 1
    replication_factor: int = 1
    partition_count_max: int = 10_000
    """Of one topic."""
    partitions_total_max: int = 100_000
    """Of all topics together."""
    replication_factor_max: int = 50
    """Of one partition."""
