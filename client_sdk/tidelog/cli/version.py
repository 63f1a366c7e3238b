"""`tidelog version`: the release that is installed."""

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """No options."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Print the release."""
    del arguments
    from importlib.metadata import PackageNotFoundError, version

    try:
        print(f"tidelog {version('tidelog')}")
    except PackageNotFoundError:
        from tidelog.server.node import RELEASE

        print(f"tidelog {RELEASE}")
    return 0
