"""`tidelog config get`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.config.targets import add_target, target
from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import table

if TYPE_CHECKING:
    from tidelog.client.types.admin import ConfigDescription

COMMAND: Final = "tidelog config get"
DESCRIPTION: Final = (
    "Show the settings that change while the cluster runs, with where each value comes from: "
    "the target itself, the broker, the cluster, the node's file (`node`), or nobody (`default`)."
)
EXAMPLES: Final = (
    (f"{COMMAND} --topic orders", "all settings of a topic"),
    (f"{COMMAND} --topic orders segment.bytes", "one of them"),
    (f"{COMMAND} --cluster", "what all brokers have in common"),
)


def configure(parser: Parser) -> None:
    """Whose, and which."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all settings")
    add_target(parser)
    parser.add_argument(
        "--changed", action="store_true", help="only what somebody has set in the running cluster"
    )
    add_json(parser, "a list of {name, value, source, is_read_only, is_secret, documentation}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    resource = target(arguments, COMMAND)
    with admin_client(arguments) as admin:
        (found,) = admin.describe_configs([resource], arguments.names)
    entries = [
        each
        for each in found.entries
        if not arguments.changed or each.source in ("target", "broker", "cluster")
    ]
    if arguments.json:
        print_json(entries)
    else:
        print(as_text(found, {each.name for each in entries}))
    return EXIT_OK


def as_text(found: "ConfigDescription", shown: set[str]) -> str:
    """What a person reads."""
    rows = [
        (
            each.name,
            "(secret)" if each.is_secret else each.value or "-",
            each.source + (", read at start" if each.is_read_only else ""),
        )
        for each in found.entries
        if each.name in shown
    ]
    return table(("Setting", "Value", "Source"), rows)
