"""`tidelog config show`."""

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.cli.admin import print_json
from tidelog.cli.errors import EXIT_OK, BadInput
from tidelog.cli.parser import Parser, add_json

if TYPE_CHECKING:
    from tidelog.cli.node_settings import Effective

DESCRIPTION: Final = (
    "Show every setting of a node as TOML, and behind each that is given where it comes "
    "from: the file, or a TIDELOG_* variable, which goes before the file."
)
EXAMPLES: Final = (
    ("tidelog config show --defaults > node.toml", "a file to begin with"),
    ("tidelog config show node.toml", "what a node started with it would use"),
)


def configure(parser: Parser) -> None:
    """The file, or none."""
    parser.add_argument("file", nargs="?", metavar="FILE", help="a TOML file")
    parser.add_argument(
        "--defaults",
        action="store_true",
        help="what holds when nothing is said: no file, no variable",
    )
    add_json(parser, "a list of {path, value, source}")


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    from tidelog.cli import node_settings

    if arguments.defaults:
        if arguments.file is not None:
            raise BadInput(
                f"tidelog config show --defaults {arguments.file}",
                "the defaults are the same whatever the file says",
                "leave the file out, or --defaults",
            )
        found = node_settings.defaults()
    else:
        found = node_settings.load(arguments.file, "tidelog config show", os.environ)
    if arguments.json:
        print_json([each._asdict() for each in found])
    else:
        print(as_toml(found))
    return EXIT_OK


def as_toml(settings: Sequence["Effective"]) -> str:
    """A file that sets exactly this."""
    from tidelog.cli.node_settings import toml_value

    tables: dict[str, list[str]] = {}
    for setting in settings:
        table, _, name = setting.path.rpartition(".")
        source = "" if setting.source == "default" else f"  # {setting.source}"
        tables.setdefault(table, []).append(f"{name} = {toml_value(setting.value)}{source}")
    parts = ["\n".join(lines) for table, lines in tables.items() if not table]
    parts += ["\n".join([f"[{table}]", *lines]) for table, lines in tables.items() if table]
    return "\n\n".join(parts)
