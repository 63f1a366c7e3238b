"""Measures how fast the checkers of transactions judge a history; prints figures, asserts nothing.

    python -m bench.transaction_checkers --operations 100000

The history is made in memory by processes that read, process and write in transactions over a log
that is right, so that every check and the search for cycles go through all of it. Processor time is
what counts: a busy machine does not change it much.
"""

import argparse
import time
from typing import Final

from tidelog.chaos.checkers.transactions import (
    HistoryBuilder,
    TransactionHistory,
    TransactionOutcome,
    check_transactions,
)
from tidelog.chaos.checkers.transactions.events import EventGraph
from tidelog.chaos.checkers.transactions.view import TransactionView
from tidelog.chaos.sim.base.seeds import SeededRandom

PARTITIONS: Final = tuple(f"orders-{number}" for number in range(16))
PROCESSES: Final = 8
POLL_RECORDS_MAX: Final = 40
ABORTED: Final = 0.2


class _World:
    """A log whose transactions run one after the other."""

    def __init__(self, operations: int) -> None:
        self.random = SeededRandom(1, "transaction checkers")
        self.builder = HistoryBuilder()
        self.operations = operations
        self.now_ns = 0
        self.logs: dict[str, list[str]] = {name: [] for name in PARTITIONS}
        """The value at each offset; empty: a marker, or a record that was aborted."""
        self.positions = [dict.fromkeys(PARTITIONS, 0) for _ in range(PROCESSES)]
        self.done = 0
        self.read = 0

    def later(self) -> int:
        self.now_ns += 1_000
        return self.now_ns

    def run(self) -> TransactionHistory:
        for number in range(PROCESSES):
            self.builder.assign(f"p{number}", self.positions[number], at_ns=self.later())
        while self.done < self.operations:
            self._transact(self.random.below(PROCESSES))
        return self.builder.build(at_ns=self.later())

    def _transact(self, number: int) -> None:
        process = f"p{number}"
        is_aborted = self.random.chance(ABORTED)
        self.builder.begin(process, at_ns=self.later())
        self._poll(number)
        touched = [PARTITIONS[self.random.below(len(PARTITIONS))] for _ in range(3)]
        for name in touched:
            log = self.logs[name]
            value = f"{name}/{len(log)}"
            self.builder.send(process, name, value, at_ns=self.later())
            self.builder.acknowledge(process, value, offset=len(log), at_ns=self.later())
            log.append("" if is_aborted else value)
        self.done += 1 + len(touched)
        (self.builder.abort if is_aborted else self.builder.commit)(process, at_ns=self.later())
        for name in dict.fromkeys(touched):
            self.logs[name].append("")
        outcome = TransactionOutcome.ABORTED if is_aborted else TransactionOutcome.COMMITTED
        self.builder.end(process, outcome, at_ns=self.later())

    def _poll(self, number: int) -> None:
        records: dict[str, list[tuple[int, str]]] = {}
        positions = self.positions[number]
        for name in self.random.shuffled(list(PARTITIONS))[:4]:
            start = positions[name]
            end = min(start + POLL_RECORDS_MAX, len(self.logs[name]))
            records[name] = [
                (start + at, value) for at, value in enumerate(self.logs[name][start:end]) if value
            ]
            positions[name] = end
            self.read += len(records[name])
        began_ns = self.later()
        self.builder.poll(f"p{number}", records, began_ns=began_ns, ended_ns=self.later())


def main() -> int:
    """Prints one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=100_000)
    arguments = parser.parse_args()
    world = _World(arguments.operations)
    history = world.run()
    print(
        f"{history.operations} operations in {len(history.transactions)} transactions, "
        f"{world.read} records read"
    )
    began = time.process_time()
    graph = EventGraph(TransactionView(history)).graph
    print(f"graph of {len(graph)} events: {time.process_time() - began:.1f} s of processor time")
    began = time.process_time()
    anomalies = check_transactions(history)
    spent = time.process_time() - began
    print(
        f"every check, cycles included: {spent:.1f} s of processor time, "
        f"{history.operations / spent:,.0f} operations/s, {len(anomalies)} anomalies"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
