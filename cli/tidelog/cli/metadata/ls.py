"""`tidelog metadata ls`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = (
    "List the names at a place in the cluster's metadata, as in a file system: a name that ends "
    "with `/` has names below it, `tidelog metadata show` prints any of them. From the copy of "
    "the broker that answers."
)
EXAMPLES: Final = (
    ("tidelog metadata ls", "the top"),
    ("tidelog metadata ls /topics/orders/partitions", "the partitions of a topic"),
)


def configure(parser: Parser) -> None:
    """Where."""
    parser.add_argument(
        "path", nargs="?", default="/", metavar="PATH", help="such as /topics/orders (default: /)"
    )
    add_json(parser, "{names, applied_index}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the names, one a line."""
    with admin_client(arguments) as admin:
        found = admin.list_metadata(arguments.path)
    if arguments.json:
        print_json(found)
    else:
        print("".join(f"{name}\n" for name in found.names), end="")
    return EXIT_OK
