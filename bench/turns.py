"""Lines that take turns, what they measured, and the two tables that every comparison prints.

Owns the order of a run: every second repetition goes backwards, so that all lines meet the same
machine. It must never stop for a line that failed: that is one printed line, and the rest runs.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from confluent_kafka import KafkaException

from bench.peers.kafka.node import PeerMissingError
from bench.processes import ChildFailedError
from bench.settings import RECORD_BYTES
from bench.table import Table, Throughput, count, median, ratio
from tidelog.wire.errors import TidelogError

FAILURES: Final = (
    *(ChildFailedError, PeerMissingError, TidelogError, KafkaException),
    *(ValueError, OSError),
)
Direction = Literal["produce", "consume"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One printed line; `run` gets the number of the repetition."""

    key: str
    direction: Direction
    client: str
    replicas: int = 1
    clients: int = 1
    acks: str = "-"
    flush: str = "-"
    record: str = str(RECORD_BYTES)
    run: Callable[[int], Throughput]
    creates: Mapping[str, str] | None = None
    """Settings of the topic that it fills, one topic a repetition; None where it fills none."""

    @property
    def settings(self) -> str:
        """As a ratio names it."""
        many = f"{self.clients} × " if self.clients > 1 else ""
        name = f"{many}{self.client}"
        return name if self.acks == "-" else f"{name}, acks={self.acks}, {self.flush}"


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two lines of equal durability, and the ratio that is aimed at; 0: none is."""

    ours: str
    theirs: str
    aim: float = 0.0


def say(failure: BaseException, what: str) -> None:
    """One line for what failed."""
    lines = str(failure).splitlines() or [type(failure).__name__]
    print(f"{what} failed: {lines[0]}; {lines[-1]}", flush=True)


def in_turn(lines: Sequence[Line], repetition: int) -> list[Line]:
    """What is read is produced before; every second repetition goes through the list backwards."""
    order = lines if repetition % 2 == 0 else lines[::-1]
    produce = [line for line in order if line.direction == "produce"]
    return [*produce, *(line for line in order if line.direction == "consume")]


class Turns:
    """The lines of one comparison, and what they measured."""

    def __init__(
        self,
        lines: Sequence[Line],
        repetitions: int,
        common: str,
        *,
        settle: Callable[[], None] = os.sync,
    ) -> None:
        self.lines = lines
        self._settle = settle
        """What one line left dirty is not to be written back during the next."""
        self._repetitions = repetitions
        self._common = common
        self._measured: dict[str, list[Throughput]] = {}

    def measure(self) -> None:
        for repetition in range(self._repetitions):
            for line in in_turn(self.lines, repetition):
                try:
                    self._measured.setdefault(line.key, []).append(line.run(repetition))
                except FAILURES as failure:
                    say(failure, f"{line.client} ({line.key})")
                self._settle()

    def rate_of(self, key: str) -> float:
        measured = self._measured.get(key, [])
        return median([one.records_per_second for one in measured]) if measured else 0.0

    def show(self, direction: Direction) -> None:
        """Every line of the direction that measured something."""
        table = Table(
            f"{direction.capitalize()}, {self._repetitions} repetitions in turn, median: "
            f"{self._common}",
            (
                *("client", "clients", "replicas", "acks", "flush", "record bytes"),
                *("rec/s median", "lowest", "highest", "MB/s", "M records/hour"),
            ),
        )
        for line in self.lines:
            measured = self._measured.get(line.key, [])
            if line.direction != direction or not measured:
                continue
            rates = [one.records_per_second for one in measured]
            middle = next(one for one in measured if one.records_per_second == median(rates))
            table.add(
                *(line.client, str(line.clients), str(line.replicas), line.acks, line.flush),
                *(line.record, count(median(rates)), count(min(rates)), count(max(rates))),
                f"{middle.megabytes_per_second:.1f}",
                count(middle.records_per_hour / 1e6),
            )
        if table.rows:
            table.show()

    def show_ratios(self, pairs: Iterable[Pair]) -> None:
        """Every pair of which both lines measured something."""
        by_key = {line.key: line for line in self.lines}
        table = Table(
            f"Tidelog ÷ peer, same run: {self._common}",
            (
                *("Tidelog", "replicas", "record bytes", "peer", "Tidelog rec/s", "peer rec/s"),
                *("ratio", "aim"),
            ),
        )
        for pair in pairs:
            ours, theirs = self.rate_of(pair.ours), self.rate_of(pair.theirs)
            if not ours or not theirs:
                continue
            line, peer = by_key[pair.ours], by_key[pair.theirs]
            aim = f"{pair.aim:.1f}" if pair.aim else "-"
            table.add(
                *(line.settings, str(line.replicas), line.record, peer.settings),
                *(count(ours), count(theirs), ratio(ours, theirs), aim),
            )
        if table.rows:
            table.show()
