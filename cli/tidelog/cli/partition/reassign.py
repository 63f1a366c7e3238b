"""`tidelog partition reassign`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.partition.arguments import move, shown, topic_partition
from tidelog.cli.partition.throttle import STAYS, add_throttle
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK, BadInput
from tidelog.cli.show.table import listed, table

if TYPE_CHECKING:
    from tidelog.client import TopicPartition

COMMAND: Final = "tidelog partition reassign"
DESCRIPTION: Final = (
    "Move the replicas of partitions to other brokers, in the order of preference, or call moves "
    "off. The command returns when the moves have begun; `tidelog partition list-reassignments` "
    "shows their progress."
)
EXAMPLES: Final = (
    (f"{COMMAND} orders:0=1,2,3 orders:1=2,3,1", "two partitions"),
    (f"{COMMAND} --cancel orders:0", "call a move off"),
)


def configure(parser: Parser) -> None:
    """What goes where."""
    parser.add_argument(
        "moves", nargs="*", type=move, metavar="TOPIC:PARTITION=IDS", help="broker ids with commas"
    )
    parser.add_argument(
        "--cancel",
        type=topic_partition,
        action="append",
        default=[],
        metavar="TOPIC:PARTITION",
        help="call this move off; may be repeated",
    )
    add_throttle(parser)
    parser.add_argument("--dry-run", action="store_true", help="check everything, move nothing")
    add_json(
        parser,
        "a list of {topic, partition, replicas, error}; error null: the move has "
        "begun, is called off, or nothing was to be done",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Begin, and say what became of each."""
    wanted: dict[TopicPartition, tuple[int, ...] | None] = {}
    for place, replicas in [*arguments.moves, *((place, None) for place in arguments.cancel)]:
        if place in wanted:
            raise BadInput(COMMAND, f"{shown(place)} is given twice", "leave one of them out")
        wanted[place] = replicas
    if not wanted:
        raise BadInput(COMMAND, "no move is given", f"for example `{EXAMPLES[0][0]}`")
    with admin_client(arguments) as admin:
        results = admin.alter_partition_reassignments(
            wanted,
            validate_only=arguments.dry_run,
            throttle_bytes_per_second=arguments.throttle,
        )
    if arguments.json:
        print_json(
            [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "replicas": list(wanted[place] or ()),
                    "error": None if error is None else error.code.name,
                }
                for place, error in results.items()
            ]
        )
    else:
        rows = [
            (
                shown(place),
                listed(wanted[place] or ()),
                "-" if error is None else f"{error.code.name}: {error.happened}",
            )
            for place, error in results.items()
        ]
        print(table(("Partition", "Replicas", "Error"), rows))
        if arguments.dry_run:
            print("nothing was done")
        elif arguments.throttle:
            print(STAYS)
    return EXIT_FAILED if any(error is not None for error in results.values()) else EXIT_OK
