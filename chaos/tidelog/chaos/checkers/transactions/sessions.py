"""How each consumer moved through its partitions: what it stood behind, and what came next.

A passage is one such move. Nothing is assumed of the first record after an assignment whose
position the process does not know, nor after a rebalance. It must never judge.
"""

from collections import deque
from collections.abc import Iterator

import msgspec

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.checkers.transactions.history import (
    OFFSET_UNKNOWN,
    Assignment,
    AssignmentKind,
)
from tidelog.chaos.checkers.transactions.view import NumberedPoll, TransactionView


class Passage(msgspec.Struct, frozen=True):
    """A consumer stood behind one offset and went on to another."""

    reader: NumberedPoll
    partition: PartitionKey
    before: int
    """The last offset that it was handed, or the one below its position."""
    after: int
    is_internal: bool
    """Both are of one answer."""
    is_end: bool = False
    """`after` is the end that it asked for and reached, not a record."""

    @property
    def told(self) -> str:
        """The move in words."""
        handed = f"read to the end {self.after}" if self.is_end else f"was handed {self.after}"
        return f"{self.reader.name} stood behind {self.before} and {handed}"


def passages(view: TransactionView) -> list[Passage]:
    """Every move that is not to the very next offset, each consumer's in its own order."""
    return view.remembered("passages", lambda: list(_passages(view)))


def _passages(view: TransactionView) -> Iterator[Passage]:
    for calls in calls_of_processes(view).values():
        stands: dict[PartitionKey, int] = {}
        for call in calls:
            if isinstance(call, Assignment):
                stands = _after(call, stands)
            else:
                yield from _moves(call, stands)


def calls_of_processes(view: TransactionView) -> dict[str, list[Assignment | NumberedPoll]]:
    """What each process did as a consumer, in order."""
    coming: dict[str, deque[Assignment]] = {}
    for assignment in view.history.assignments:
        coming.setdefault(assignment.process, deque()).append(assignment)
    calls: dict[str, list[Assignment | NumberedPoll]] = {}
    answered: dict[str, int] = {}
    for reader in view.polls:
        process = reader.transaction.process
        own = calls.setdefault(process, [])
        count = answered.get(process, 0)
        waiting = coming.get(process)
        while waiting and waiting[0].polls_before <= count:
            own.append(waiting.popleft())
        own.append(reader)
        answered[process] = count + 1
    return calls


def _after(assignment: Assignment, stands: dict[PartitionKey, int]) -> dict[PartitionKey, int]:
    """Where the consumer stands after an assignment, as far as that is known."""
    if assignment.kind is AssignmentKind.SUBSCRIBE:
        return {}
    after: dict[PartitionKey, int] = {}
    if assignment.kind is AssignmentKind.SEEK:
        after = dict(stands)
    for partition, position in assignment.positions:
        if position != OFFSET_UNKNOWN:
            after[partition] = position - 1
        elif partition in stands:
            after[partition] = stands[partition]
    return after


def _moves(reader: NumberedPoll, stands: dict[PartitionKey, int]) -> Iterator[Passage]:
    for partition in reader.poll.rebalanced:
        stands.pop(partition, None)
    for partition, records in reader.poll.records:
        before = stands.get(partition)
        is_internal = False
        for offset, _ in records:
            if before is not None and offset != before + 1:
                yield Passage(reader, partition, before, offset, is_internal)
            before = offset
            is_internal = True
        if before is not None:
            stands[partition] = before
    for partition, end in reader.poll.ends:
        before = stands.get(partition)
        if before is not None and before < end - 1:
            yield Passage(reader, partition, before, end, is_internal=False, is_end=True)
            stands[partition] = end - 1
