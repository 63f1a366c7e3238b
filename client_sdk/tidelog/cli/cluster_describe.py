"""`tidelog cluster describe`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.admin import admin_client, print_json
from tidelog.cli.errors import EXIT_OK
from tidelog.cli.parser import Parser, add_bootstrap, add_json
from tidelog.cli.table import known, table

if TYPE_CHECKING:
    from tidelog.client.types import ClusterDescription

DESCRIPTION: Final = (
    "Describe the cluster as the broker that answers sees it: its id, its controller, its "
    "release, and each broker with how many replicas it leads and holds."
)
EXAMPLES: Final = (
    ("tidelog cluster describe", "the cluster at the default address"),
    ("tidelog cluster describe -b node1:9192,node2:9192 --json", "for programs"),
)
_HEAD: Final = ("Broker", "Address", "Rack", "State", "Leads", "Replicas")


def configure(parser: Parser) -> None:
    """Form and address."""
    add_json(
        parser,
        "{cluster_id, controller_id, release, brokers: [{broker_id, address, rack, is_fenced, "
        "leader_count, replica_count}]}; -1: not known",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    with admin_client(arguments) as admin:
        cluster = admin.describe_cluster()
    if arguments.json:
        print_json(as_json(cluster))
    else:
        print(as_text(cluster))
    return EXIT_OK


def as_text(cluster: "ClusterDescription") -> str:
    """What a person reads."""
    rows = [
        (
            each.broker_id,
            each.address,
            each.rack or "-",
            "fenced" if each.is_fenced else "live",
            each.leader_count,
            each.replica_count,
        )
        for each in cluster.brokers
    ]
    lines = table(_HEAD, rows, right="Broker Leads Replicas").splitlines()
    head = (
        f"ClusterId: {cluster.cluster_id}  Controller: {known(cluster.controller_id)}  "
        f"Release: {cluster.release}"
    )
    return "\n".join([head, *(f"  {line}" for line in lines)])


def as_json(cluster: "ClusterDescription") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "release": cluster.release,
        "brokers": [
            {
                "broker_id": each.broker_id,
                "address": each.address,
                "rack": each.rack,
                "is_fenced": each.is_fenced,
                "leader_count": each.leader_count,
                "replica_count": each.replica_count,
            }
            for each in cluster.brokers
        ],
    }
