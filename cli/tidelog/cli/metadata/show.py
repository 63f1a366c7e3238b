"""`tidelog metadata show`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = (
    "Show what the cluster's metadata holds at a place, as JSON. From the copy of the broker that "
    "answers. For people: its form may change from release to release."
)
EXAMPLES: Final = (
    ("tidelog metadata show /topics/orders", "all of a topic"),
    ("tidelog metadata show /brokers/1", "a registered broker"),
)


def configure(parser: Parser) -> None:
    """What."""
    parser.add_argument("path", metavar="PATH", help="as `tidelog metadata ls` lists them")
    add_json(parser, "{path, applied_index, value}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    with admin_client(arguments) as admin:
        found = admin.describe_metadata(arguments.path)
    import msgspec

    value = msgspec.json.decode(found.json)
    if arguments.json:
        told = {"path": arguments.path, "applied_index": found.applied_index, "value": value}
        print_json(told)
    else:
        print_json(value)
    return EXIT_OK
