"""`tidelog version`: the release that is installed."""

import argparse
from typing import Final

from tidelog.cli.frame.parser import Parser
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = "Print the release of Tidelog that is installed here."
EXAMPLES: Final = (("tidelog version", "print the release"),)


def configure(parser: Parser) -> None:
    """No arguments."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Print the release."""
    del arguments
    from importlib.metadata import PackageNotFoundError, version

    try:
        print(f"tidelog {version('tidelog')}")
    except PackageNotFoundError:
        from tidelog.server.roles.broker import RELEASE

        print(f"tidelog {RELEASE}")
    return EXIT_OK
