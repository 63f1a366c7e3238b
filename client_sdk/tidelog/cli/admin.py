"""What the commands that ask the cluster share: a client, and JSON output."""

import argparse
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.client import AdminClient

CLIENT_ID: Final = "tidelog-cli"
REACH_TIMEOUT_MS: Final = 3_000
"""A person waits: an address that nobody answers at is told after so long."""


def admin_client(arguments: argparse.Namespace) -> "AdminClient":
    """A client for one command."""
    from tidelog.client import AdminClient

    return AdminClient(
        bootstrap_servers=arguments.bootstrap,
        client_id=CLIENT_ID,
        bootstrap_timeout_ms=REACH_TIMEOUT_MS,
    )


def print_json(value: object) -> None:
    """Indented, with the fields in the order that the help names."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")
