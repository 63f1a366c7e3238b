"""Every metric that a node exports: name, kind, labels, meaning. docs/metrics.md is made from it.

Owns the names, which stay. What a metric counts is gathered elsewhere; a value under a name that is
not here is a bug, and so is a name here that no node ever gives.
"""

import enum
from typing import Final

import msgspec


class Kind(enum.Enum):
    """What a number means over time."""

    COUNTER = "counter"
    """Since the start of the process; it never falls."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"
    """Always 1: the labels tell."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One name. A counter is written with `_total` behind it, an info with `_info`."""

    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


def _counter(meaning: str, *labels: str) -> Metric:
    return Metric(kind=Kind.COUNTER, meaning=meaning, labels=labels)


def _gauge(meaning: str, *labels: str) -> Metric:
    return Metric(kind=Kind.GAUGE, meaning=meaning, labels=labels)


def _histogram(meaning: str, *labels: str) -> Metric:
    return Metric(kind=Kind.HISTOGRAM, meaning=meaning, labels=labels)


SECTIONS: Final[dict[str, dict[str, Metric]]] = {
    "Node": {
        "tidelog_node": Metric(
            kind=Kind.INFO,
            meaning="Which node of which cluster answers.",
            labels=("cluster_id", "node_id", "roles", "release"),
        ),
        "tidelog_node_ready": _gauge("1: it serves what its roles promise; 0: it starts or stops."),
        "tidelog_node_metadata_index": _gauge("The last entry of the metadata that it shows."),
        "tidelog_node_controller_known": _gauge("1: it knows an active controller."),
        "tidelog_node_loop_stalls": _counter(
            "How often the loop was held up for longer than `stall_log_ms`."
        ),
        "tidelog_node_loop_stall_seconds": _counter("For how long, together."),
        "tidelog_node_scrape_seconds": _gauge("How long it took to gather the scrape before."),
    },
    "Metadata quorum (members of it)": {
        "tidelog_quorum_is_leader": _gauge("1: it leads the quorum."),
        "tidelog_quorum_has_leader": _gauge("1: it knows a leader."),
        "tidelog_quorum_term": _gauge("The term."),
        "tidelog_quorum_last_index": _gauge("Its last entry."),
        "tidelog_quorum_commit_index": _gauge("The last entry that it knows to be committed."),
        "tidelog_quorum_applied_index": _gauge("The last entry that it has applied."),
        "tidelog_quorum_applied_lag_entries": _gauge("Committed and not applied yet."),
        "tidelog_quorum_log_start_index": _gauge("Its first entry; what is before is a snapshot."),
        "tidelog_quorum_leader_changes": _counter("Leaders that it saw begin."),
        "tidelog_quorum_elections_won": _counter("How often it became the leader itself."),
        "tidelog_quorum_is_repairing": _gauge(
            "1: it lost entries that it had acknowledged, and does not vote until it has them."
        ),
        "tidelog_quorum_members": _gauge(
            "Voters, learners, and nodes that read along from it.", "role"
        ),
    },
    "Controller (the active one; elsewhere only the first)": {
        "tidelog_controller_is_active": _gauge("1: it decides about the metadata now."),
        "tidelog_controller_brokers": _gauge("Registered brokers.", "state"),
        "tidelog_controller_topics": _gauge("Topics."),
        "tidelog_controller_partitions": _gauge("Partitions of all topics."),
        "tidelog_controller_offline_partitions": _gauge("Partitions that nobody leads."),
        "tidelog_controller_under_replicated_partitions": _gauge(
            "Partitions with fewer replicas in sync than they have."
        ),
        "tidelog_controller_under_min_isr_partitions": _gauge(
            "Partitions with fewer replicas in sync than `min.insync.replicas`: `acks=all` is "
            "refused."
        ),
        "tidelog_controller_preferred_leader_imbalance": _gauge(
            "Partitions that another replica leads than the first of them."
        ),
        "tidelog_controller_reassigning_partitions": _gauge("Partitions that are being moved."),
    },
    "Requests": {
        "tidelog_requests": _counter(
            "Requests answered, by what became of the call as a whole; of a produce stream each "
            "request in it, by its first refusal.",
            "listener",
            "method",
            "code",
        ),
        "tidelog_request_duration_seconds": _histogram(
            "How long they took; of a long poll with what it asked to wait.", "listener", "method"
        ),
        "tidelog_requests_in_flight": _gauge("Calls and streams open.", "listener", "method"),
        "tidelog_request_bytes": _counter("Bytes of messages that came.", "listener", "method"),
        "tidelog_response_bytes": _counter("Bytes of messages that went.", "listener", "method"),
        "tidelog_slow_requests": _counter(
            "Requests above `slow_request_ms`.", "listener", "method"
        ),
        "tidelog_listener_connections": _gauge(
            "Connections with a call or stream in progress.", "listener"
        ),
    },
    "Limits": {
        "tidelog_listener_request_memory_bytes": _gauge(
            "Messages whose handlers are at work.", "listener"
        ),
        "tidelog_listener_answer_memory_bytes": _gauge(
            "Large answers that callers have not taken yet.", "listener"
        ),
        "tidelog_listener_refusals": _counter(
            "Calls refused before they began, or answers not kept, by the limit of the listener.",
            "listener",
            "limit",
        ),
        "tidelog_quota_delays": _counter("Requests and answers held back by a quota."),
        "tidelog_quota_refusals": _counter("Calls refused: too many of one client id waited."),
        "tidelog_produce_queued_bytes": _gauge(
            "Batches between arrival and their log; `produce.queued_bytes_max` bounds it.",
            "directory",
        ),
    },
    "Records in and out": {
        "tidelog_produce_batches": _counter("Batches taken: checked and queued."),
        "tidelog_produce_records": _counter("Records in them."),
        "tidelog_produce_bytes": _counter("Their bytes, as they are stored."),
        "tidelog_produce_refusals": _counter(
            "Batches that were refused, or of which the outcome is unknown, by the code told: "
            "`FENCED_PRODUCER_EPOCH`, `NOT_ENOUGH_IN_SYNC_REPLICAS`, `RESOURCE_EXHAUSTED`, …",
            "code",
        ),
        "tidelog_fetch_bytes": _counter("Bytes of batches read by clients."),
        "tidelog_fetch_refusals": _counter(
            "Partitions of fetches answered with an error, by its code.", "code"
        ),
        "tidelog_producers_known": _gauge(
            "Idempotent producers that the replicas here know, one for each partition it writes."
        ),
        "tidelog_producer_duplicates": _counter(
            "Batches that were sent again and answered as the first time."
        ),
    },
    "Broker": {
        "tidelog_broker_is_fenced": _gauge("1: it leads nothing, and is given nothing."),
        "tidelog_broker_epoch": _gauge("Grows with each start of its process; -1: not registered."),
        "tidelog_broker_fencings": _counter("How often it was fenced after it had served."),
        "tidelog_broker_clock_trusted": _gauge(
            "1: the node's clock is one to delete by; 0: nothing is deleted by time here."
        ),
        "tidelog_broker_clock_skew_seconds": _gauge(
            "How far the node's clock is ahead of the time that it believes."
        ),
    },
    "Partition logs": {
        "tidelog_log_partitions": _gauge("Replicas in the directory.", "directory"),
        "tidelog_log_failed_partitions": _gauge("Of these, stopped.", "directory"),
        "tidelog_log_directory_failed": _gauge("1: the directory has stopped.", "directory"),
        "tidelog_log_size_bytes": _gauge("Bytes of all segments.", "directory"),
        "tidelog_log_segments": _gauge("Segments.", "directory"),
        "tidelog_log_free_bytes": _gauge("Room on the file system; -1: not known.", "directory"),
        "tidelog_log_is_full": _gauge(
            "1: below `housekeeping.free_bytes_min`, appends are refused.", "directory"
        ),
        "tidelog_log_housekeeping": _counter(
            "What housekeeping has done, by the kind of work: trims, seals, compactions, scrubs, "
            "failed jobs, and bytes of them.",
            "directory",
            "work",
        ),
        "tidelog_disk_open_files": _gauge("Files that are open.", "directory"),
        "tidelog_disk_flush_seconds": _histogram(
            "Flush rounds; of the quorum's directory as well.", "directory"
        ),
        "tidelog_disk_failed_flushes": _counter("Flush rounds that failed.", "directory"),
    },
    "Replication": {
        "tidelog_replication_leaders": _gauge("Partitions that it leads."),
        "tidelog_replication_replicas": _gauge("Partitions that it has a replica of."),
        "tidelog_replication_under_replicated_partitions": _gauge(
            "Of those it leads, with fewer replicas in sync than they have."
        ),
        "tidelog_replication_under_min_isr_partitions": _gauge(
            "Of those it leads, with fewer in sync than `min.insync.replicas`."
        ),
        "tidelog_replication_in_sync_shrinks": _counter(
            "Replicas that left the in-sync set of a partition that it leads."
        ),
        "tidelog_replication_in_sync_expands": _counter("Replicas that joined one."),
        "tidelog_replication_leaderships_begun": _counter("Partitions that it came to lead."),
        "tidelog_replication_leaderships_ended": _counter("Partitions that it ceased to lead."),
        "tidelog_replication_follower_lag_records_max": _gauge(
            "Records that the furthest follower lacks, of all partitions that it leads."
        ),
        "tidelog_replication_follower_lag_records": _gauge(
            "Records that followers lack, over all partitions that it leads.", "broker"
        ),
        "tidelog_replication_copied_bytes": _counter(
            "Bytes copied from leaders, by lane: `live`, or `catch_up` of what is far behind.",
            "lane",
        ),
        "tidelog_replication_troubled_lanes": _gauge(
            "Ties to a leader that do not come to be at the moment."
        ),
        "tidelog_replication_truncations": _counter(
            "Tails cut off because a leader's log goes on differently, and logs begun anew."
        ),
        "tidelog_replication_repairs": _counter("Damaged replicas that were begun anew."),
    },
    "Consumer groups (of those that it coordinates)": {
        "tidelog_group_coordinators": _gauge(
            "Partitions of `__groups` that it leads; `loading`: what is stored is being read, and "
            "nobody is answered.",
            "state",
        ),
        "tidelog_groups": _gauge("Groups.", "state"),
        "tidelog_group_members": _gauge("Members of them."),
        "tidelog_group_heartbeats": _counter("Heartbeats that came to it."),
        "tidelog_group_rebalances": _counter("Assignments that it has computed."),
        "tidelog_group_departures": _counter(
            "Members that are members no more, by the reason.", "reason"
        ),
        "tidelog_group_commits": _counter("Offsets that members and others have committed."),
        "tidelog_group_commit_refusals": _counter(
            "Offsets that were not stored, by the code told.", "code"
        ),
        "tidelog_group_lag_records": _gauge(
            "Records that are committed by producers and not read by the group, over all of its "
            "partitions; looked at every 5 seconds. Of the 1,000 groups that lag most.",
            "group",
        ),
        "tidelog_group_partition_lag_records": _gauge(
            "The same of one partition. Of the 5,000 that lag most.", "group", "topic", "partition"
        ),
        "tidelog_group_lag_left_out": _gauge(
            "Groups and partitions of groups whose lag has no line of its own."
        ),
    },
    "Each replica (with `metrics.per_partition`)": {
        "tidelog_partition_is_leader": _gauge("1: it is led here.", "topic", "partition"),
        "tidelog_partition_log_start_offset": _gauge("First offset.", "topic", "partition"),
        "tidelog_partition_high_watermark": _gauge(
            "Offset behind the last committed record.", "topic", "partition"
        ),
        "tidelog_partition_log_end_offset": _gauge(
            "Offset behind the last record.", "topic", "partition"
        ),
        "tidelog_partition_size_bytes": _gauge("Bytes on this disk.", "topic", "partition"),
        "tidelog_partition_follower_lag_records": _gauge(
            "Records that a follower lacks, as its leader knows.", "topic", "partition", "broker"
        ),
    },
}

METRICS: Final[dict[str, Metric]] = {
    name: metric for section in SECTIONS.values() for name, metric in section.items()
}
PROCESS_PREFIXES: Final = ("process_", "python_")
"""Names that `prometheus_client` gives for every Python process."""


def written_name(name: str) -> str:
    """As it stands in the text."""
    kind = METRICS[name].kind
    suffix = {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(kind, "")
    return name + suffix
