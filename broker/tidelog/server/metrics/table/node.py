"""Metrics of any node, of a member of the quorum, and of the active controller."""

from typing import Final

from tidelog.server.metrics.seen import (
    Labels,
    Seen,
    of_cluster,
    of_node,
    of_quorum,
    of_quorum_watch,
)
from tidelog.server.metrics.table.metric import Rows, counter, gauge, info, of_labels
from tidelog.server.roles.broker import RELEASE


def _named(seen: Seen) -> Labels:
    node = seen.described
    return seen.sources.cluster_id, str(node.node_id), ",".join(node.roles), RELEASE


def _knows_controller(seen: Seen) -> bool:
    side = seen.sources.side
    return side is not None and side.controller.leader() is not None


NODE: Final[Rows] = {
    "tidelog_node": info(
        "Which node of which cluster answers.",
        of_labels(_named),
        "cluster_id",
        "node_id",
        "roles",
        "release",
    ),
    "tidelog_node_ready": gauge(
        "1: it serves what its roles promise; 0: it starts or stops.",
        of_node(lambda seen: seen.sources.health.is_serving),
    ),
    "tidelog_node_metadata_index": gauge(
        "The last entry of the metadata that it shows.",
        of_node(lambda seen: seen.described.metadata_version),
    ),
    "tidelog_node_controller_known": gauge(
        "1: it knows an active controller.", of_node(_knows_controller)
    ),
    "tidelog_node_loop_stalls": counter(
        "How often the loop was held up for longer than `stall_log_ms`.",
        of_node(lambda seen: seen.sources.watched.stalls),
    ),
    "tidelog_node_loop_stall_seconds": counter(
        "For how long, together.", of_node(lambda seen: seen.sources.watched.stalled_ms / 1000)
    ),
    "tidelog_node_scrape_seconds": gauge(
        "How long it took to gather the scrape before.",
        of_node(lambda seen: seen.last_scrape_seconds),
    ),
}
QUORUM: Final[Rows] = {
    "tidelog_quorum_is_leader": gauge(
        "1: it leads the quorum.", of_quorum(lambda quorum: quorum.role == "leader")
    ),
    "tidelog_quorum_has_leader": gauge(
        "1: it knows a leader.", of_quorum(lambda quorum: quorum.leader_id >= 0)
    ),
    "tidelog_quorum_term": gauge("The term.", of_quorum(lambda quorum: quorum.term)),
    "tidelog_quorum_last_index": gauge(
        "Its last entry.", of_quorum(lambda quorum: quorum.last_index)
    ),
    "tidelog_quorum_commit_index": gauge(
        "The last entry that it knows to be committed.",
        of_quorum(lambda quorum: quorum.commit_index),
    ),
    "tidelog_quorum_applied_index": gauge(
        "The last entry that it has applied.", of_quorum(lambda quorum: quorum.applied_index)
    ),
    "tidelog_quorum_applied_lag_entries": gauge(
        "Committed and not applied yet.", of_quorum(lambda quorum: quorum.lag)
    ),
    "tidelog_quorum_log_start_index": gauge(
        "Its first entry; what is before is a snapshot.",
        of_quorum(lambda quorum: quorum.log_start_index),
    ),
    "tidelog_quorum_leader_changes": counter(
        "Leaders that it saw begin.", of_quorum_watch(lambda watch: watch.leader_changes)
    ),
    "tidelog_quorum_elections_won": counter(
        "How often it became the leader itself.", of_quorum_watch(lambda watch: watch.elections_won)
    ),
    "tidelog_quorum_is_repairing": gauge(
        "1: it lost entries that it had acknowledged, and does not vote until it has them.",
        of_quorum(lambda quorum: quorum.is_repairing),
    ),
    "tidelog_quorum_members": gauge(
        "Voters, learners, and nodes that read along from it.",
        of_quorum(
            lambda quorum: {
                "voter": quorum.voters,
                "learner": quorum.learners,
                "observer": quorum.observers,
            }
        ),
        "role",
    ),
}
CONTROLLER: Final[Rows] = {
    "tidelog_controller_is_active": gauge(
        "1: it decides about the metadata now.",
        of_quorum(lambda quorum: quorum.is_active_controller),
    ),
    "tidelog_controller_brokers": gauge(
        "Registered brokers.",
        of_cluster(
            lambda cluster: {
                "fenced": cluster.fenced,
                "unfenced": len(cluster.image.brokers) - cluster.fenced,
            }
        ),
        "state",
    ),
    "tidelog_controller_topics": gauge(
        "Topics.", of_cluster(lambda cluster: len(cluster.image.topics))
    ),
    "tidelog_controller_partitions": gauge(
        "Partitions of all topics.", of_cluster(lambda cluster: cluster.partitions.partitions)
    ),
    "tidelog_controller_offline_partitions": gauge(
        "Partitions that nobody leads.", of_cluster(lambda cluster: cluster.partitions.offline)
    ),
    "tidelog_controller_under_replicated_partitions": gauge(
        "Partitions with fewer replicas in sync than they have.",
        of_cluster(lambda cluster: cluster.partitions.under_replicated),
    ),
    "tidelog_controller_under_min_isr_partitions": gauge(
        "Partitions with fewer replicas in sync than `min.insync.replicas`: `acks=all` is refused.",
        of_cluster(lambda cluster: cluster.partitions.under_min_isr),
    ),
    "tidelog_controller_preferred_leader_imbalance": gauge(
        "Partitions that another replica leads than the first of them.",
        of_cluster(lambda cluster: cluster.partitions.not_preferred),
    ),
    "tidelog_controller_reassigning_partitions": gauge(
        "Partitions that are being moved.",
        of_cluster(lambda cluster: cluster.partitions.reassigning),
    ),
}
