"""Latency at a steady rate, at one and at three replicas, beside the bare skeleton of the same run.

Owns the lines of that table and the ratio under it. Every line is due to acknowledged, one record
at a time; it must never leave out what was due while something else stood still.
"""

from contextlib import suppress
from typing import Final

import msgspec

from bench import chain_nodes
from bench.chain import Latency
from bench.chain_nodes import Chain
from bench.lines import FLUSHED, UNFLUSHED, run_role
from bench.settings import LINGER_MS, PARTITIONS, RECORD_BYTES, Acks, Load
from bench.systems import System
from bench.table import Table
from bench.turns import FAILURES, say

SKELETON_AIM: Final = 2.5
TOPIC: Final = "latency"
FLUSHED_TOPIC: Final = "latency-flushed"


class Paced(msgspec.Struct, frozen=True, kw_only=True):
    """One latency line; without a system the bare skeleton."""

    client: str
    role: str = ""
    topic: str = ""
    acks: Acks = "all"
    linger_ms: int = 0
    flush: str


SKELETON: Final = Paced(client="bare gRPC chain", flush="fdatasync, group commit")
OURS: Final = (
    Paced(client="Tidelog", role="tidelog-latency", topic=TOPIC, flush="sync"),
    Paced(client="Tidelog", role="tidelog-latency", topic=TOPIC, acks="1", flush="sync"),
)
REPLICATED_ONLY: Final = Paced(
    client="Tidelog", role="tidelog-latency", topic="latency-replicated", flush="replicated"
)


def theirs() -> list[Paced]:
    """Kafka through confluent-kafka."""

    def line(topic: str, acks: Acks, linger_ms: int, flush: str) -> Paced:
        return Paced(
            client="confluent-kafka",
            role="confluent-latency",
            topic=topic,
            acks=acks,
            linger_ms=linger_ms,
            flush=flush,
        )

    return [
        line(FLUSHED_TOPIC, "all", 0, "flush.messages=1"),
        line(FLUSHED_TOPIC, "all", LINGER_MS, "flush.messages=1"),
        line(TOPIC, "all", 0, "none"),
        line(TOPIC, "1", 0, "none"),
    ]


class Pace:
    """One table, of the clusters that are there."""

    def __init__(
        self, nodes: int, tidelog: System | None, kafka: System | None, *, seconds: int, rate: int
    ) -> None:
        self._nodes = nodes
        self._tidelog = tidelog
        self._kafka = kafka
        self._rate = rate
        self._records = seconds * rate

    def run(self) -> None:
        """Prepare the topics, measure line by line, print."""
        took = {line: self._measured(line, system) for line, system in self._lines()}
        base = took[SKELETON]
        table = Table(
            f"Due to acknowledged at {self._rate:,} records/s, {self._records:,} records of "
            f"{RECORD_BYTES} bytes, {self._nodes} replica{'s' if self._nodes > 1 else ''}; "
            f"÷ bare: aim at most {SKELETON_AIM}",
            (
                *("client", "acks", "flush", "linger ms", "p50 ms", "p99 ms", "p99.9 ms"),
                *("p50 ÷ bare", "p99 ÷ bare", "p99.9 ÷ bare"),
            ),
        )
        for line, found in took.items():
            if found is None:
                continue
            cells = [found.p50_ms, found.p99_ms, found.p999_ms]
            against = [0.0] * 3 if base is None else [base.p50_ms, base.p99_ms, base.p999_ms]
            table.add(
                *(line.client, line.acks, line.flush, str(line.linger_ms)),
                *(f"{cell:.2f}" for cell in cells),
                *(
                    f"{cell / than:.2f}" if than else "-"
                    for cell, than in zip(cells, against, strict=True)
                ),
            )
        table.show()

    def _lines(self) -> list[tuple[Paced, System | None]]:
        lines: list[tuple[Paced, System | None]] = [(SKELETON, None)]
        if self._tidelog is not None:
            ours = [*OURS, *([REPLICATED_ONLY] if self._nodes > 1 else [])]
            lines += [(line, self._tidelog) for line in ours]
        if self._kafka is not None:
            lines += [(line, self._kafka) for line in theirs()]
        return lines

    def _measured(self, line: Paced, system: System | None) -> Latency | None:
        try:
            if system is None:
                chain = Chain(nodes=self._nodes, disk="flushed")
                return chain_nodes.paced(chain, self._records, self._rate)
            self._create(line, system)
            load = Load(
                bootstrap=system.bootstrap,
                topic=line.topic,
                records=self._records,
                acks=line.acks,
                rate_per_second=self._rate,
                linger_ms=line.linger_ms,
            )
            return run_role(line.role, load, Latency)
        except FAILURES as failure:
            say(failure, f"latency of {line.client}")
            return None

    def _create(self, line: Paced, system: System) -> None:
        """The line's topic; a line before may have made it."""
        flushed = FLUSHED if line.topic == FLUSHED_TOPIC else UNFLUSHED
        is_ours = system is self._tidelog
        settings = {"flush": line.flush} if is_ours else flushed
        with suppress(*FAILURES):
            system.create_topic(line.topic, settings, PARTITIONS)
