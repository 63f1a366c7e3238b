"""Checks that money moved by transactions is neither made nor lost, at every read_committed read.

Each transfer is a transaction whose records, its legs, add up to zero. What a reader has been
handed adds up to zero as well, once the legs that it has not come to are counted: each partition
shows a transaction when its marker has arrived, and a poll returns any next part of a log. A leg
that lies where the reader has been, and that it was not handed, is money made or lost.
"""

from collections.abc import Callable

from tidelog.chaos.checkers.history.history import Anomaly, PartitionKey
from tidelog.chaos.checkers.transactions.history import (
    OFFSET_UNKNOWN,
    Assignment,
    AssignmentKind,
    PollOperation,
    SendOperation,
    TransactionHistory,
)
from tidelog.chaos.checkers.transactions.sessions import calls_of_processes
from tidelog.chaos.checkers.transactions.view import NumberedPoll, TransactionView

AmountOf = Callable[[str], int | None]
"""What a value moves; None: it is no leg of a transfer."""


def check_bank(history: TransactionHistory, amount_of: AmountOf) -> list[Anomaly]:
    """The first read of each reader that does not add up; members of groups are not judged."""
    view = TransactionView(history)
    legs = _legs(history, amount_of)
    in_groups = {
        each.process for each in history.assignments if each.kind is AssignmentKind.SUBSCRIBE
    }
    anomalies: list[Anomaly] = []
    for process, calls in calls_of_processes(view).items():
        if process in in_groups:
            continue
        reader = _Reader(view, legs, amount_of)
        for call in calls:
            if isinstance(call, Assignment):
                reader.place(call)
                continue
            anomaly = reader.take(call)
            if anomaly is not None:
                anomalies.append(anomaly)
                break
    return anomalies


def _legs(history: TransactionHistory, amount_of: AmountOf) -> dict[int, list[SendOperation]]:
    """The legs of each transfer, by the number of its transaction."""
    legs: dict[int, list[SendOperation]] = {}
    for transaction in history.transactions:
        own = [each for each in transaction.sends() if amount_of(each.value) is not None]
        if own:
            total = sum(amount_of(each.value) or 0 for each in own)
            # One that can never commit may have been broken off after some of its legs.
            assert total == 0 or not transaction.may_commit, (
                f"{transaction.name} moves {total} out of nothing"
            )
            legs[transaction.number] = own
    return legs


class _Reader:
    """What one process has been handed."""

    def __init__(
        self, view: TransactionView, legs: dict[int, list[SendOperation]], amount_of: AmountOf
    ) -> None:
        self._view = view
        self._legs = legs
        self._amount_of = amount_of
        self._been: dict[PartitionKey, tuple[int, int]] = {}
        """The first offset that it was handed in each partition, and the first that it was not."""
        self._handed: set[str] = set()
        self._missing: dict[int, dict[str, SendOperation]] = {}
        """Of each transfer of which it has been handed some legs, the others."""
        self._balance = 0

    def place(self, assignment: Assignment) -> None:
        """The reader moves: of what it leaps over it has been nowhere."""
        for partition, position in assignment.positions:
            _, behind = self._been.get(partition, (0, OFFSET_UNKNOWN))
            if position == OFFSET_UNKNOWN:
                if assignment.kind is not AssignmentKind.SEEK:
                    self._been.pop(partition, None)
            elif position > behind:
                self._been[partition] = (position, position)

    def take(self, reader: NumberedPoll) -> Anomaly | None:
        """One more answer, and what is wrong with the sum after it."""
        for partition, records in reader.poll.records:
            for offset, value in records:
                self._move(partition, offset, offset + 1)
                self._hand(value)
        self._reach_ends(reader.poll)
        ahead = 0
        passed: list[SendOperation] = []
        for missing in self._missing.values():
            for leg in missing.values():
                if self._is_behind(leg):
                    passed.append(leg)
                else:
                    ahead += self._amount_of(leg.value) or 0
        total = self._balance + ahead
        if total == 0:
            return None
        named = ", ".join(f"{leg.value} in {leg.partition}" for leg in passed[:3])
        why = f"it has passed {named} without being handed it" if passed else "a leg came twice"
        partitions = ", ".join(dict.fromkeys(leg.partition for leg in passed)) or "all accounts"
        return Anomaly(
            "bank",
            partitions,
            f"after {reader.name} the balance is {self._balance}, and legs worth {ahead} lie ahead "
            f"of the reader: {total} was made or lost; {why}",
        )

    def _move(self, partition: PartitionKey, offset: int, next_offset: int) -> None:
        first, behind = self._been.get(partition, (offset, offset))
        self._been[partition] = (min(first, offset), max(behind, next_offset))

    def _reach_ends(self, poll: PollOperation) -> None:
        for partition, end in poll.ends:
            first = 0 if poll.is_final else self._been.get(partition, (end, end))[0]
            self._move(partition, min(first, end), end)

    def _hand(self, value: str) -> None:
        amount = self._amount_of(value)
        if amount is None or value in self._handed or value not in self._view.writers:
            return
        self._handed.add(value)
        self._balance += amount
        number = self._view.writers[value][0].number
        missing = self._missing.get(number)
        if missing is None:
            missing = self._missing[number] = {each.value: each for each in self._legs[number]}
        missing.pop(value, None)
        if not missing:
            del self._missing[number]

    def _is_behind(self, leg: SendOperation) -> bool:
        """Whether the reader has been where the leg lies."""
        offset = self._view.place_of(leg)
        first, behind = self._been.get(leg.partition, (0, 0))
        return offset != OFFSET_UNKNOWN and first <= offset < behind
