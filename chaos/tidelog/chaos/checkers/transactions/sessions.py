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
    """Every move of every consumer, each consumer's in its own order."""
    return view.remembered("passages", lambda: list(_passages(view)))


def _passages(view: TransactionView) -> Iterator[Passage]:
    polls: dict[str, list[NumberedPoll]] = {}
    assignments: dict[str, list[Assignment]] = {}
    for each in view.polls:
        polls.setdefault(each.transaction.process, []).append(each)
    for assignment in view.history.assignments:
        assignments.setdefault(assignment.process, []).append(assignment)
    for process, own in polls.items():
        stands: dict[PartitionKey, int] = {}
        coming = deque(assignments.get(process, ()))
        for answered, reader in enumerate(own):
            while coming and coming[0].polls_before <= answered:
                stands = _after(coming.popleft(), stands)
            yield from _moves(reader, stands)


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
            if before is not None:
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
