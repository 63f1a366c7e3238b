"""`tidelog server`: one node of a cluster in the foreground.

Owns the options. The node itself, and what it says, are the server's.
"""

import argparse
import os
import sys
from typing import Final

from tidelog.cli.frame.parser import Parser, pair
from tidelog.cli.show.errors import BadInput

COMMAND: Final = "tidelog server"
DESCRIPTION: Final = (
    "Run one node of a cluster in the foreground, until Ctrl-C or SIGTERM. Its directory must "
    "have been formatted by `tidelog storage format`. A setting comes from --set, else from a "
    "TIDELOG_* variable, else from the file, else it is the default. The lines `bootstrap: "
    "HOST:PORT` and `cluster: HOST:PORT` on stdout are for programs: they come when the node "
    "serves."
)
EXAMPLES: Final = (
    (f"{COMMAND} --config node1.toml", "with the roles of the file"),
    (f"{COMMAND} --config node1.toml --roles controller", "a voter without records"),
    (f"{COMMAND} --config node1.toml --set data_dir=other", "one setting otherwise"),
)


def configure(parser: Parser) -> None:
    """The file, and what goes before it; imports nothing of a node."""
    parser.add_argument("--config", metavar="FILE", help="settings as TOML")
    parser.add_argument(
        "--roles", metavar="ROLES", help="broker, controller, or broker,controller (the default)"
    )
    parser.add_argument(
        "--set",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting, such as listeners.client.bind=127.0.0.1:9192; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until it is told to stop."""
    flags = flags_of(arguments)
    if sys.platform == "win32":
        raise BadInput(COMMAND, "a node does not run on Windows itself", "run it in WSL2")
    text = ""
    if arguments.config is not None:
        from tidelog.cli.node.settings import read_text

        text = read_text(arguments.config, f"{COMMAND} --config")
    from tidelog.server.commands.server import ServerOptions, run_server

    options = ServerOptions(
        configuration_file=arguments.config or "", configuration_text=text, flags=flags
    )
    return run_server(options, os.environ)


def flags_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Settings by path; none twice."""
    flags: dict[str, str] = {}
    pairs: list[tuple[str, str]] = list(arguments.set)
    if arguments.roles is not None:
        pairs.append(("roles", arguments.roles))
    for name, value in pairs:
        if name in flags:
            raise BadInput(COMMAND, f"`{name}` is given twice", "leave one of them out")
        flags[name] = value
    return flags
