"""`tidelog bench produce`."""

import argparse
from typing import Final

from tidelog.cli.bench.arguments import add_load, add_place, add_producing, check_place
from tidelog.cli.frame.parser import Parser
from tidelog.cli.show.errors import EXIT_OK

COMMAND: Final = "tidelog bench produce"
DESCRIPTION: Final = (
    "Measure how fast records are stored: as fast as the clients can, or at a steady rate. A "
    "client makes each record with send() as a program would. The topic is made for it and "
    "deleted afterwards.\n\n"
    "Timed is from send() to the acknowledgement, at full speed of some records: "
    "there it is mostly the wait in the producer's own buffer. With --rate each record is timed, "
    "from when it was due."
)
EXAMPLES: Final = (
    (f"{COMMAND} --dev", "ten seconds, a node of its own"),
    (f"{COMMAND} -n 1000000 --size 200 --clients 3 -z lz4", "this cluster, three producers"),
    (f"{COMMAND} --rate 1000 --seconds 30 --acks 1", "latency at a steady rate"),
)


def configure(parser: Parser) -> None:
    """How much, how, where."""
    add_load(parser, rate="as fast as it goes")
    add_producing(parser)
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    check_place(arguments, COMMAND)
    from tidelog.cli.bench.run import Bench, say, show, together

    bench = Bench(arguments, COMMAND)
    with bench.place():
        say(f"writing for at most {arguments.seconds} s; Ctrl-C stops")
        done = bench.run(
            "produce",
            records=arguments.records,
            seconds=arguments.seconds,
            rate=arguments.rate,
        )
    due = "when it was due" if arguments.rate else "send()"
    sampled = f"from {due} to the acknowledgement"
    show(together("produce", arguments.size, done, sampled), json=arguments.json)
    return EXIT_OK
