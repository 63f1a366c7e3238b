"""The options that the measurements share, and what they mean for each client. Pure."""

import argparse
from typing import Final

from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json, number
from tidelog.cli.show.errors import BadInput

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS_DEFAULT: Final = 10
SECONDS_MAX: Final = 86_400
CLIENTS_MAX: Final = 256
SIZE_MIN: Final = 16
"""Room for a number and a time."""
SIZE_MAX: Final = 16 * 1024 * 1024
_RATE_MAX: Final = 10_000_000
_COUNT_MAX: Final = 2**40
JSON_FIELDS: Final = (
    "{what, clients, records, record_bytes, seconds, records_per_second, bytes_per_second, "
    "sampled, samples, milliseconds: {p50, p95, p99, p99.9, max}}"
)


def add_load(parser: Parser, *, rate: str) -> None:
    """How much, how fast, from how many; `rate`: the default one, empty: there is no choice."""
    parser.add_argument(
        "-n",
        "--records",
        type=number(1, _COUNT_MAX),
        metavar="N",
        help="at most N, all clients together",
    )
    parser.add_argument(
        "--seconds",
        type=number(1, SECONDS_MAX),
        default=SECONDS_DEFAULT,
        metavar="S",
        help=f"at most so long (default: {SECONDS_DEFAULT})",
    )
    parser.add_argument(
        "--size",
        type=number(SIZE_MIN, SIZE_MAX),
        default=100,
        metavar="BYTES",
        help="bytes of a record (default: 100)",
    )
    if rate:
        parser.add_argument(
            "--rate",
            type=number(1, _RATE_MAX),
            metavar="N",
            help=f"records a second in all (default: {rate})",
        )
    parser.add_argument(
        "--clients",
        type=number(1, CLIENTS_MAX),
        default=1,
        metavar="N",
        help="how many at once, each a process (default: 1)",
    )


def add_producing(parser: Parser) -> None:
    """How records are sent."""
    parser.add_argument(
        "--acks", choices=("all", "1", "0"), default="all", metavar="ACKS", help="all, 1 or 0"
    )
    parser.add_argument(
        "--linger", type=number(0, 60_000), metavar="MS", help="linger_ms (default: the client's)"
    )
    parser.add_argument(
        "-z", "--compression", choices=CODECS, metavar="CODEC", help=", ".join(CODECS)
    )


def add_place(parser: Parser) -> None:
    """Where."""
    parser.add_argument(
        "--partitions",
        type=number(1, 10_000),
        metavar="N",
        help="of the topic (default: one for each client)",
    )
    parser.add_argument(
        "--replication-factor",
        type=number(1, 255),
        metavar="N",
        help="of the topic (default: the cluster's)",
    )
    parser.add_argument(
        "--dev",
        action="store_true",
        help="measure a node that is started for it, with data in a temporary directory",
    )
    add_json(parser, JSON_FIELDS)
    add_bootstrap(parser)


def check_place(arguments: argparse.Namespace, command: str) -> None:
    """Both places at once are a mistake."""
    if arguments.dev and arguments.bootstrap is not None:
        raise BadInput(
            command, "--dev and -b are given both", "measure that cluster, or a node of its own"
        )


def shares(total: int | None, clients: int) -> list[int | None]:
    """What each client does of it; None: no bound."""
    if total is None:
        return [None] * clients
    return [total // clients + (place < total % clients) for place in range(clients)]


def producer_options(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """As -X takes them; what is typed with -X goes before."""
    options = [("acks", arguments.acks)]
    if arguments.linger is not None:
        options.append(("linger_ms", str(arguments.linger)))
    if arguments.compression is not None:
        options.append(("compression_type", arguments.compression))
    typed = {spelled(name) for name, _ in arguments.option}
    return [*arguments.option, *(each for each in options if each[0] not in typed)]


def spelled(name: str) -> str:
    """As Python spells it."""
    return name.replace(".", "_").replace("-", "_")
