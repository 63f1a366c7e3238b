"""`tidelog quota delete`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.quota.arguments import (
    LIMITS,
    add_client,
    as_json,
    as_text,
    client_of,
    option_of,
    shown_client,
)
from tidelog.cli.show.errors import EXIT_OK

COMMAND: Final = "tidelog quota delete"
DESCRIPTION: Final = (
    "Take the quota of a client id away, or single limits of it. Without a quota of its own a "
    "client has the default one, if there is one."
)
EXAMPLES: Final = (
    (f"{COMMAND} --client-id reports", "the whole quota"),
    (f"{COMMAND} --client-id reports --fetch-bytes-per-second", "this limit; the others stay"),
)


def configure(parser: Parser) -> None:
    """Whose, and which."""
    add_client(parser)
    for name, meaning in LIMITS.items():
        parser.add_argument(option_of(name), action="store_true", help=f"only that of {meaning}")
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(
        parser, f"{{client_id, {', '.join(LIMITS)}, is_changed}}: what is left; null: no limit"
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Take them away; what was not there is none either."""
    client_id = client_of(arguments, COMMAND)
    chosen = [name for name in LIMITS if getattr(arguments, name)] or list(LIMITS)
    import msgspec

    from tidelog.client import ClientQuota

    with admin_client(arguments) as admin:
        known = admin.describe_client_quotas([client_id]).get(client_id, ClientQuota())
        left = msgspec.structs.replace(known, **dict.fromkeys(chosen))
        admin.alter_client_quotas({client_id: left}, validate_only=arguments.dry_run)
    if arguments.json:
        is_changed = left != known and not arguments.dry_run
        print_json({**as_json(client_id, left), "is_changed": is_changed})
        return EXIT_OK
    if left == known:
        print(f"{shown_client(client_id)} has none of these limits; nothing was done")
    elif left == ClientQuota():
        print(f"{shown_client(client_id)} has no quota of its own any more")
    else:
        print(as_text({client_id: left}))
    if arguments.dry_run and left != known:
        print("nothing was done")
    return EXIT_OK
