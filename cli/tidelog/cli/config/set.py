"""`tidelog config set`."""

import argparse
from typing import Final

from tidelog.cli.config.targets import add_target, changes_of, target, target_name
from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json, pair
from tidelog.cli.show.errors import EXIT_OK

COMMAND: Final = "tidelog config set"
DESCRIPTION: Final = (
    "Set settings while the cluster runs; the others stay. All of them are set, or none."
)
EXAMPLES: Final = (
    (f"{COMMAND} --topic orders segment.bytes=67108864", "one topic"),
    (f"{COMMAND} --cluster segment.bytes=67108864", "all topics that do not say otherwise"),
)


def configure(parser: Parser) -> None:
    """Whose, and what."""
    parser.add_argument("setting", type=pair, metavar="NAME=VALUE", help="a setting")
    parser.add_argument("settings", nargs="*", type=pair, metavar="NAME=VALUE", help="more of them")
    add_target(parser)
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(parser, "{target, configs: {name: value}, is_changed}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Set them."""
    changes = changes_of([arguments.setting, *arguments.settings], [], COMMAND)
    resource = target(arguments, COMMAND, changes)
    with admin_client(arguments) as admin:
        admin.alter_configs([resource], validate_only=arguments.dry_run)
    name = target_name(resource)
    if arguments.json:
        print_json({"target": name, "configs": changes, "is_changed": not arguments.dry_run})
    else:
        said = ", ".join(f"{setting}={value}" for setting, value in changes.items())
        verb = "would set for" if arguments.dry_run else "set for"
        print(f"{verb} {name}: {said}")
    return EXIT_OK
