"""`python -m bench [--peers kafka] [--records N] [--seconds N]`: Tidelog beside its peers.

Owns the order of a run and what is printed. Lines take turns within each repetition, so that all
meet the same machine; medians and every ratio are printed. It must never fail for being slow: a
peer that is missing, or a line that fails, is one printed line, and the rest runs.
"""

import argparse
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

import msgspec

from bench.chain import Latency
from bench.first_record import FirstRecord
from bench.lines import (
    COMMON,
    FLUSHED,
    PEERS_OF,
    ROLE_SECONDS_MAX,
    Line,
    chain_lines,
    kafka_lines,
    run_role,
    tidelog_lines,
    topic,
)
from bench.peers.kafka.node import KAFKA_VERSION, KafkaNode, PeerMissingError, prepare
from bench.peers.tidelog_node import TidelogNode, create_topics
from bench.processes import ChildFailedError, python_child, resident_bytes
from bench.settings import LINGER_MS, PARTITIONS, RECORD_BYTES, STALL_SECONDS_MAX, Acks, Load
from bench.spike import chains
from bench.table import Table, Throughput, count, median, ratio

LATENCY_TOPIC: Final = "latency"
LATENCY_FLUSHED_TOPIC: Final = "latency-flushed"
MIB: Final = 1024 * 1024
FAILURES: Final = (ChildFailedError, PeerMissingError, ValueError)


def _say(failure: BaseException, what: str) -> None:
    lines = str(failure).splitlines() or [type(failure).__name__]
    print(f"{what} failed: {lines[0]}; {lines[-1]}", flush=True)


class Run:
    """One run: the systems that came up, and what their lines measured."""

    def __init__(self, given: argparse.Namespace, stack: ExitStack) -> None:
        self.records: int = given.records
        self.repetitions: int = given.repetitions
        self.latency_records: int = given.seconds * given.rate
        self.rate: int = given.rate
        self.is_kafka_wanted = "kafka" in given.peers
        self._stack = stack
        self.tidelog: TidelogNode | None = None
        self.kafka: KafkaNode | None = None
        self.measured: dict[str, list[Throughput]] = {}

    def prepare(self) -> None:
        """What can be missing is said in one line before anything is timed."""
        if self.is_kafka_wanted:
            try:
                prepare()
            except PeerMissingError as missing:
                print(missing, flush=True)
                self.is_kafka_wanted = False

    def start_nodes(self) -> None:
        try:
            self.tidelog = self._stack.enter_context(TidelogNode())
        except FAILURES as failure:
            _say(failure, "Tidelog's node")
        if self.is_kafka_wanted:
            try:
                self.kafka = self._stack.enter_context(KafkaNode())
            except FAILURES as failure:
                _say(failure, "Apache Kafka's node")

    def lines(self) -> list[Line]:
        ours = tidelog_lines(self.tidelog.bootstrap, self.records) if self.tidelog else []
        theirs = kafka_lines(self.kafka.bootstrap, self.records) if self.kafka else []
        return [*ours, *theirs, *chain_lines()]

    def create_topics(self, lines: list[Line]) -> None:
        """Every topic before the clock of any line."""
        ours: dict[str, int] = {LATENCY_TOPIC: PARTITIONS}
        theirs: dict[str, Mapping[str, str]] = {LATENCY_TOPIC: {}, LATENCY_FLUSHED_TOPIC: FLUSHED}
        for line in lines:
            if line.creates is None:
                continue
            for repetition in range(self.repetitions):
                name = topic(line.key, repetition)
                if line.key.startswith("tidelog"):
                    ours[name] = PARTITIONS
                else:
                    theirs[name] = line.creates
        if self.tidelog:
            create_topics(self.tidelog.bootstrap, ours)
        if self.kafka:
            _create_kafka_topics(self.kafka.bootstrap, theirs)

    def measure(self, lines: list[Line]) -> None:
        for repetition in range(self.repetitions):
            for line in in_turn(lines, repetition):
                try:
                    self.measured.setdefault(line.key, []).append(line.run(repetition))
                except FAILURES as failure:
                    _say(failure, f"{line.client} ({line.key})")

    def rate_of(self, key: str) -> float:
        measured = self.measured.get(key, [])
        return median([one.records_per_second for one in measured]) if measured else 0.0


def in_turn(lines: list[Line], repetition: int) -> list[Line]:
    """What is read is produced before; every second repetition goes through the list backwards."""
    order = lines if repetition % 2 == 0 else lines[::-1]
    produce = [line for line in order if line.direction == "produce"]
    return [*produce, *(line for line in order if line.direction == "consume")]


def _create_kafka_topics(bootstrap: str, topics: dict[str, Mapping[str, str]]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, PARTITIONS, 1, config=dict(config)) for name, config in topics.items()]
    for created in admin.create_topics(new).values():
        created.result(STALL_SECONDS_MAX)


def _show_throughput(run: Run, lines: list[Line], direction: str) -> None:
    table = Table(
        f"{direction.capitalize()}, {run.repetitions} repetitions in turn, median: {COMMON}",
        (
            *("client", "replicas", "acks", "flush", "record bytes", "rec/s median"),
            *("lowest", "highest", "MB/s", "M records/hour"),
        ),
    )
    for line in lines:
        measured = run.measured.get(line.key, [])
        if line.direction != direction or not measured:
            continue
        rates = [one.records_per_second for one in measured]
        middle = next(one for one in measured if one.records_per_second == median(rates))
        table.add(
            *(line.client, "1", line.acks, line.flush, line.record, count(median(rates))),
            *(count(min(rates)), count(max(rates)), f"{middle.megabytes_per_second:.1f}"),
            count(middle.records_per_hour / 1e6),
        )
    table.show()


