"""`tidelog topic list`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import table

DESCRIPTION: Final = "List the topics in the order of their names."
EXAMPLES: Final = (
    ("tidelog topic list", "names, partitions, replication factors"),
    ("tidelog topic list -q", "names only, for scripts"),
)


def configure(parser: Parser) -> None:
    """What is listed, and how."""
    parser.add_argument("-q", "--quiet", action="store_true", help="names only, one a line")
    parser.add_argument(
        "--internal", action="store_true", help="with the topics that the cluster itself uses"
    )
    add_json(parser, "a list of {name, partition_count, replication_factor, is_internal}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    with admin_client(arguments) as admin:
        found = [
            topic
            for topic in admin.describe_topics()
            if arguments.internal or not topic.is_internal
        ]
    if arguments.json:
        print_json(
            [
                {
                    "name": topic.name,
                    "partition_count": len(topic.partitions),
                    "replication_factor": topic.replication_factor,
                    "is_internal": topic.is_internal,
                }
                for topic in found
            ]
        )
    elif arguments.quiet:
        print("".join(f"{topic.name}\n" for topic in found), end="")
    else:
        rows = [(each.name, len(each.partitions), each.replication_factor) for each in found]
        head = ("Topic", "Partitions", "ReplicationFactor")
        print(table(head, rows, right="Partitions ReplicationFactor"))
    return EXIT_OK
