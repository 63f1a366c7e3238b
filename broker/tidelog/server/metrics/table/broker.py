"""Metrics of a broker: its registration, its directories, its replicas and who follows them."""

from collections.abc import Mapping
from typing import Final

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.server.metrics.seen import (
    of_broker,
    of_broker_with_logs,
    of_directories,
    of_directory_sums,
    of_disks,
    of_each_replica,
    of_open_directories,
    of_owners,
    of_registration,
    of_replicas,
    of_roles,
)
from tidelog.server.metrics.table.metric import Rows, counter, gauge, histogram
from tidelog.server.roles.broker import BrokerRole

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


def _housekeeping(directory: LogDirectory) -> dict[str, float]:
    counts = directory.keeper.describe().counts
    return {work: counts[work] for work in _WORKS}


def _by_broker(lags: Mapping[int, int]) -> dict[str, float]:
    return {str(broker_id): lag for broker_id, lag in lags.items()}


def _copied_bytes(broker: BrokerRole) -> dict[str, float]:
    copied = broker.replication.fetchers.copied_bytes
    return {lane.name.lower(): size_bytes for lane, size_bytes in copied.items()}


def _troubled_lanes(broker: BrokerRole) -> int:
    return sum(lane.trouble is not None for lane in broker.replication.fetchers.describe())


