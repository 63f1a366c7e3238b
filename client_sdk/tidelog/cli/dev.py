"""`tidelog dev`: one node in the foreground."""

import argparse
import os


def configure(parser: argparse.ArgumentParser) -> None:
    """Options; imports nothing of a node, so that --help answers at once."""
    parser.add_argument(
        "--port",
        type=_port,
        metavar="PORT",
        help="listen on 127.0.0.1:PORT; 0 picks a free one (default: 9192, or a free one)",
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="keep the data there (default: a temporary directory)"
    )
    parser.add_argument(
        "--partitions",
        type=int,
        metavar="N",
        help="partitions of topics that are created without a number (default: 1)",
    )
    parser.add_argument("--config", metavar="FILE", help="settings as TOML")


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    from tidelog.server.dev import DevOptions, run_dev

    options = DevOptions(
        port=arguments.port,
        data_dir=arguments.data_dir,
        partitions=arguments.partitions,
        configuration_file=arguments.config,
    )
    return run_dev(options, os.environ)


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"`{text}` is not a port from 0 to 65535")
    return int(text)
