"""Client ids and limits as they are typed and shown. Pure."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.parser import Parser, number
from tidelog.cli.show.errors import BadInput
from tidelog.cli.show.table import table

if TYPE_CHECKING:
    from tidelog.client import ClientQuota

LIMITS: Final = {
    "produce_bytes_per_second": "bytes of records written",
    "fetch_bytes_per_second": "bytes of records read",
    "requests_per_second": "requests to write, read or find records",
}
DEFAULT_CLIENT: Final = ""
"""All clients without a quota of their own."""
_HEAD: Final = ("ClientId", "ProduceBytes/s", "FetchBytes/s", "Requests/s")
_LIMIT_MAX: Final = (1 << 63) - 1


def option_of(limit: str) -> str:
    """The option that names a limit."""
    return f"--{limit.replace('_', '-')}"


def add_client(parser: Parser) -> None:
    """Whose quota."""
    parser.add_argument("--client-id", metavar="ID", help="of clients with this `client_id`")
    parser.add_argument(
        "--default", action="store_true", help="of all clients that have no quota of their own"
    )


def client_of(arguments: argparse.Namespace, command: str) -> str:
    """Exactly one of the two was said."""
    if arguments.default == (arguments.client_id is not None):
        why = "--client-id and --default exclude each other"
        if not arguments.default:
            why = "--client-id is missing"
        raise BadInput(command, why, "say --client-id ID, or --default")
    if arguments.client_id == "":
        raise BadInput(command, "the client id is empty", "for all others say --default")
    return DEFAULT_CLIENT if arguments.default else str(arguments.client_id)


def add_limits(parser: Parser) -> None:
    """Each with its number."""
    for name, meaning in LIMITS.items():
        parser.add_argument(
            option_of(name),
            type=number(1, _LIMIT_MAX),
            metavar="N",
            help=f"{meaning}, on each broker",
        )


def shown_client(client_id: str) -> str:
    """As a person reads it; no client id holds a blank at its ends that would be missed."""
    return client_id if client_id != DEFAULT_CLIENT else "(default)"


def as_text(quotas: "dict[str, ClientQuota]") -> str:
    """What a person reads."""
    rows = [
        (
            shown_client(client_id),
            *("-" if limit is None else limit for limit in quota.limits().values()),
        )
        for client_id, quota in quotas.items()
    ]
    return table(_HEAD, rows, right=" ".join(_HEAD[1:]))


def as_json(client_id: str, quota: "ClientQuota") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {"client_id": client_id, **quota.limits()}
