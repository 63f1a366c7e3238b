"""`tidelog quota set`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.quota.arguments import (
    LIMITS,
    add_client,
    add_limits,
    as_json,
    as_text,
    client_of,
    option_of,
)
from tidelog.cli.show.errors import EXIT_OK, BadInput

COMMAND: Final = "tidelog quota set"
DESCRIPTION: Final = (
    "Limit what clients take, by the `client_id` that they give. Each broker counts for itself: a "
    "client that is over a limit is told to wait, and held back if it does not. Limits that are "
    "not named stay as they are. What Kafka's users know as `kafka-configs --entity-type clients`."
)
EXAMPLES: Final = (
    (f"{COMMAND} --client-id reports --fetch-bytes-per-second 10485760", "10 MiB/s a broker"),
    (f"{COMMAND} --default --requests-per-second 500", "all that have no quota of their own"),
)


def configure(parser: Parser) -> None:
    """Whose, and how much."""
    add_client(parser)
    add_limits(parser)
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(parser, f"{{client_id, {', '.join(LIMITS)}, is_changed}}; null: no limit")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Set them beside those that are there."""
    client_id = client_of(arguments, COMMAND)
    given = {name: getattr(arguments, name) for name in LIMITS}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    if not limits:
        raise BadInput(
            COMMAND, "no limit is given", f"say one of {', '.join(map(option_of, LIMITS))}"
        )
    import msgspec

    from tidelog.client import ClientQuota

    with admin_client(arguments) as admin:
        known = admin.describe_client_quotas([client_id]).get(client_id, ClientQuota())
        quota = msgspec.structs.replace(known, **limits)
        admin.alter_client_quotas({client_id: quota}, validate_only=arguments.dry_run)
    if arguments.json:
        print_json({**as_json(client_id, quota), "is_changed": not arguments.dry_run})
        return EXIT_OK
    print(as_text({client_id: quota}))
    if arguments.dry_run:
        print("nothing was done")
    return EXIT_OK
