"""`python -m bench [--peers kafka] [--only replicated,latency,start …]`: Tidelog beside its peers.

Owns the order of a run and what of it was asked for. Lines take turns within each repetition, so
that all meet the same machine; medians and every ratio are printed. It must never fail for being
slow: a peer that is missing, or a line that fails, is one printed line, and the rest runs.
"""

import argparse
import re
import signal
import sys
from contextlib import ExitStack
from typing import Final

from bench import lines, replicated, threads
from bench.first_record import FirstRecord
from bench.growth import idle, many
from bench.lines import topic
from bench.pace import Pace
from bench.peers.kafka.node import KAFKA_VERSION, PeerMissingError, prepare
from bench.processes import python_child, resident_bytes
from bench.settings import PARTITIONS
from bench.soak import Soak
from bench.systems import Kafka, System, Tidelog
from bench.table import Table, median
from bench.transactions import TransactionLines
from bench.turns import FAILURES, Line, Turns, say
from bench.window import ROLE_SECONDS_MAX

MIB: Final = 1024 * 1024
PARTS: Final = (
    *("start", "single", "threads", "replicated", "latency", "transactions"),
    *("idle", "partitions"),
)
LONG_PARTS: Final = ("soak",)
"""Only where they are asked for."""
EVERY_PART: Final = (*PARTS, *LONG_PARTS)
OF_NODES: Final = {
    "single": (1,),
    "threads": (1,),
    "replicated": (1, 3),
    "latency": (1, 3),
    "transactions": (1,),
    "soak": (1,),
}
"""The parts that need a cluster, and of how many nodes."""
SOAK_RATE: Final = 20_000
LATENCY_RATE: Final = 1_000


