"""What transactions cost: `python -m bench --only transactions [--peers kafka]`.

Owns the lines and their order: a producer with transactions of three sizes beside the same one
without, commits by themselves, and readers of committed records beside those of all. Both systems
take turns within a repetition. What is compared is a ratio within one system, so that clients that
differ by much in speed can stand beside each other; and the commits as they are.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from bench.open_transactions import OpenTransactions
from bench.processes import python_child
from bench.settings import PARTITIONS
from bench.systems import System
from bench.table import Table, count, median
from bench.transaction_clients import Done, Work
from bench.turns import FAILURES, say
from bench.window import ROLE_SECONDS_MAX

SIZES: Final = (100, 10_000, 100_000)
READ_SIZE: Final = 10_000
"""Records of a transaction of the topic that is read."""
OPEN: Final = 1_000


class TransactionLines:
    """Of one node of each system."""

    def __init__(self, systems: Mapping[str, System], *, seconds: float, repetitions: int) -> None:
        self._systems = systems
        self._seconds = seconds
        self._repetitions = repetitions
        self._number = 0

    def run(self) -> None:
        """Every table."""
        self._produce()
        self._read()
        if "tidelog" in self._systems:
            try:
                OpenTransactions(self._systems["tidelog"], OPEN).show()
            except FAILURES as failure:
                say(failure, f"{OPEN} open transactions")

    def _role(self, system: str, role: str, work: Work) -> Done | None:
        text = msgspec.json.encode(work).decode()
        try:
            with python_child("bench.transaction_clients", f"{system}-{role}", text) as child:
                return child.result(Done, timeout_seconds=ROLE_SECONDS_MAX)
        except FAILURES as failure:
            say(failure, f"{system}, {role}")
            return None

    def _topic(self, system: str) -> str:
        self._number += 1
        name = f"transactions-{self._number}"
        self._systems[system].create_topic(name, {}, PARTITIONS)
        return name

    def _produced(self, system: str, size: int, *, is_transactional: bool) -> Done | None:
        topic = self._topic(system)
        work = Work(
            bootstrap=self._systems[system].bootstrap,
            topic=topic,
            transactional_id=f"bench-{topic}" if is_transactional else "",
            records_a_transaction=size,
            seconds=self._seconds,
        )
        try:
            return self._role(system, "produce", work)
        finally:
            self._systems[system].delete_topic(topic)

    def _produce(self) -> None:
        table = Table(
            f"Transactions beside the same records without, one producer, {PARTITIONS} partitions, "
            f"100-byte records, acks=all, {self._repetitions} repetitions in turn, median",
            (
                *("client", "records a transaction", "rec/s", "rec/s without", "ratio"),
                *("commits/s", "commit p50 ms", "commit p99 ms"),
            ),
        )
        found: dict[tuple[str, int, bool], list[Done]] = {}
        for repetition in range(self._repetitions):
            for size in SIZES:
                for system in list(self._systems)[:: 1 if repetition % 2 == 0 else -1]:
                    for is_transactional in (False, True):
                        done = self._produced(system, size, is_transactional=is_transactional)
                        if done is not None:
                            key = (system, size, is_transactional)
                            found.setdefault(key, []).append(done)
        for system in self._systems:
            for size in SIZES:
                with_them = found.get((system, size, True), [])
                without = found.get((system, size, False), [])
                if with_them and without:
                    table.add(*row(CLIENTS[system], size, with_them, without))
        table.show()

    def _read(self) -> None:
        table = Table(
            f"Readers of committed records beside those of all, transactions of {READ_SIZE:,} "
            f"records, {self._repetitions} repetitions in turn, median",
            ("client", "records", "read_committed rec/s", "read_uncommitted rec/s", "ratio"),
        )
        for system in self._systems:
            topic = self._topic(system)
            filled = self._role(
                system,
                "produce",
                Work(
                    bootstrap=self._systems[system].bootstrap,
                    topic=topic,
                    transactional_id=f"bench-{topic}",
                    records_a_transaction=READ_SIZE,
                    seconds=self._seconds,
                ),
            )
            if filled is None:
                continue
            rates: dict[bool, list[float]] = {True: [], False: []}
            for repetition in range(self._repetitions):
                for is_committed in (True, False)[:: 1 if repetition % 2 == 0 else -1]:
                    work = Work(
                        bootstrap=self._systems[system].bootstrap,
                        topic=topic,
                        is_committed_only=is_committed,
                        records=filled.records,
                    )
                    done = self._role(system, "read", work)
                    if done is not None:
                        rates[is_committed].append(done.rate)
            if rates[True] and rates[False]:
                committed, every = median(rates[True]), median(rates[False])
                table.add(
                    *(CLIENTS[system], count(filled.records), count(committed), count(every)),
                    f"{committed / every:.2f}",
                )
        table.show()


CLIENTS: Final = {
    "tidelog": "Tidelog send_batch(), poll_batches()",
    "kafka": "confluent-kafka produce_batch(), consume()",
}


def row(client: str, size: int, with_them: list[Done], without: list[Done]) -> tuple[str, ...]:
    """Of the first table."""
    rate, plain = (median([each.rate for each in some]) for some in (with_them, without))
    commits = sorted(each for done in with_them for each in done.commits_ms)
    seconds = sum(done.seconds for done in with_them)
    return (
        *(client, count(size), count(rate), count(plain), f"{rate / plain:.2f}"),
        *(
            f"{len(commits) / seconds:.1f}",
            f"{at_share(commits, 0.5):.1f}",
            f"{at_share(commits, 0.99):.1f}",
        ),
    )


def at_share(values: list[float], share: float) -> float:
    """A percentile of values in ascending order."""
    return values[min(len(values) - 1, int(len(values) * share))]
