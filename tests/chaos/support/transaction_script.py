"""Histories of transactions written line by line, as the literature's examples are."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.chaos.checkers.transactions import (
    HistoryBuilder,
    TransactionHistory,
    TransactionOutcome,
    check_transactions,
)

STEP_NS: Final = 1_000_000

Records = Sequence[tuple[int, str]]


class TransactionScript:
    """Each line takes a millisecond, and begins a millisecond after the line before it."""

    def __init__(self) -> None:
        self.builder = HistoryBuilder()
        self.now_ns = 0

    def later(self) -> int:
        """The next millisecond."""
        self.now_ns += STEP_NS
        return self.now_ns

    def begin(self, *processes: str) -> None:
        """Transactions begin."""
        for process in processes:
            self.builder.begin(process, at_ns=self.later())

    def send(self, process: str, partition: str, value: str, at: int | None = None) -> None:
        """A record is sent; with `at` it is acknowledged there."""
        self.builder.send(process, partition, value, at_ns=self.later())
        if at is not None:
            self.builder.acknowledge(process, value, offset=at, at_ns=self.later())

    def poll(
        self,
        process: str,
        ends: Mapping[str, int] | None = None,
        *,
        rebalanced: Sequence[str] = (),
        is_final: bool = False,
        **records: Records,
    ) -> None:
        """An answer; with `ends` the process asked for the ends and read up to them."""
        self.builder.poll(
            process,
            records,
            began_ns=self.later(),
            ended_ns=self.later(),
            ends=ends,
            rebalanced=rebalanced,
            is_final=is_final,
        )

    def commit(
        self, process: str, outcome: TransactionOutcome = TransactionOutcome.COMMITTED
    ) -> None:
        """Commit is called, and answered so."""
        self.builder.commit(process, at_ns=self.later())
        self.builder.end(process, outcome, at_ns=self.later())

    def abort(self, process: str) -> None:
        """Abort is called, and acknowledged."""
        self.builder.abort(process, at_ns=self.later())
        self.builder.end(process, TransactionOutcome.ABORTED, at_ns=self.later())

    def lose(self, process: str) -> None:
        """Commit is called, and its answer is lost."""
        self.commit(process, TransactionOutcome.UNKNOWN)

    def assign(self, process: str, **positions: int) -> None:
        """A consumer reads these partitions from these offsets."""
        self.builder.assign(process, positions, at_ns=self.later())

    def seek(self, process: str, **positions: int) -> None:
        """A consumer goes on elsewhere."""
        self.builder.seek(process, positions, at_ns=self.later())

    def write(self, process: str, *sends: tuple[str, str, int]) -> None:
        """A whole transaction that only sends: partition, value, offset."""
        self.begin(process)
        for partition, value, at in sends:
            self.send(process, partition, value, at)
        self.commit(process)

    def drain(self, ends: Mapping[str, int], **records: Records) -> None:
        """A new consumer reads everything to the end, after everything is over."""
        self.assign("drain", **dict.fromkeys(ends, 0))
        began_ns, ended_ns = self.later(), self.later()
        self.builder.poll(
            "drain", records, began_ns=began_ns, ended_ns=ended_ns, ends=ends, is_final=True
        )

    def history(self) -> TransactionHistory:
        """What was written so far."""
        return self.builder.build(at_ns=self.later())

    def found(self) -> set[str]:
        """The names of the checks that find something."""
        return {anomaly.check for anomaly in check_transactions(self.history())}

    def told(self) -> list[str]:
        """What the checks say."""
        return [str(anomaly) for anomaly in check_transactions(self.history())]
