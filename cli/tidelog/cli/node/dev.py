"""`tidelog dev`: one node in the foreground, or several as processes of their own.

Owns the options and what can be told to be wrong before a node starts. The node itself, and what it
says, are the server's.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.cli.frame.parser import Parser, number
from tidelog.cli.show.errors import BadInput, CommandError

DESCRIPTION: Final = (
    "Run one node on this machine, in the foreground, until Ctrl-C. It says where it "
    "listens, where its data is and whether that survives, and what to type next. The line "
    "`bootstrap: HOST:PORT` on stdout is for programs: it comes when the node serves. With "
    "--brokers N it runs N nodes, each a process, broker and controller both; one that dies is "
    "started again, and the line names all of them, with commas."
)
EXAMPLES: Final = (
    ("tidelog dev", "try it out: a temporary directory, port 9192 or a free one"),
    ("tidelog dev --data-dir data", "keep the data"),
    ("tidelog dev --port 0 --config node.toml", "any free port, settings from a file"),
    ("tidelog dev --brokers 3", "a cluster of three: kill one and see what happens"),
)
_PARTITIONS_MAX: Final = 10_000
_BROKERS_MAX: Final = 9


def configure(parser: Parser) -> None:
    """Options; imports nothing of a node, so that --help answers at once."""
    parser.add_argument(
        "--port",
        type=number(0, 65_535, name="a port"),
        metavar="PORT",
        help="listen on 127.0.0.1:PORT; 0 picks a free one (default: 9192, or a free one)",
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="keep the data there (default: a temporary directory)"
    )
    parser.add_argument(
        "--partitions",
        type=number(1, _PARTITIONS_MAX),
        metavar="N",
        help="partitions of topics that are created without a number (default: 1)",
    )
    parser.add_argument("--config", metavar="FILE", help="settings as TOML")
    parser.add_argument(
        "--brokers",
        type=number(1, _BROKERS_MAX),
        default=1,
        metavar="N",
        help="how many nodes, at most 9; their ports follow at distances of 100 (default: 1)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    if arguments.data_dir is not None:
        check_directory(arguments.data_dir)
    if arguments.config is not None:
        from tidelog.cli.node.settings import read_text

        read_text(arguments.config, "tidelog dev --config")
    if arguments.port:
        check_port(arguments.port)
    if arguments.brokers > 1:
        return _run_cluster(arguments)
    from tidelog.server.commands.dev import DevOptions, run_dev

    options = DevOptions(
        port=arguments.port,
        data_dir=arguments.data_dir,
        partitions=arguments.partitions,
        configuration_file=arguments.config,
    )
    return run_dev(options, os.environ)


def _run_cluster(arguments: argparse.Namespace) -> int:
    if arguments.config is not None:
        raise BadInput(
            f"tidelog dev --brokers {arguments.brokers} --config {arguments.config}",
            "each node of a cluster has settings of its own",
            "leave --config out, or run `tidelog server` once for each node",
        )
    from tidelog.server.commands.cluster_dev import ClusterDevOptions, run_cluster_dev

    options = ClusterDevOptions(
        brokers=arguments.brokers,
        port=arguments.port,
        data_dir=arguments.data_dir,
        partitions=arguments.partitions,
    )
    return run_cluster_dev(options)


def _may_write(directory: Path) -> bool:
    return os.access(directory, os.W_OK | os.X_OK)


def check_directory(
    name: str,
    may_write: Callable[[Path], bool] = _may_write,
    *,
    command: str = "tidelog dev",
) -> None:
    """Refuse what can never hold a node's data, before anything is started."""
    what = f"{command} --data-dir {name}"
    hint = "name a directory that you may write to; it is made if it is not there"
    if not name or "\0" in name:
        raise BadInput(what, "this is not the name of a directory", hint)
    directory = Path(name)
    for existing in (directory, *directory.parents):
        try:
            is_there = existing.exists()
        except OSError as error:
            raise BadInput(what, f"{existing}: {error.strerror}", hint) from None
        if not is_there:
            continue
        if not existing.is_dir():
            raise BadInput(what, f"{existing} is a file, not a directory", hint)
        if not may_write(existing):
            raise BadInput(what, f"you may not write to {existing}", hint)
        return


def check_port(port: int) -> None:
    """Refuse a port that is taken, before anything is started; another one was not asked for."""
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandError(
                f"tidelog dev --port {port}",
                f"127.0.0.1:{port} cannot be listened on: {error.strerror}",
                "leave --port out and a free one is picked, or stop what uses it",
            ) from None
