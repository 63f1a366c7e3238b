"""`tidelog storage random-uuid`."""

import argparse
from typing import Final

from tidelog.cli.frame.parser import Parser, number
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = (
    "Print random uuids: for the id of a new cluster, and for the quorum directories of its "
    "first voters, which `tidelog storage format --initial-voters` names."
)
EXAMPLES: Final = (
    ("tidelog storage random-uuid", "one"),
    ("tidelog storage random-uuid -n 4", "for a cluster id and three voters"),
)
_COUNT_MAX: Final = 1_000


def configure(parser: Parser) -> None:
    """How many."""
    parser.add_argument(
        "-n", "--count", type=number(1, _COUNT_MAX), default=1, metavar="N", help="how many"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print them, 32 hexadecimal digits each."""
    from tidelog.ports.real.random import RealRandom

    random = RealRandom()
    for _ in range(arguments.count):
        print(random.uuid().hex())
    return EXIT_OK