def _settings(line: Line) -> str:
    return line.client if line.acks == "-" else f"{line.client}, acks={line.acks}, {line.flush}"


def _show_ratios(run: Run, lines: list[Line]) -> None:
    by_key = {line.key: line for line in lines}
    table = Table(
        f"Tidelog ÷ peer, same run: {COMMON}",
        ("Tidelog", "record bytes", "peer", "Tidelog rec/s", "peer rec/s", "ratio"),
    )
    for ours, peers in PEERS_OF.items():
        for theirs in peers:
            our_rate, their_rate = run.rate_of(ours), run.rate_of(theirs)
            if our_rate and their_rate:
                line, peer = by_key[ours], by_key[theirs]
                rates = (count(our_rate), count(their_rate), ratio(our_rate, their_rate))
                table.add(_settings(line), line.record, _settings(peer), *rates)
    if table.rows:
        table.show()


class Paced(msgspec.Struct, frozen=True, kw_only=True):
    """One latency line."""

    client: str
    role: str
    bootstrap: str
    topic: str
    acks: Acks
    linger_ms: int
    flush: str


def _paced_lines(run: Run) -> list[Paced]:
    lines: list[Paced] = []

    def add(client: str, at: str, topic_name: str, acks: Acks, linger_ms: int, flush: str) -> None:
        role = f"{client.split('-')[0].lower()}-latency"
        lines.append(
            Paced(
                client=client,
                role=role,
                bootstrap=at,
                topic=topic_name,
                acks=acks,
                linger_ms=linger_ms,
                flush=flush,
            )
        )

    if run.tidelog:
        address = run.tidelog.bootstrap
        add("Tidelog", address, LATENCY_TOPIC, "all", 0, "before the answer")
        add("Tidelog", address, LATENCY_TOPIC, "1", 0, "after the answer")
    if run.kafka:
        address, client = run.kafka.bootstrap, "confluent-kafka"
        add(client, address, LATENCY_FLUSHED_TOPIC, "all", 0, "flush.messages=1")
        add(client, address, LATENCY_FLUSHED_TOPIC, "all", LINGER_MS, "flush.messages=1")
        add(client, address, LATENCY_TOPIC, "1", 0, "none")
    add("bare gRPC chain", "", "", "all", 0, "fdatasync, group commit")
    return lines


def _latency(line: Paced, run: Run) -> Latency:
    if not line.bootstrap:
        return chains.latency(run.latency_records, RECORD_BYTES, run.rate)
    load = Load(
        bootstrap=line.bootstrap,
        topic=line.topic,
        records=run.latency_records,
        acks=line.acks,
        rate_per_second=run.rate,
        linger_ms=line.linger_ms,
    )
    return run_role(line.role, load, Latency)


def _show_latency(run: Run) -> None:
    table = Table(
        f"Due to acknowledged at {run.rate:,} records/s, {run.latency_records:,} records of "
        f"{RECORD_BYTES} bytes, 1 replica",
        ("client", "acks", "flush", "linger ms", "p50 ms", "p99 ms", "p99.9 ms"),
    )
    for line in _paced_lines(run):
        try:
            took = _latency(line, run)
        except FAILURES as failure:
            _say(failure, f"latency of {line.client}")
            continue
        cells = (f"{took.p50_ms:.2f}", f"{took.p99_ms:.2f}", f"{took.p999_ms:.2f}")
        table.add(line.client, line.acks, line.flush, str(line.linger_ms), *cells)
    table.show()


def _show_first_record(run: Run) -> None:
    table = Table(
        f"Node: start to first acknowledged record (1 replica, acks=all), {run.repetitions} starts",
        ("node", "listening s", "first record s", "idle MiB"),
    )
    for system in ("tidelog", *(("kafka",) if run.is_kafka_wanted else ())):
        try:
            starts = [_first_record(system) for _ in range(run.repetitions)]
        except FAILURES as failure:
            _say(failure, f"start of {system}")
            continue
        name = "Tidelog" if system == "tidelog" else f"Apache Kafka {KAFKA_VERSION}"
        table.add(
            name,
            f"{median([one.listening_seconds for one in starts]):.2f}",
            f"{median([one.acknowledged_seconds for one in starts]):.2f}",
            f"{median([one.idle_bytes for one in starts]) / MIB:.0f}",
        )
    table.show()


def _first_record(system: str) -> FirstRecord:
    with python_child("bench.first_record", system) as child:
        return child.result(FirstRecord, timeout_seconds=ROLE_SECONDS_MAX)


def _show_memory(run: Run) -> None:
    for name, node in (("Tidelog", run.tidelog), ("Apache Kafka", run.kafka)):
        if node is not None:
            print(f"{name} node after the load: {resident_bytes(node.pid) / MIB:.0f} MiB resident")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--peers", choices=["kafka"], nargs="*", default=[])
    parser.add_argument("--records", type=int, default=1_000_000, help="of each line")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10, help="of each latency line")
    parser.add_argument("--rate", type=int, default=1000, help="records/s of the latency lines")
    return parser


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the nodes are ended too
    with ExitStack() as stack:
        run = Run(_parser().parse_args(), stack)
        run.prepare()
        _show_first_record(run)
        run.start_nodes()
        lines = run.lines()
        run.create_topics(lines)
        run.measure(lines)
        _show_throughput(run, lines, "produce")
        _show_throughput(run, lines, "consume")
        _show_ratios(run, lines)
        _show_latency(run)
        _show_memory(run)


if __name__ == "__main__":
    main()