BROKER: Final[Rows] = {
    "tidelog_broker_is_fenced": gauge(
        "1: it leads nothing, and is given nothing.",
        of_registration(lambda broker: broker.is_fenced),
    ),
    "tidelog_broker_epoch": gauge(
        "Grows with each start of its process; -1: not registered.",
        of_registration(lambda broker: broker.epoch),
    ),
    "tidelog_broker_fencings": counter(
        "How often it was fenced after it had served.", of_roles(lambda roles: roles.fencings)
    ),
    "tidelog_broker_clock_trusted": gauge(
        "1: the node's clock is one to delete by; 0: nothing is deleted by time here.",
        of_broker(lambda broker: broker.time.may_expire),
    ),
    "tidelog_broker_clock_skew_seconds": gauge(
        "How far the node's clock is ahead of the time that it believes.",
        of_broker(lambda broker: broker.time.skew_ms / 1_000),
    ),
}
LOGS: Final[Rows] = {
    "tidelog_log_partitions": gauge(
        "Replicas in the directory.", of_directory_sums(lambda sums: sums.partitions), "directory"
    ),
    "tidelog_log_failed_partitions": gauge(
        "Of these, stopped.", of_directory_sums(lambda sums: sums.failed), "directory"
    ),
    "tidelog_log_directory_failed": gauge(
        "1: the directory has stopped.",
        of_directories(lambda directory: directory.failure is not None),
        "directory",
    ),
    "tidelog_log_size_bytes": gauge(
        "Bytes of all segments.", of_directory_sums(lambda sums: sums.size_bytes), "directory"
    ),
    "tidelog_log_segments": gauge(
        "Segments.", of_directory_sums(lambda sums: sums.segments), "directory"
    ),
    "tidelog_log_free_bytes": gauge(
        "Room on the file system; -1: not known.",
        of_open_directories(lambda directory: directory.keeper.describe().free_bytes),
        "directory",
    ),
    "tidelog_log_is_full": gauge(
        "1: below `housekeeping.free_bytes_min`, appends are refused.",
        of_open_directories(lambda directory: directory.keeper.describe().is_full),
        "directory",
    ),
    "tidelog_log_housekeeping": counter(
        "What housekeeping has done, by the kind of work: trims, seals, compactions, scrubs, "
        "failed jobs, and bytes of them.",
        of_open_directories(_housekeeping),
        "directory",
        "work",
    ),
    "tidelog_disk_open_files": gauge(
        "Files that are open.", of_disks(lambda disk: disk.open_files), "directory"
    ),
    "tidelog_disk_flush_seconds": histogram(
        "Flush rounds; of the quorum's directory as well.",
        of_disks(lambda disk: disk.flushes),
        "directory",
    ),
    "tidelog_disk_failed_flushes": counter(
        "Flush rounds that failed.", of_disks(lambda disk: disk.failed_flushes), "directory"
    ),
}
REPLICATION: Final[Rows] = {
    "tidelog_replication_leaders": gauge(
        "Partitions that it leads.", of_replicas(lambda replicas: replicas.leaders)
    ),
    "tidelog_replication_replicas": gauge(
        "Partitions that it has a replica of.", of_replicas(lambda replicas: replicas.replicas)
    ),
    "tidelog_replication_under_replicated_partitions": gauge(
        "Of those it leads, with fewer replicas in sync than they have.",
        of_replicas(lambda replicas: replicas.under_replicated),
    ),
    "tidelog_replication_under_min_isr_partitions": gauge(
        "Of those it leads, with fewer in sync than `min.insync.replicas`.",
        of_replicas(lambda replicas: replicas.under_min_isr),
    ),
    "tidelog_replication_in_sync_shrinks": counter(
        "Replicas that left the in-sync set of a partition that it leads.",
        of_roles(lambda roles: roles.in_sync_shrinks),
    ),
    "tidelog_replication_in_sync_expands": counter(
        "Replicas that joined one.", of_roles(lambda roles: roles.in_sync_expands)
    ),
    "tidelog_replication_leaderships_begun": counter(
        "Partitions that it came to lead.", of_roles(lambda roles: roles.leaderships_begun)
    ),
    "tidelog_replication_leaderships_ended": counter(
        "Partitions that it ceased to lead.", of_roles(lambda roles: roles.leaderships_ended)
    ),
    "tidelog_replication_follower_lag_records_max": gauge(
        "Records that the furthest follower lacks, of all partitions that it leads.",
        of_replicas(lambda replicas: replicas.lag_max),
    ),
    "tidelog_replication_follower_lag_records": gauge(
        "Records that followers lack, over all partitions that it leads.",
        of_replicas(lambda replicas: _by_broker(dict(sorted(replicas.lags.items())))),
        "broker",
    ),
    "tidelog_replication_copied_bytes": counter(
        "Bytes copied from leaders, by lane: `live`, or `catch_up` of what is far behind.",
        of_broker_with_logs(_copied_bytes),
        "lane",
    ),
    "tidelog_replication_troubled_lanes": gauge(
        "Ties to a leader that do not come to be at the moment.",
        of_broker_with_logs(_troubled_lanes),
    ),
    "tidelog_replication_truncations": counter(
        "Tails cut off because a leader's log goes on differently, and logs begun anew.",
        of_owners(lambda directory: directory.owner.cut_count),
    ),
    "tidelog_replication_repairs": counter(
        "Damaged replicas that were begun anew.",
        of_broker_with_logs(lambda broker: broker.replication.repair.repaired_count),
    ),
}
EACH_REPLICA: Final[Rows] = {
    "tidelog_partition_is_leader": gauge(
        "1: it is led here.", of_each_replica(lambda replica: replica.is_led), "topic", "partition"
    ),
    "tidelog_partition_log_start_offset": gauge(
        "First offset.",
        of_each_replica(lambda replica: replica.log_start_offset),
        "topic",
        "partition",
    ),
    "tidelog_partition_high_watermark": gauge(
        "Offset behind the last committed record.",
        of_each_replica(lambda replica: replica.high_watermark),
        "topic",
        "partition",
    ),
    "tidelog_partition_log_end_offset": gauge(
        "Offset behind the last record.",
        of_each_replica(lambda replica: replica.log_end_offset),
        "topic",
        "partition",
    ),
    "tidelog_partition_size_bytes": gauge(
        "Bytes on this disk.",
        of_each_replica(lambda replica: replica.size_bytes),
        "topic",
        "partition",
    ),
    "tidelog_partition_follower_lag_records": gauge(
        "Records that a follower lacks, as its leader knows.",
        of_each_replica(lambda replica: _by_broker(replica.lags)),
        "topic",
        "partition",
        "broker",
    ),
}
