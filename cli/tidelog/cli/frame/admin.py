"""What the commands that ask the cluster share: a client, and JSON output."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.patience import answer_timeout_ms, reach_timeout_ms
from tidelog.cli.frame.waiting import show_warnings
from tidelog.cli.show.errors import BadInput, print_stderr

if TYPE_CHECKING:
    from tidelog.client import AdminClient
    from tidelog.client.types.records import ClusterDescription

CLIENT_ID: Final = "tidelog-cli"
MAJORITY_TEXT: Final = (
    "The metadata quorum needs a majority of its voters: start them; if they are gone for good, "
    "see `tidelog quorum recover --help`"
)


def bootstrap_servers(arguments: argparse.Namespace) -> list[str]:
    """The addresses of -b, else of TIDELOG_BOOTSTRAP, else the default one."""
    from tidelog.client.arguments.options import BOOTSTRAP_VARIABLE, bootstrap_addresses
    from tidelog.wire.errors import TidelogError

    typed = arguments.bootstrap
    try:
        return list(bootstrap_addresses("client", typed))
    except TidelogError as error:
        source = f"{BOOTSTRAP_VARIABLE}={os.environ.get(BOOTSTRAP_VARIABLE, '')}"
        raise BadInput(
            source if typed is None else f"-b {typed}",
            error.happened,
            "write host:port, several with commas, such as localhost:9192",
        ) from None


def admin_client(arguments: argparse.Namespace) -> "AdminClient":
    """A client for one command."""
    from tidelog.cli.frame.client_options import convert
    from tidelog.client import AdminClient
    from tidelog.client.arguments.options import AdminArguments, AdminOptions

    defaults: AdminArguments = {
        "client_id": CLIENT_ID,
        "bootstrap_timeout_ms": reach_timeout_ms(),
        "request_timeout_ms": answer_timeout_ms(),
    }
    show_warnings()
    given = convert(arguments.option, AdminOptions, "tidelog")
    return AdminClient(bootstrap_servers=bootstrap_servers(arguments), **{**defaults, **given})


@contextlib.contextmanager
def quorum_hint() -> Iterator[None]:
    """Where nobody leads, say what a quorum needs."""
    from tidelog.wire.errors import ErrorCode, TidelogError

    try:
        yield
    except TidelogError as error:
        if error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED):
            raise
        raise TidelogError(
            error.code,
            tried="ask the metadata quorum",
            happened=error.happened,
            hint=MAJORITY_TEXT,
        ) from None


def stale_text(cluster: "ClusterDescription") -> str:
    """One line on metadata that nobody keeps up to date; empty: there is a controller."""
    if not cluster.without_controller_ms:
        return ""
    seconds = max(1, cluster.without_controller_ms // 1000)
    return (
        f"No controller for {seconds} s: this is as it was then, and may have changed. "
        f"{MAJORITY_TEXT}"
    )


@contextlib.contextmanager
def controller_hint(admin: "AdminClient") -> Iterator[None]:
    """Where a call got no answer and nobody leads, that is what to mend."""
    from tidelog.wire.errors import ErrorCode, TidelogError

    try:
        yield
    except TidelogError as error:
        if error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED):
            raise
        try:
            stale = admin.describe_cluster().without_controller_ms
        except TidelogError:
            raise error from None
        if not stale:
            raise
        raise TidelogError(
            error.code,
            tried=error.tried,
            happened=f"{error.happened}; no controller for {max(1, stale // 1000)} s",
            hint=MAJORITY_TEXT,
        ) from None


def note_voter(admin: "AdminClient", node_id: int) -> None:
    """A node without its broker may still be a voter of the quorum: say what that means."""
    from tidelog.wire.errors import TidelogError

    try:
        members = admin.describe_metadata_quorum().members
    except TidelogError:
        return  # The command itself has done its work.
    voters = [each.member.node_id for each in members if not each.member.is_learner]
    if node_id in voters:
        print_stderr(
            f"note: node {node_id} stays one of {len(voters)} voters of the metadata quorum, and "
            "is needed for its majority\n"
            f"hint: before it goes for good, `tidelog quorum remove-voter {node_id}`"
        )


def print_json(value: object) -> None:
    """Indented, with the fields in the order that the help names."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")
