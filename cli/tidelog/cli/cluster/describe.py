"""`tidelog cluster describe`."""

import argparse
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json, stale_text
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.clock_text import clock_text
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import count, known, size, table

if TYPE_CHECKING:
    from tidelog.client.types.admin import BrokerStatus
    from tidelog.client.types.directories import BrokerLogDirs
    from tidelog.client.types.records import ClusterDescription

DESCRIPTION: Final = (
    "Describe the cluster as the broker that answers sees it: its id, its controller, its "
    "release, how many partitions need a look, and each broker with how many replicas it leads "
    "and holds, the bytes of those, its data directories that have stopped, and whether its clock "
    "is right: a broker whose clock is not deletes nothing by time. `-`: the broker could not be "
    "asked. Without a controller the second line says since when, and a broker that has not "
    "answered is `not reached`. What the controller knows of each broker: `tidelog broker list`."
)
EXAMPLES: Final = (
    ("tidelog cluster describe", "the cluster at the default address"),
    ("tidelog cluster describe -b node1:9192,node2:9192 --json", "for programs"),
)
_HEAD: Final = (
    "Broker",
    "Address",
    "Rack",
    "State",
    "Leads",
    "Replicas",
    "Size",
    "Directories",
    "Clock",
)


def configure(parser: Parser) -> None:
    """Form and address."""
    add_json(
        parser,
        "{cluster_id, controller_id, release, brokers: [{broker_id, address, rack, is_fenced, "
        "leader_count, replica_count, size_bytes, directory_count, failed_directory_count, "
        "clock_state, clock_skew_ms}], "
        "partitions: {topic_count, partition_count, offline_count, under_replicated_count, "
        "under_min_isr_count, not_preferred_count, reassigning_count}, without_controller_ms}; "
        "-1: not known; without_controller_ms: how old all this is where nobody decides, else 0; "
        "clock_state: right, off, no_majority, alone, held, unknown",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    from tidelog.wire.errors import TidelogError

    with admin_client(arguments) as admin:
        cluster = admin.describe_cluster()
        try:
            found = admin.describe_log_dirs()
        except TidelogError:
            # An older broker, or one that is busy: the rest is worth showing.
            found = []
        clocks: dict[int, BrokerStatus] = {}
        if not cluster.without_controller_ms:
            # Nobody else compares clocks.
            with contextlib.suppress(TidelogError):
                clocks = {each.broker_id: each for each in admin.list_brokers()}
    directories = {each.broker_id: each for each in found if each.failure is None}
    if arguments.json:
        print_json(as_json(cluster, directories, clocks))
    else:
        print(as_text(cluster, directories, clocks))
    return EXIT_OK


def as_text(
    cluster: "ClusterDescription",
    directories: "Mapping[int, BrokerLogDirs] | None" = None,
    clocks: "Mapping[int, BrokerStatus] | None" = None,
) -> str:
    """What a person reads."""
    rows = []
    stale = stale_text(cluster)
    for each in cluster.brokers:
        size_bytes, total, failed = _figures((directories or {}).get(each.broker_id))
        state = "fenced" if each.is_fenced else "live"
        if stale and total < 0 and not each.is_fenced:
            # Nobody tells of its death, and it has said nothing itself.
            state = "not reached"
        told = "-" if total < 0 else f"{total}, {failed} failed" if failed else str(total)
        rows.append(
            (
                each.broker_id,
                each.address,
                each.rack or "-",
                state,
                each.leader_count,
                each.replica_count,
                size(size_bytes),
                told,
                clock_text((clocks or {}).get(each.broker_id)),
            )
        )
    lines = table(_HEAD, rows, right="Broker Leads Replicas Size").splitlines()
    head = (
        f"ClusterId: {cluster.cluster_id}  Controller: {known(cluster.controller_id)}  "
        f"Release: {cluster.release}"
    )
    told_first = [head, stale] if stale else [head]
    return "\n".join([*told_first, partitions_text(cluster), *(f"  {line}" for line in lines)])


def partitions_text(cluster: "ClusterDescription") -> str:
    """How many partitions, and those that need a look."""
    counts = cluster.partitions
    parts = [
        f"{count(counts.topic_count, 'topic')}, {count(counts.partition_count, 'partition')}",
        *(
            f"{number} {what}"
            for number, what in (
                (counts.offline_count, "without a leader"),
                (counts.under_replicated_count, "under-replicated"),
                (counts.under_min_isr_count, "under min.insync.replicas"),
                (counts.not_preferred_count, "not led by the preferred replica"),
                (counts.reassigning_count, "being moved"),
            )
            if number
        ),
    ]
    return f"Partitions: {'; '.join(parts)}"


def _figures(found: "BrokerLogDirs | None") -> tuple[int, int, int]:
    """Bytes, directories, and how many of them have stopped; -1: not known."""
    if found is None:
        return -1, -1, -1
    failed = sum(each.failure is not None for each in found.directories)
    return sum(each.size_bytes for each in found.directories), len(found.directories), failed


def as_json(
    cluster: "ClusterDescription",
    directories: "Mapping[int, BrokerLogDirs] | None" = None,
    clocks: "Mapping[int, BrokerStatus] | None" = None,
) -> dict[str, object]:
    """What a program reads; the names stay."""
    import msgspec

    brokers = []
    for each in cluster.brokers:
        size_bytes, total, failed = _figures((directories or {}).get(each.broker_id))
        clock = (clocks or {}).get(each.broker_id)
        brokers.append(
            {
                "broker_id": each.broker_id,
                "address": each.address,
                "rack": each.rack,
                "is_fenced": each.is_fenced,
                "leader_count": each.leader_count,
                "replica_count": each.replica_count,
                "size_bytes": size_bytes,
                "directory_count": total,
                "failed_directory_count": failed,
                "clock_state": "unknown" if clock is None else clock.clock_state,
                "clock_skew_ms": 0 if clock is None else clock.clock_skew_ms,
            }
        )
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "release": cluster.release,
        "brokers": brokers,
        "partitions": msgspec.structs.asdict(cluster.partitions),
        "without_controller_ms": cluster.without_controller_ms,
    }
