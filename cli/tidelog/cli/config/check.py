"""`tidelog config check`."""

import argparse
import os
from typing import Final

from tidelog.cli.frame.parser import Parser
from tidelog.cli.show.errors import EXIT_BAD_INPUT, EXIT_OK, print_error
from tidelog.cli.show.table import count

COMMAND: Final = "tidelog config check"
DESCRIPTION: Final = (
    "Check a node's configuration: every name, type and bound, in the file and in the "
    "TIDELOG_* variables, what contradicts itself, and whether the certificates that it names can "
    "be used. Tells all mistakes. Starts nothing. Exit code 0: a node would accept it."
)
EXAMPLES: Final = ((f"{COMMAND} node.toml", "before a node is started with it"),)


def configure(parser: Parser) -> None:
    """The file."""
    parser.add_argument("file", metavar="FILE", help="a TOML file, as for `tidelog dev --config`")


def run(arguments: argparse.Namespace) -> int:
    """Check, and say how much was set, or all that is wrong."""
    from tidelog.cli.node.settings import effective, read_text
    from tidelog.server.settings.files import unusable_files
    from tidelog.server.settings.loading import examine

    text = read_text(arguments.file, COMMAND)
    configuration, mistakes = examine(
        file_text=text, file_name=arguments.file, environment=os.environ
    )
    mistakes += unusable_files(configuration)
    for error in mistakes:
        print_error(f"{error.tried} [{error.code.name}]", error.happened, error.hint)
    if mistakes:
        return EXIT_BAD_INPUT
    found = effective(configuration, text, arguments.file, os.environ)
    given = sum(setting.source != "default" for setting in found)
    print(f"{arguments.file} is right: {given} of {count(len(found), 'setting')} are given")
    return EXIT_OK
