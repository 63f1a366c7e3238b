"""`tidelog partition elect-leaders`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.partition.arguments import shown, topic_partition
from tidelog.cli.quorum.arguments import node_id
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK, BadInput
from tidelog.cli.show.table import known, table

COMMAND: Final = "tidelog partition elect-leaders"
DESCRIPTION: Final = (
    "Elect leaders of partitions: the preferred ones, which are the first of their replicas. "
    "With --unclean, for partitions that nobody leads: a replica that may lack acknowledged "
    "records, which are lost; that is a dry run unless --execute is given."
)
EXAMPLES: Final = (
    (f"{COMMAND} --all", "the preferred leaders of all partitions"),
    (f"{COMMAND} orders:0 orders:3", "of two partitions"),
    (f"{COMMAND} orders:0 --unclean --broker 2 --execute", "records may be lost"),
)
_ANY: Final = -1


def configure(parser: Parser) -> None:
    """Which, and how."""
    parser.add_argument(
        "partitions", nargs="*", type=topic_partition, metavar="TOPIC:PARTITION", help="which"
    )
    parser.add_argument("--all", action="store_true", help="all partitions")
    parser.add_argument("--unclean", action="store_true", help="records may be lost")
    parser.add_argument(
        "--broker",
        type=node_id,
        metavar="BROKER_ID",
        help="with --unclean: who is to lead (default: who has the longest log)",
    )
    parser.add_argument("--execute", action="store_true", help="with --unclean: do it")
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(
        parser,
        "a list of {topic, partition, leader, error}; leader -1: none; error null: "
        "the leader is as asked for",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Elect, and print who leads."""
    _check(arguments)
    from tidelog.client import ElectionType

    kind = ElectionType.UNCLEAN if arguments.unclean else ElectionType.PREFERRED
    is_dry = arguments.dry_run or (arguments.unclean and not arguments.execute)
    with admin_client(arguments) as admin:
        outcomes = admin.elect_leaders(
            kind,
            None if arguments.all else arguments.partitions,
            broker_id=_ANY if arguments.broker is None else arguments.broker,
            validate_only=is_dry,
        )
    rows = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "leader": each.leader,
            "error": None if each.error is None else str(each.error.code.name),
        }
        for each in outcomes
    ]
    if arguments.json:
        print_json(rows)
    else:
        told = [
            (
                shown(each.partition),
                known(each.leader),
                "-" if each.error is None else f"{each.error.code.name}: {each.error.happened}",
            )
            for each in outcomes
        ]
        nothing = "every leader is as asked for"
        print(table(("Partition", "Leader", "Error"), told) if told else nothing)
        if is_dry:
            option = "" if arguments.dry_run else "; add --execute"
            print(f"nothing was done{option}")
    return EXIT_FAILED if any(each.error is not None for each in outcomes) else EXIT_OK


def _check(arguments: argparse.Namespace) -> None:
    if arguments.all == bool(arguments.partitions):
        why = "--all and partitions exclude each other" if arguments.all else "none is named"
        raise BadInput(COMMAND, why, "name partitions as TOPIC:PARTITION, or say --all")
    if arguments.unclean and arguments.all:
        raise BadInput(
            f"{COMMAND} --unclean --all",
            "what may lose records is done to named partitions only",
            "`tidelog topic describe` shows the partitions without a leader; name them",
        )
    if not arguments.unclean and (arguments.broker is not None or arguments.execute):
        option = "--execute" if arguments.execute else "--broker"
        raise BadInput(
            COMMAND,
            f"{option} goes with --unclean only",
            "a preferred leader is the first of the replicas, and nothing is lost by it",
        )
