"""`tidelog bench end-to-end`."""

import argparse
from typing import Final

from tidelog.cli.bench.arguments import add_load, add_place, add_producing, check_place
from tidelog.cli.frame.parser import Parser
from tidelog.cli.show.errors import EXIT_OK, BadInput

COMMAND: Final = "tidelog bench end-to-end"
RATE_DEFAULT: Final = 1_000
DESCRIPTION: Final = (
    "Measure how long records are on their way at a steady rate: each client sends and reads, "
    "and a record is timed from when it was due until poll() has given it. The topic is made for "
    "it and deleted afterwards."
)
EXAMPLES: Final = (
    (f"{COMMAND} --dev", "ten seconds at 1000 records a second, a node of its own"),
    (f"{COMMAND} --rate 200 --linger 0 --seconds 30", "this cluster, without waiting for company"),
)


def configure(parser: Parser) -> None:
    """How much, how, where."""
    add_load(parser, rate=str(RATE_DEFAULT))
    add_producing(parser)
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    check_place(arguments, COMMAND)
    if (arguments.partitions or arguments.clients) < arguments.clients:
        raise BadInput(
            COMMAND,
            "there are more clients than partitions",
            "each client has partitions of its own: say --partitions, or fewer --clients",
        )
    from tidelog.cli.bench.run import Bench, say, show, together

    bench = Bench(arguments, COMMAND)
    with bench.place():
        say(f"for at most {arguments.seconds} s; Ctrl-C stops")
        done = bench.run(
            "end-to-end",
            records=arguments.records,
            seconds=arguments.seconds,
            rate=arguments.rate or RATE_DEFAULT,
        )
    sampled = "from when a record was due until it was read"
    show(together("end-to-end", arguments.size, done, sampled), json=arguments.json)
    return EXIT_OK
