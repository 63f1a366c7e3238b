"""`tidelog config show`."""

import argparse
import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import print_json
from tidelog.cli.frame.parser import Parser, add_json
from tidelog.cli.show.errors import EXIT_OK, BadInput

if TYPE_CHECKING:
    from tidelog.cli.node.settings import Effective

DESCRIPTION: Final = (
    "Show every setting of a node as TOML, and behind each that is given where it comes "
    "from: the file, or a TIDELOG_* variable, which goes before the file. With --defaults each "
    "is explained."
)
EXAMPLES: Final = (
    ("tidelog config show --defaults > node.toml", "a file to begin with"),
    ("tidelog config show node.toml", "what a node started with it would use"),
)
_FIELDS: Final = ("path", "value", "source")
_WIDTH: Final = 100


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
    from tidelog.cli.node import settings as node_settings

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
        print_json([{name: getattr(each, name) for name in _FIELDS} for each in found])
    else:
        print(as_toml(found))
    return EXIT_OK


def as_toml(settings: Sequence["Effective"], mark: str = "") -> str:
    """A file that sets exactly this, explained where it is known; `mark` goes before each value."""
    from tidelog.cli.node.settings import toml_value

    tables: dict[str, list[str]] = {}
    for setting in settings:
        table, _, name = setting.path.rpartition(".")
        source = "" if setting.source == "default" else f"  # {setting.source}"
        lines = tables.setdefault(table, [])
        lines += textwrap.wrap(
            setting.description, _WIDTH, initial_indent="# ", subsequent_indent="# "
        )
        lines.append(f"{mark}{name} = {toml_value(setting.value)}{source}")
    parts = ["\n".join(lines) for table, lines in tables.items() if not table]
    parts += ["\n".join([f"[{table}]", *lines]) for table, lines in tables.items() if table]
    return "\n\n".join(parts)
