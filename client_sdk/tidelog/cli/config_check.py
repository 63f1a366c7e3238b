"""`tidelog config check`."""

import argparse
import os
from typing import Final

from tidelog.cli.errors import EXIT_OK
from tidelog.cli.parser import Parser

DESCRIPTION: Final = (
    "Check a node's configuration: every name, type and bound, in the file and in the "
    "TIDELOG_* variables. Starts nothing. Exit code 0: a node would accept it."
)
EXAMPLES: Final = (("tidelog config check node.toml", "before a node is started with it"),)


def configure(parser: Parser) -> None:
    """The file."""
    parser.add_argument("file", metavar="FILE", help="a TOML file, as for `tidelog dev --config`")


def run(arguments: argparse.Namespace) -> int:
    """Check, and say how much was set."""
    from tidelog.cli.node_settings import load

    found = load(arguments.file, "tidelog config check", os.environ)
    count = sum(setting.source != "default" for setting in found)
    print(f"{arguments.file} is right: {count} of {len(found)} settings are given")
    return EXIT_OK
