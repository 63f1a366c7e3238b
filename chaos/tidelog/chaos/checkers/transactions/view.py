"""The history of a run with transactions, indexed once for all of its checks.

Owns what several checks need alike: who wrote a value, where it was read, which transactions must
have committed, which offsets are known to hold a committed record. It must never judge.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeVar, cast

import msgspec

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.checkers.transactions.history import (
    OFFSET_UNKNOWN,
    PollOperation,
    SendOperation,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)

_Found = TypeVar("_Found")

Place = tuple[PartitionKey, int]
"""A partition and an offset."""


class TransactionFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found, and which records and polls it explains."""

    partition: str
    detail: str
    values: tuple[str, ...] = ()
    """Records of which nothing more is told by later checks."""
    polls: tuple[tuple[int, PartitionKey], ...] = ()
    """Polls whose records of one partition later checks do not believe."""


Findings = Iterator[TransactionFinding]


class Blame:
    """What earlier checks have explained.

    One fault shows in many ways: a record at two offsets is also skipped, lost and part of cycles.
    Each record and poll is told once, under the most telling name, and believed no longer.
    """

    def __init__(self) -> None:
        self.values: set[str] = set()
        self.polls: set[tuple[int, PartitionKey]] = set()

    @property
    def explained(self) -> int:
        """Grows with each thing that is explained."""
        return len(self.values) + len(self.polls)

    def take(self, finding: TransactionFinding) -> None:
        """Later checks leave out what this one explains."""
        self.values.update(finding.values)
        self.polls.update(finding.polls)


class NumberedPoll(msgspec.Struct, frozen=True):
    """A poll with its number among all polls, and the transaction that it is part of."""

    number: int
    transaction: Transaction
    poll: PollOperation

    @property
    def name(self) -> str:
        """How evidence calls it."""
        return f"a poll in {self.transaction.name} ({spell_times(self.poll)})"


class TransactionView:
    """Of one history; whatever is asked for is computed once."""

    def __init__(self, history: TransactionHistory) -> None:
        self.history = history
        self.blame = Blame()
        self.writers: dict[str, tuple[Transaction, SendOperation]] = {}
        """By value."""
        self.polls: list[NumberedPoll] = []
        self._remembered: dict[str, tuple[int, object]] = {}
        for transaction in history.transactions:
            for operation in transaction.operations:
                if isinstance(operation, PollOperation):
                    self.polls.append(NumberedPoll(len(self.polls), transaction, operation))
                else:
                    self.writers[operation.value] = (transaction, operation)

    def remembered(self, name: str, compute: Callable[[], _Found]) -> _Found:
        """Computes something again only after a check has explained more."""
        explained, found = self._remembered.get(name, (-1, None))
        if explained != self.blame.explained:
            found = compute()
            self._remembered[name] = (self.blame.explained, found)
        return cast("_Found", found)

    @cached_property
    def places(self) -> dict[str, dict[Place, NumberedPoll]]:
        """Where each value was read, and by which poll first."""
        found: dict[str, dict[Place, NumberedPoll]] = {}
        for each in self.polls:
            for partition, records in each.poll.records:
                for offset, value in records:
                    found.setdefault(value, {}).setdefault((partition, offset), each)
        return found

    @cached_property
    def must_have_committed(self) -> list[bool]:
        """Of each transaction: it was told so, or a part of it was read."""
        seen = self.places
        return [
            transaction.outcome is TransactionOutcome.COMMITTED
            or (transaction.may_commit and any(each.value in seen for each in transaction.sends()))
            for transaction in self.history.transactions
        ]

    def place_of(self, sent: SendOperation) -> int:
        """The offset of a record in its partition, as acknowledged or as read."""
        if sent.offset != OFFSET_UNKNOWN:
            return sent.offset
        read_at = self.places.get(sent.value, {})
        return next((at for key, at in read_at if key == sent.partition), OFFSET_UNKNOWN)

    def committed_sends(self) -> Iterator[tuple[Transaction, SendOperation]]:
        """Every record of a transaction that must have committed, if no check explains it."""
        for transaction in self.history.transactions:
            if self.must_have_committed[transaction.number]:
                for sent in transaction.sends():
                    if sent.value not in self.blame.values:
                        yield transaction, sent

    def known(self) -> dict[PartitionKey, list[tuple[int, str]]]:
        """Offsets that hold a committed record, in order, with its value.

        Known is what was read and what was acknowledged, less what a check has explained so far.
        """
        known: dict[PartitionKey, list[tuple[int, str]]] = {}
        for _, sent in self.committed_sends():
            offset = self.place_of(sent)
            if offset >= self.history.log_starts.get(sent.partition, 0):
                known.setdefault(sent.partition, []).append((offset, sent.value))
        for records in known.values():
            records.sort()
        return known


def spell_ms(at_ns: int) -> str:
    """A time as evidence tells it."""
    return f"{at_ns / 1_000_000:.3f} ms"


def spell_times(operation: SendOperation | PollOperation | Transaction) -> str:
    """From when to when."""
    return f"{operation.began_ns / 1_000_000:.3f} to {spell_ms(operation.ended_ns)}"