class Run:
    """What was asked for, and whether Kafka stands beside it."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.parts: list[str] = given.only.split(",")
        self.is_kafka_wanted = "kafka" in given.peers
        self.lines_wanted = re.compile(given.lines)

    def prepare(self) -> None:
        """What can be missing is said in one line before anything is timed."""
        if self.is_kafka_wanted:
            try:
                prepare()
            except PeerMissingError as missing:
                print(missing, flush=True)
                self.is_kafka_wanted = False

    def start(self, nodes: int, stack: ExitStack) -> tuple[System | None, System | None]:
        """Ours and theirs, of so many nodes; None for what did not come up."""
        ours: System | None = None
        theirs: System | None = None
        try:
            ours = Tidelog(nodes, stack)
        except FAILURES as failure:
            say(failure, f"Tidelog of {nodes} nodes")
        if self.is_kafka_wanted:
            try:
                theirs = Kafka(nodes, stack)
            except FAILURES as failure:
                say(failure, f"Apache Kafka of {nodes} nodes")
        return ours, theirs

    def chosen(self, every: list[Line]) -> list[Line]:
        return [line for line in every if self.lines_wanted.search(line.key)]

    # -- the parts -------------------------------------------------------------------------------

    def of_nodes(self, nodes: int) -> None:
        """Every part that was asked for and needs such a cluster."""
        wanted = [part for part in self.parts if nodes in OF_NODES.get(part, ())]
        if not wanted:
            return
        with ExitStack() as stack:
            ours, theirs = self.start(nodes, stack)
            if "single" in wanted:
                self.single(ours, theirs)
            if "threads" in wanted and ours is not None:
                repetitions = self.given.repetitions or 3
                threads.show(ours, self.given.records, self.given.length, repetitions)
            if "replicated" in wanted:
                self.replicated(nodes, ours, theirs)
            if "latency" in wanted:
                seconds, rate = self.given.seconds, self.given.rate or LATENCY_RATE
                Pace(nodes, ours, theirs, seconds=seconds, rate=rate).run()
            if "transactions" in wanted:
                self.transactions(ours, theirs)
            if "soak" in wanted and ours is not None:
                self.soak(ours)
            for system in (ours, theirs):
                if system is not None:
                    held = [f"{resident_bytes(pid) / MIB:.0f}" for pid in system.pids]
                    print(f"{system.name} after the load: {', '.join(held)} MiB resident a node")

    def single(self, ours: System | None, theirs: System | None) -> None:
        """Per-record clients at one replica."""
        records, repetitions = self.given.records, self.given.repetitions or 3
        of_ours = lines.tidelog_lines(ours.bootstrap, records) if ours else []
        of_theirs = lines.kafka_lines(theirs.bootstrap, records) if theirs else []
        turns = Turns(
            self.chosen([*of_ours, *of_theirs, *lines.chain_lines()]), repetitions, lines.COMMON
        )
        for line in turns.lines:
            if line.creates is None:
                continue
            system = ours if line.key.startswith("tidelog") else theirs
            assert system is not None, f"{line.key} is a line of a system that is not there"
            for repetition in range(repetitions):
                system.create_topic(topic(line.key, repetition), line.creates, PARTITIONS)
        turns.measure()
        turns.show("produce")
        turns.show("consume")
        turns.show_ratios(lines.pairs())

    def replicated(self, nodes: int, ours: System | None, theirs: System | None) -> None:
        """Bulk lines with as many replicas as nodes."""
        seconds = self.given.length
        sources: list[replicated.TidelogLines | replicated.KafkaLines] = []
        if ours:
            sources.append(replicated.TidelogLines(ours, seconds))
        if theirs:
            sources.append(replicated.KafkaLines(theirs, seconds))
        every = [line for source in sources for line in source.lines()]
        chosen = self.chosen([*every, *replicated.chain_lines(nodes, seconds)])
        if any(line.direction == "consume" for line in chosen):
            for source in sources:
                try:
                    source.fill()
                except FAILURES as failure:
                    say(failure, "filling the topic that is read")
        turns = Turns(chosen, self.given.repetitions or 2, replicated.common(nodes))
        turns.measure()
        turns.show("produce")
        turns.show("consume")
        turns.show_ratios(replicated.pairs(nodes))

    def transactions(self, ours: System | None, theirs: System | None) -> None:
        """What they cost producers and readers, and what open ones cost a node."""
        found = {"tidelog": ours, "kafka": theirs}
        systems = {name: system for name, system in found.items() if system is not None}
        repetitions = self.given.repetitions or 3
        TransactionLines(systems, seconds=self.given.length, repetitions=repetitions).run()

    def soak(self, ours: System) -> None:
        """Steady load for as long as `--seconds` says."""
        rate, every = self.given.rate or SOAK_RATE, self.given.every
        try:
            Soak(ours, seconds=self.given.seconds, rate=rate, every_seconds=every).run()
        except FAILURES as failure:
            say(failure, "soak")

    def first_record(self) -> None:
        """From nothing to the first acknowledged record."""
        starts_count = self.given.repetitions or 3
        table = Table(
            f"Start to first acknowledged record (1 replica, acks=all), {starts_count} starts",
            ("node", "listening s", "first record s", "idle MiB"),
        )
        for system in ("tidelog", *(("kafka",) if self.is_kafka_wanted else ())):
            try:
                starts = [_first_record(system) for _ in range(starts_count)]
            except FAILURES as failure:
                say(failure, f"start of {system}")
                continue
            table.add(
                "Tidelog" if system == "tidelog" else f"Apache Kafka {KAFKA_VERSION}",
                f"{median([one.listening_seconds for one in starts]):.2f}",
                f"{median([one.acknowledged_seconds for one in starts]):.2f}",
                f"{median([one.idle_bytes for one in starts]) / MIB:.0f}",
            )
        table.show()


def _first_record(system: str) -> FirstRecord:
    with python_child("bench.first_record", system) as child:
        return child.result(FirstRecord, timeout_seconds=ROLE_SECONDS_MAX)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--peers", choices=["kafka"], nargs="*", default=[])
    parser.add_argument("--only", default=",".join(PARTS), help="some of " + ",".join(EVERY_PART))
    parser.add_argument("--lines", default="", help="a pattern: only lines whose key has it")
    sizes = parser.add_argument("--nodes", type=int, choices=(1, 3), nargs="*", default=(1, 3))
    sizes.help = "clusters of that many"
    parser.add_argument("--repetitions", type=int, help="default: 3, of replicated lines 2")
    parser.add_argument("--records", type=int, default=1_000_000, help="of each single line")
    parser.add_argument("--length", type=float, default=2.0, help="seconds of a replicated line")
    parser.add_argument(
        "--seconds", type=int, default=10, help="of each latency line, and of the soak"
    )
    parser.add_argument("--every", type=float, default=30.0, help="seconds between looks of a soak")
    rates = f"records/s of latency lines ({LATENCY_RATE:,}) or of a soak ({SOAK_RATE:,})"
    parser.add_argument("--rate", type=int, help=rates)
    parser.add_argument("--consumers", type=int, default=5_000, help="idle ones")
    parser.add_argument("--partitions", type=int, default=10_000, help="replicated ones")
    return parser


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the nodes are ended too
    parser = _parser()
    run = Run(parser.parse_args())
    if unknown := [part for part in run.parts if part not in EVERY_PART]:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(EVERY_PART)}")
    run.prepare()
    if "start" in run.parts:
        run.first_record()
    for nodes in run.given.nodes:
        run.of_nodes(nodes)
    if "idle" in run.parts:
        idle.show(run.given.consumers)
    if "partitions" in run.parts:
        many.show(run.given.partitions)


if __name__ == "__main__":
    main()
