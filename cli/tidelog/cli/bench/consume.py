"""`tidelog bench consume`."""

import argparse
from typing import Final

from tidelog.cli.bench.arguments import add_load, add_place, add_producing, check_place
from tidelog.cli.frame.parser import Parser
from tidelog.cli.show.errors import EXIT_OK, BadInput

COMMAND: Final = "tidelog bench consume"
DESCRIPTION: Final = (
    "Measure how fast records are read that are there already, record by record with poll() as a "
    "program would. They are written first, to a topic that is deleted afterwards; writing them "
    "takes no longer than --seconds, nor does reading them. Timed is each poll() that brought "
    "records."
)
EXAMPLES: Final = (
    (f"{COMMAND} --dev", "what is written in ten seconds, on a node of its own"),
    (f"{COMMAND} -n 1000000 --size 200 --clients 3", "this cluster, three consumers"),
)


def configure(parser: Parser) -> None:
    """How much, how, where."""
    add_load(parser, rate="")
    add_producing(parser)
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Fill the topic, then measure and print."""
    check_place(arguments, COMMAND)
    partitions = arguments.partitions or arguments.clients
    if partitions < arguments.clients:
        raise BadInput(
            COMMAND,
            f"{arguments.clients} clients cannot share {partitions} partitions",
            "each client reads partitions of its own: say --partitions, or fewer --clients",
        )
    from tidelog.cli.bench.run import Bench, say, show, together

    bench = Bench(arguments, COMMAND)
    with bench.place():
        say(f"writing for at most {arguments.seconds} s")
        bench.run("produce", records=arguments.records, seconds=arguments.seconds, rate=None)
        say(f"reading for at most {arguments.seconds} s; Ctrl-C stops")
        done = bench.run("consume", records=None, seconds=arguments.seconds, rate=None)
    show(together("consume", arguments.size, done, "each poll()"), json=arguments.json)
    return EXIT_OK
