"""`tidelog partition list-reassignments`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.partition.arguments import shown
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import listed, size, table

DESCRIPTION: Final = (
    "List the moves of replicas that are under way, with how much is left: what the leader stores "
    "less what the coming replicas store already. `-`: one of them could not be asked."
)
EXAMPLES: Final = (("tidelog partition list-reassignments", "what is moving"),)
_HEAD: Final = ("Partition", "Replicas", "Adding", "Removing", "Remaining")


def configure(parser: Parser) -> None:
    """Form and address."""
    add_json(
        parser,
        "a list of {topic, partition, replicas, adding_replicas, removing_replicas, "
        "remaining_bytes}; -1: not known",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    from tidelog.cli.show.reassignment_progress import remaining_bytes

    with admin_client(arguments) as admin:
        moves = admin.list_partition_reassignments()
        names = sorted({each.partition.topic for each in moves})
        left = remaining_bytes(moves, admin.describe_topics(names, with_replicas=True))
    if arguments.json:
        print_json(
            [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "replicas": list(each.replicas),
                    "adding_replicas": list(each.adding_replicas),
                    "removing_replicas": list(each.removing_replicas),
                    "remaining_bytes": left[each.partition],
                }
                for each in moves
            ]
        )
    elif moves:
        rows = [
            (
                shown(each.partition),
                listed(each.replicas),
                listed(each.adding_replicas),
                listed(each.removing_replicas),
                size(left[each.partition]),
            )
            for each in moves
        ]
        print(table(_HEAD, rows, right="Remaining"))
    else:
        print("no move is under way")
    return EXIT_OK
