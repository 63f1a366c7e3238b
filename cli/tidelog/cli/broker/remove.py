"""`tidelog broker remove`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, note_voter, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.quorum.arguments import node_id
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = (
    "Forget a broker that is stopped and holds no replicas: `tidelog broker drain` empties it "
    "first. Its id can be used again. A voter of the quorum is removed by `tidelog quorum "
    "remove-voter` as well."
)
EXAMPLES: Final = (("tidelog broker remove 3", "it is drained and stopped"),)


def configure(parser: Parser) -> None:
    """Which broker."""
    parser.add_argument("broker", type=node_id, metavar="BROKER_ID", help="its id")
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(parser, "{broker_id, is_changed}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Forget it."""
    with admin_client(arguments) as admin:
        admin.remove_broker(arguments.broker, validate_only=arguments.dry_run)
        note_voter(admin, arguments.broker)
    if arguments.json:
        print_json({"broker_id": arguments.broker, "is_changed": not arguments.dry_run})
    elif arguments.dry_run:
        print(f"broker {arguments.broker} can be removed; nothing was done")
    else:
        print(f"broker {arguments.broker} is removed")
    return EXIT_OK
