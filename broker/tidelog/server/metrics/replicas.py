"""One pass over a broker's replicas: who leads, who follows, how far behind, how much is stored.

It lets the loop turn, so that ten thousand replicas hold nobody up. Owns the sums by directory and
by follower, and with `metrics.per_partition` the figures of each replica.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tidelog.broker.replicas.replicas import Replica
from tidelog.metadata.eligibility import in_sync_min
from tidelog.metadata.image.image import Image
from tidelog.server.roles.broker import BrokerRole

REPLICAS_A_LOOK: Final = 64
"""After so many it is looked whether the loop should turn."""


class DirectorySums(msgspec.Struct, kw_only=True):
    """The replicas in one directory."""

    partitions: int = 0
    failed: int = 0
    size_bytes: int = 0
    segments: int = 0


class ReplicaFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One replica."""

    topic: str
    partition: int
    is_led: bool
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    lags: dict[int, int]
    """By follower, how many records it lacks."""


class ReplicaSums(msgspec.Struct, kw_only=True):
    """All replicas of a broker."""

    replicas: int = 0
    leaders: int = 0
    producers: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    lag_max: int = 0
    lags: dict[int, int] = msgspec.field(default_factory=dict)
    """By follower, how many records it lacks, over all partitions that are led here."""
    directories: dict[str, DirectorySums] = msgspec.field(default_factory=dict)
    each: list[ReplicaFigures] = msgspec.field(default_factory=list)
    """Only with `metrics.per_partition`."""

    def add_lag(self, broker_id: int, lag: int) -> None:
        """A follower lacks so many records of one partition."""
        self.lags[broker_id] = self.lags.get(broker_id, 0) + lag
        self.lag_max = max(self.lag_max, lag)


async def sum_replicas(
    broker: BrokerRole, breathe: Callable[[], Awaitable[None]], *, per_partition: bool
) -> ReplicaSums:
    """Look at every replica once."""
    sums, image = ReplicaSums(), broker.image()
    for place, replica in enumerate(list(broker.replicas)):
        lags = _add(sums, replica, broker, image)
        if per_partition:
            sums.each.append(_figures(replica, lags))
        if place % REPLICAS_A_LOOK == 0:
            await breathe()
    return sums


def _add(sums: ReplicaSums, replica: Replica, broker: BrokerRole, image: Image) -> dict[int, int]:
    log = replica.log
    directory = sums.directories.setdefault(replica.directory.name, DirectorySums())
    directory.partitions += 1
    directory.failed += log.failure is not None
    directory.size_bytes += log.size_bytes
    directory.segments += len(log.segments)
    sums.replicas += 1
    sums.producers += len(log.producers)
    return _add_led(sums, replica, broker, image) if replica.is_led else {}


def _add_led(
    sums: ReplicaSums, replica: Replica, broker: BrokerRole, image: Image
) -> dict[int, int]:
    """How many records each follower lacks, as far as it was heard of."""
    sums.leaders += 1
    log, lags = replica.log, dict[int, int]()
    topic = image.topics.get(log.key.topic_id)
    if topic is not None and log.key.partition < len(topic.partitions):
        partition = topic.partitions[log.key.partition]
        in_sync = len(partition.in_sync_replicas)
        sums.under_replicated += in_sync < len(partition.replicas)
        sums.under_min_isr += in_sync < in_sync_min(topic)
        if len(partition.replicas) == 1:
            return lags
    for each in broker.replication.in_sync.followers(log.key):
        lag = max(0, log.log_end_offset - each.log_end_offset)
        lags[int(each.broker_id)] = lag
        sums.add_lag(each.broker_id, lag)
    return lags


def _figures(replica: Replica, lags: dict[int, int]) -> ReplicaFigures:
    log = replica.log
    return ReplicaFigures(
        topic=replica.topic_name,
        partition=log.key.partition,
        is_led=replica.is_led,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        size_bytes=log.size_bytes,
        lags=lags,
    )
