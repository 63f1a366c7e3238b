"""`tidelog broker drain`."""

import argparse
from typing import Final

from tidelog.cli.admin import admin_client, print_json
from tidelog.cli.errors import EXIT_OK
from tidelog.cli.parser import Parser, add_bootstrap, add_json, number
from tidelog.cli.quorum_arguments import node_id

DESCRIPTION: Final = (
    "Empty a broker, so that it can be taken away: it gets no new replicas, its leaders and "
    "replicas move to others. The command returns when that has begun; `tidelog broker list` "
    "shows the progress, `tidelog broker remove` forgets the broker afterwards."
)
EXAMPLES: Final = (
    ("tidelog broker drain 3", "begin"),
    ("tidelog broker drain 3 --dry-run", "whether the others have room"),
    ("tidelog broker drain 3 --cancel", "call it off; what has moved stays where it is"),
)
_BYTES_MAX: Final = 1 << 40


def configure(parser: Parser) -> None:
    """Which broker."""
    parser.add_argument("broker", type=node_id, metavar="BROKER_ID", help="its id")
    parser.add_argument("--cancel", action="store_true", help="call the draining off")
    parser.add_argument(
        "--throttle",
        type=number(1, _BYTES_MAX),
        default=0,
        metavar="BYTES",
        help="copy at most so many bytes a second to each broker",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(parser, "{broker_id, is_changed, remaining_replicas, warnings: [sentence]}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Begin, and say how much has to move."""
    with admin_client(arguments) as admin:
        outcome = admin.drain_broker(
            arguments.broker,
            cancel=arguments.cancel,
            validate_only=arguments.dry_run,
            throttle_bytes_per_second=arguments.throttle,
        )
    if arguments.json:
        print_json(
            {
                "broker_id": arguments.broker,
                "is_changed": not arguments.dry_run,
                "remaining_replicas": outcome.remaining_replicas,
                "warnings": outcome.warnings,
            }
        )
        return EXIT_OK
    if arguments.dry_run:
        print("nothing was done; ", end="")
    if arguments.cancel:
        print(f"broker {arguments.broker} is not drained any more")
    else:
        print(f"broker {arguments.broker}: {outcome.remaining_replicas} replicas have to move")
    for warning in outcome.warnings:
        print(f"warning: {warning}")
    return EXIT_OK
