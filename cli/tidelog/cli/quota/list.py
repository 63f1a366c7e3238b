"""`tidelog quota list`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.quota.arguments import LIMITS, as_json, as_text
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = (
    "List the quotas by client id: bytes written, bytes read and requests, each a second and on "
    "each broker. `-` is no limit; `(default)` counts for all clients without a quota of their own."
)
EXAMPLES: Final = (
    ("tidelog quota list", "all of them"),
    ("tidelog quota list --client-id reports --json", "one, for programs"),
)


def configure(parser: Parser) -> None:
    """Which, and form."""
    parser.add_argument(
        "--client-id",
        action="append",
        default=[],
        metavar="ID",
        help="only of this one; may be repeated",
    )
    add_json(
        parser,
        f"a list of {{client_id, {', '.join(LIMITS)}}}; null: no limit; an empty client_id: the "
        "default",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    with admin_client(arguments) as admin:
        quotas = admin.describe_client_quotas(arguments.client_id or None)
    if arguments.json:
        print_json([as_json(client_id, quota) for client_id, quota in quotas.items()])
    else:
        print(as_text(quotas) if quotas else "there are no quotas")
    return EXIT_OK
