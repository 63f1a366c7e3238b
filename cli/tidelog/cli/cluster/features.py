"""`tidelog cluster features`: levels in force, and putting others in force."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.show.errors import EXIT_OK, BadInput
from tidelog.cli.show.table import table

if TYPE_CHECKING:
    from tidelog.client.types.admin import FeatureDescription

COMMAND: Final = "tidelog cluster features"
DESCRIPTION: Final = (
    "Show the levels of features that are in force (0: off), and those that every node can speak. "
    "With NAME=LEVEL, put a level in force once all nodes are upgraded; without --execute that is "
    "only checked."
)
EXAMPLES: Final = (
    (COMMAND, "what is in force"),
    (f"{COMMAND} metadata.version=1", "would it be possible?"),
    (f"{COMMAND} metadata.version=1 --execute", "put it in force"),
)
_LEVEL_MAX: Final = 32_767


def level(text: str) -> tuple[str, int]:
    """`NAME=LEVEL`."""
    name, equals, number = text.partition("=")
    is_number = number.isascii() and number.isdigit() and int(number) <= _LEVEL_MAX
    if not name or not equals or not is_number:
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME=LEVEL")
    return name, int(number)


def configure(parser: Parser) -> None:
    """Which levels, if any."""
    parser.add_argument(
        "levels", nargs="*", type=level, metavar="NAME=LEVEL", help="what to put in force"
    )
    parser.add_argument("--allow-downgrade", action="store_true", help="also lower levels")
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(parser, "a list of {name, finalised_level, level_min, level_max}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them, after the change if there is one."""
    wanted = dict(arguments.levels)
    if len(wanted) < len(arguments.levels):
        raise BadInput(COMMAND, "a feature is named twice", "name each feature once")
    with admin_client(arguments) as admin:
        if wanted:
            found = admin.update_features(
                wanted,
                validate_only=not arguments.execute,
                allow_downgrade=arguments.allow_downgrade,
                timeout_ms=answer_timeout_ms(),
            )
        else:
            found = admin.describe_features(answer_timeout_ms())
    if arguments.json:
        print_json(found)
    else:
        print(as_text(found))
        if wanted and not arguments.execute:
            print("it would be possible; nothing was done; add --execute")
    return EXIT_OK


def as_text(features: "tuple[FeatureDescription, ...]") -> str:
    """What a person reads."""
    rows = [
        (each.name, each.finalised_level, f"{each.level_min} to {each.level_max}")
        for each in features
    ]
    return table(("Feature", "InForce", "Speaks"), rows, right="InForce")
