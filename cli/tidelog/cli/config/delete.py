"""`tidelog config delete`."""

import argparse
from typing import Final

from tidelog.cli.config.targets import add_target, changes_of, target, target_name
from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.errors import EXIT_OK

COMMAND: Final = "tidelog config delete"
DESCRIPTION: Final = (
    "Unset settings while the cluster runs, so that the next source counts: the cluster's value, "
    "the node's file, the default. All of them are unset, or none."
)
EXAMPLES: Final = ((f"{COMMAND} --topic orders segment.bytes", "as the cluster has it"),)


def configure(parser: Parser) -> None:
    """Whose, and which."""
    parser.add_argument("name", metavar="NAME", help="a setting")
    parser.add_argument("names", nargs="*", metavar="NAME", help="more of them")
    add_target(parser)
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(parser, "{target, names: [name], is_changed}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Unset them."""
    changes = changes_of([], [arguments.name, *arguments.names], COMMAND)
    resource = target(arguments, COMMAND, changes)
    with admin_client(arguments) as admin:
        admin.alter_configs([resource], validate_only=arguments.dry_run)
    name = target_name(resource)
    if arguments.json:
        print_json({"target": name, "names": list(changes), "is_changed": not arguments.dry_run})
    else:
        verb = "would unset for" if arguments.dry_run else "unset for"
        print(f"{verb} {name}: {', '.join(changes)}")
    return EXIT_OK
