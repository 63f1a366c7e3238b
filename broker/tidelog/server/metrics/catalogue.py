"""Every metric that a node exports, in one table; docs/metrics.md is made from it.

Owns the names, which stay, and their order. Each row says what it counts and where its values come
from; what a scrape has no row for is not exported.
"""

from typing import Final

from tidelog.server.metrics.table import broker, groups, node, requests, transactions
from tidelog.server.metrics.table.metric import Kind, Metric, Rows

SECTIONS: Final[dict[str, Rows]] = {
    "Node": node.NODE,
    "Metadata quorum (members of it)": node.QUORUM,
    "Controller (the active one; elsewhere only the first)": node.CONTROLLER,
    "Requests": requests.REQUESTS,
    "Limits": requests.LIMITS,
    "Records in and out": requests.RECORDS,
    "Broker": broker.BROKER,
    "Partition logs": broker.LOGS,
    "Replication": broker.REPLICATION,
    "Consumer groups (of those that it coordinates)": groups.GROUPS,
    "Transactions (of those that it coordinates)": transactions.TRANSACTIONS,
    "Transactions (in the partitions that it leads)": transactions.LED,
    "Each replica (with `metrics.per_partition`)": broker.EACH_REPLICA,
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
