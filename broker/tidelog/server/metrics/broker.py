"""A broker's part of a scrape: its directories, its replicas, who follows them and how far behind.

One pass over the replicas, which lets the loop turn; sums by directory and by follower, and with
`metrics.per_partition` a line for each replica.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replica
from tidelog.metadata.eligibility import in_sync_min
from tidelog.metadata.image.image import Image
from tidelog.server.metrics.scrape import Scrape
from tidelog.server.roles.broker import BrokerRole

REPLICAS_A_LOOK: Final = 64
"""After so many it is looked whether the loop should turn."""
_WORKS: Final = (
    "checks",
    "trims",
    "trimmed_bytes",
    "rolls",
    "seals",
    "compactions",
    "compaction_bytes_read",
    "compaction_bytes_written",
    "scrubs",
    "scrubbed_bytes",
    "jobs_failed",
    "partitions_failed",
)


async def gather_broker(
    scrape: Scrape,
    broker: BrokerRole,
    breathe: Callable[[], Awaitable[None]],
    *,
    per_partition: bool,
) -> None:
    """All of it."""
    scrape.set("tidelog_broker_clock_trusted", broker.time.may_expire)
    scrape.set("tidelog_broker_clock_skew_seconds", broker.time.skew_ms / 1_000)
    for directory in broker.directories:
        _gather_directory(scrape, directory)
    if not broker.is_recovered:
        return
    _gather_replication(scrape, broker)
    image = broker.image()
    pass_ = _Pass(scrape, broker, image, per_partition=per_partition)
    for place, replica in enumerate(list(broker.replicas)):
        pass_.take(replica)
        if place % REPLICAS_A_LOOK == 0:
            await breathe()
    pass_.end()


def _gather_directory(scrape: Scrape, directory: LogDirectory) -> None:
    name = directory.name
    scrape.set("tidelog_log_directory_failed", directory.failure is not None, name)
    scrape.set("tidelog_produce_queued_bytes", directory.queued_bytes, name)
    for each in ("partitions", "failed_partitions", "size_bytes", "segments"):
        scrape.set(f"tidelog_log_{each}", 0, name)
    if not directory.is_open:
        return
    kept = directory.keeper.describe()
    scrape.set("tidelog_log_free_bytes", kept.free_bytes, name)
    scrape.set("tidelog_log_is_full", kept.is_full, name)
    for work in _WORKS:
        scrape.set("tidelog_log_housekeeping", kept.counts[work], name, work)
    scrape.add("tidelog_producer_duplicates", directory.owner.duplicates_answered)
    scrape.add("tidelog_replication_truncations", directory.owner.cut_count)


def _gather_replication(scrape: Scrape, broker: BrokerRole) -> None:
    replication = broker.replication
    lanes = replication.fetchers.describe()
    scrape.set(
        "tidelog_replication_troubled_lanes", sum(each.trouble is not None for each in lanes)
    )
    for lane, size_bytes in replication.fetchers.copied_bytes.items():
        scrape.set("tidelog_replication_copied_bytes", size_bytes, lane.name.lower())
    scrape.set("tidelog_replication_repairs", replication.repair.repaired_count)


class _Sums(msgspec.Struct):
    """Of one directory."""

    partitions: int = 0
    failed: int = 0
    size_bytes: int = 0
    segments: int = 0


class _Pass:
    """Sums over replicas."""

    def __init__(
        self, scrape: Scrape, broker: BrokerRole, image: Image, *, per_partition: bool
    ) -> None:
        self._scrape = scrape
        self._broker = broker
        self._image = image
        self._per_partition = per_partition
        self._replicas = self._leaders = self._producers = 0
        self._under_replicated = self._under_min_isr = 0
        self._sums: dict[str, _Sums] = {}
        self._lags: dict[int, int] = {}
        self._lag_max = 0

    def take(self, replica: Replica) -> None:
        """One more."""
        log, size_bytes = replica.log, replica.log.size_bytes
        sums = self._sums.get(replica.directory.name)
        if sums is None:
            sums = self._sums[replica.directory.name] = _Sums()
        sums.partitions += 1
        sums.failed += log.failure is not None
        sums.size_bytes += size_bytes
        sums.segments += len(log.segments)
        self._replicas += 1
        self._producers += len(log.producers)
        followers = self._take_led(replica) if replica.is_led else {}
        if self._per_partition:
            scrape = self._scrape
            place = (replica.topic_name, str(log.key.partition))
            scrape.set("tidelog_partition_is_leader", replica.is_led, *place)
            scrape.set("tidelog_partition_log_start_offset", log.log_start_offset, *place)
            scrape.set("tidelog_partition_high_watermark", log.high_watermark, *place)
            scrape.set("tidelog_partition_log_end_offset", log.log_end_offset, *place)
            scrape.set("tidelog_partition_size_bytes", size_bytes, *place)
            for broker_id, lag in followers.items():
                scrape.set("tidelog_partition_follower_lag_records", lag, *place, str(broker_id))

    def _take_led(self, replica: Replica) -> dict[int, int]:
        """How many records each follower lacks, as far as it was heard of."""
        self._leaders += 1
        log, lags = replica.log, dict[int, int]()
        topic = self._image.topics.get(log.key.topic_id)
        if topic is not None and log.key.partition < len(topic.partitions):
            partition = topic.partitions[log.key.partition]
            in_sync = len(partition.in_sync_replicas)
            self._under_replicated += in_sync < len(partition.replicas)
            self._under_min_isr += in_sync < in_sync_min(topic)
            if len(partition.replicas) == 1:
                return lags
        for each in self._broker.replication.in_sync.followers(log.key):
            lag = max(0, log.log_end_offset - each.log_end_offset)
            lags[int(each.broker_id)] = lag
            self._lags[each.broker_id] = self._lags.get(each.broker_id, 0) + lag
            self._lag_max = max(self._lag_max, lag)
        return lags

    def end(self) -> None:
        """Write the sums."""
        scrape = self._scrape
        for directory, sums in self._sums.items():
            scrape.set("tidelog_log_partitions", sums.partitions, directory)
            scrape.set("tidelog_log_failed_partitions", sums.failed, directory)
            scrape.set("tidelog_log_size_bytes", sums.size_bytes, directory)
            scrape.set("tidelog_log_segments", sums.segments, directory)
        scrape.set("tidelog_replication_replicas", self._replicas)
        scrape.set("tidelog_replication_leaders", self._leaders)
        scrape.set("tidelog_replication_under_replicated_partitions", self._under_replicated)
        scrape.set("tidelog_replication_under_min_isr_partitions", self._under_min_isr)
        scrape.set("tidelog_replication_follower_lag_records_max", self._lag_max)
        for broker_id, lag in sorted(self._lags.items()):
            scrape.set("tidelog_replication_follower_lag_records", lag, str(broker_id))
        scrape.set("tidelog_producers_known", self._producers)
