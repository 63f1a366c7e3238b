"""`tidelog broker list`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import table

if TYPE_CHECKING:
    from tidelog.client.types.admin import BrokerStatus

DESCRIPTION: Final = (
    "List the registered brokers as the controller knows them: address, rack, state, how many "
    "replicas each leads and holds, when the controller heard of it, its release. A broker that "
    "is being emptied is `draining`."
)
EXAMPLES: Final = (
    ("tidelog broker list", "who is there, who is fenced"),
    ("tidelog broker list --json", "for programs"),
)
_HEAD: Final = (
    "Broker",
    "Address",
    "Rack",
    "Host",
    "State",
    "Leads",
    "Replicas",
    "LastContact",
    "Release",
)


def configure(parser: Parser) -> None:
    """Form and address."""
    add_json(
        parser,
        "a list of {broker_id, broker_epoch, address, rack, host, is_fenced, is_draining, "
        "is_shutting_down, leader_count, replica_count, last_contact_ms, release, clock_state, "
        "clock_skew_ms, clock_wall_ms}; "
        "last_contact_ms -1: not since the controller was elected",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    with admin_client(arguments) as admin:
        brokers = admin.list_brokers()
    if arguments.json:
        print_json(brokers)
    else:
        print(as_text(brokers))
    return EXIT_OK


def as_text(brokers: "list[BrokerStatus]") -> str:
    """What a person reads."""
    rows = [
        (
            each.broker_id,
            each.address or "-",
            each.rack or "-",
            each.host or "-",
            state(each),
            each.leader_count,
            each.replica_count,
            "-" if each.last_contact_ms < 0 else f"{each.last_contact_ms} ms ago",
            each.release or "-",
        )
        for each in brokers
    ]
    return table(_HEAD, rows, right="Broker Leads Replicas")


def state(broker: "BrokerStatus") -> str:
    """All that is true of it."""
    words = ["fenced" if broker.is_fenced else "live"]
    if broker.is_draining:
        words.append("draining")
    if broker.is_shutting_down:
        words.append("stopping")
    return ",".join(words)
