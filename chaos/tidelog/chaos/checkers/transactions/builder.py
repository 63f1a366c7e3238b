"""Writes a history of transactions down while it happens, for a simulator as for a live run.

A process calls one thing after the other; the builder holds its open transaction and refuses what
no client can have done. It must never correct what it is told: a wrong call is a bug of the caller.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.checkers.transactions.history import (
    NEVER_NS,
    OFFSET_UNKNOWN,
    Assignment,
    AssignmentKind,
    Operation,
    PollOperation,
    SendOperation,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)

OPERATIONS_MAX: Final = 2_000_000
"""Sends, polls and assignments of a history: about 2 GiB while it is judged."""
TRANSACTION_OPERATIONS_MAX: Final = 10_000
VALUE_CHARS_MAX: Final = 256
"""A value names its send; what else a record carries does not belong into a history."""


class HistoryFull(Exception):
    """A limit of the history is reached: the run is longer than what can be judged."""


class _Open:
    """A transaction that has not ended."""

    def __init__(self, process: str, began_ns: int, *, is_transactional: bool) -> None:
        self.process = process
        self.began_ns = began_ns
        self.is_transactional = is_transactional
        self.deciding_ns = NEVER_NS
        self.is_commit_asked = False
        self.operations: list[Operation] = []
        self.unanswered: dict[str, int] = {}
        """The value of each send without an acknowledgement, and its place in `operations`."""


class HistoryBuilder:
    """One history in the making."""

    def __init__(self, *, operations_max: int = OPERATIONS_MAX) -> None:
        self._operations_max = operations_max
        self._operations = 0
        self._transactions: list[Transaction] = []
        self._assignments: list[Assignment] = []
        self._open: dict[str, _Open] = {}
        self._plain: dict[str, _Open] = {}
        """Sends outside any transaction, by value: a process may have several on their way."""
        self._values: set[str] = set()
        self._now_ns: dict[str, int] = {}
        self._polls: dict[str, int] = {}
        self.log_starts: dict[PartitionKey, int] = {}
        self.compacted: set[PartitionKey] = set()

    def assign(self, process: str, positions: Mapping[PartitionKey, int], *, at_ns: int) -> None:
        """The process reads exactly these partitions; an offset below 0 keeps where it stood."""
        self._place(process, AssignmentKind.ASSIGN, positions, at_ns)

    def subscribe(self, process: str, partitions: Iterable[PartitionKey], *, at_ns: int) -> None:
        """The process joins a group that reads these partitions."""
        positions = dict.fromkeys(partitions, OFFSET_UNKNOWN)
        self._place(process, AssignmentKind.SUBSCRIBE, positions, at_ns)

    def seek(self, process: str, positions: Mapping[PartitionKey, int], *, at_ns: int) -> None:
        """The process goes on reading elsewhere, as it does after an abort."""
        self._place(process, AssignmentKind.SEEK, positions, at_ns)

    def begin(self, process: str, *, at_ns: int) -> None:
        """A transaction begins."""
        assert process not in self._open, f"{process} has an open transaction already"
        self._advance(process, at_ns)
        self._open[process] = _Open(process, at_ns, is_transactional=True)

    def send(self, process: str, partition: PartitionKey, value: str, *, at_ns: int) -> None:
        """A record is about to leave, in the open transaction or outside any."""
        assert value not in self._values, f"{value} is sent twice, so it names no send"
        assert len(value) <= VALUE_CHARS_MAX, f"a value has at most {VALUE_CHARS_MAX} characters"
        self._advance(process, at_ns)
        self._count()
        self._values.add(value)
        into = self._open.get(process)
        if into is None:
            into = self._plain[value] = _Open(process, at_ns, is_transactional=False)
        into.unanswered[value] = len(into.operations)
        self._append(
            into, SendOperation(partition=partition, value=value, began_ns=at_ns, ended_ns=at_ns)
        )

    def acknowledge(
        self, process: str, value: str, *, at_ns: int, offset: int = OFFSET_UNKNOWN
    ) -> None:
        """A send was acknowledged; a plain one has taken effect with that."""
        is_plain = value in self._plain
        into = self._plain[value] if is_plain else self._open[process]
        self._answer(into, value, at_ns, offset)
        if is_plain:
            self._close(self._plain.pop(value), TransactionOutcome.COMMITTED, at_ns)

    def give_up(self, value: str, outcome: TransactionOutcome, *, at_ns: int) -> None:
        """A plain send ended without an acknowledgement: refused for good, or unknown."""
        assert outcome is not TransactionOutcome.COMMITTED, "what committed was acknowledged"
        self._close(self._plain.pop(value), outcome, at_ns)

    def poll(
        self,
        process: str,
        records: Mapping[PartitionKey, Sequence[tuple[int, str]]],
        *,
        began_ns: int,
        ended_ns: int,
        ends: Mapping[PartitionKey, int] | None = None,
        rebalanced: Iterable[PartitionKey] = (),
        is_final: bool = False,
    ) -> None:
        """A poll was answered; an error without records is no operation."""
        assert began_ns <= ended_ns, "a poll ends after it began"
        self._advance(process, began_ns)
        self._advance(process, ended_ns)
        self._count()
        operation = PollOperation(
            began_ns=began_ns,
            ended_ns=ended_ns,
            records=tuple((key, tuple(each)) for key, each in records.items() if each),
            ends=tuple((ends or {}).items()),
            rebalanced=tuple(rebalanced),
            is_final=is_final,
        )
        self._polls[process] = self._polls.get(process, 0) + 1
        into = self._open.get(process)
        if into is not None:
            self._append(into, operation)
            return
        alone = _Open(process, began_ns, is_transactional=False)
        alone.operations.append(operation)
        self._close(alone, TransactionOutcome.COMMITTED, ended_ns)

    def commit(self, process: str, *, at_ns: int) -> None:
        """Commit is called: before this moment nothing of the transaction is readable."""
        self._decide(process, at_ns)
        self._open[process].is_commit_asked = True

    def abort(self, process: str, *, at_ns: int) -> None:
        """Abort is called."""
        self._decide(process, at_ns)

    def end(self, process: str, outcome: TransactionOutcome, *, at_ns: int) -> None:
        """The transaction ended, as far as the process knows."""
        self._advance(process, at_ns)
        ended = self._open.pop(process)
        assert ended.is_commit_asked or outcome is not TransactionOutcome.COMMITTED, (
            f"{process} never asked for the commit that it was told of"
        )
        self._close(ended, outcome, at_ns)

    def build(self, *, at_ns: int) -> TransactionHistory:
        """The history so far; whatever has not ended has an unknown outcome."""
        for opened in (*self._open.values(), *self._plain.values()):
            self._close(opened, TransactionOutcome.UNKNOWN, at_ns)
        self._open.clear()
        self._plain.clear()
        return TransactionHistory(
            transactions=tuple(self._transactions),
            assignments=tuple(self._assignments),
            log_starts=dict(self.log_starts),
            compacted=tuple(sorted(self.compacted)),
        )

    def _decide(self, process: str, at_ns: int) -> None:
        self._advance(process, at_ns)
        into = self._open[process]
        if into.deciding_ns == NEVER_NS:
            into.deciding_ns = at_ns

    def _place(
        self,
        process: str,
        kind: AssignmentKind,
        positions: Mapping[PartitionKey, int],
        at_ns: int,
    ) -> None:
        self._advance(process, at_ns)
        self._count()
        self._assignments.append(
            Assignment(
                process=process,
                at_ns=at_ns,
                kind=kind,
                positions=tuple(positions.items()),
                polls_before=self._polls.get(process, 0),
            )
        )

    def _advance(self, process: str, now_ns: int) -> None:
        # The checkers order the calls of a process by their times: a call that seems to begin
        # before the previous one would be judged as if the process had done them the other way.
        assert now_ns >= self._now_ns.get(process, 0), f"the time of {process} goes back"
        self._now_ns[process] = now_ns

    def _count(self) -> None:
        if self._operations >= self._operations_max:
            raise HistoryFull(
                f"a history holds at most {self._operations_max} operations: end the run earlier"
            )
        self._operations += 1

    def _append(self, into: _Open, operation: Operation) -> None:
        if len(into.operations) >= TRANSACTION_OPERATIONS_MAX:
            raise HistoryFull(
                f"a transaction holds at most {TRANSACTION_OPERATIONS_MAX} operations"
            )
        into.operations.append(operation)

    def _answer(self, into: _Open, value: str, at_ns: int, offset: int) -> None:
        place = into.unanswered.pop(value)
        sent = into.operations[place]
        assert isinstance(sent, SendOperation), "only sends are acknowledged"
        assert at_ns >= sent.began_ns, "a send is acknowledged after it began"
        into.operations[place] = msgspec.structs.replace(sent, ended_ns=at_ns, offset=offset)

    def _close(self, opened: _Open, outcome: TransactionOutcome, at_ns: int) -> None:
        for place in opened.unanswered.values():
            sent = opened.operations[place]
            opened.operations[place] = msgspec.structs.replace(sent, ended_ns=at_ns)
        self._transactions.append(
            Transaction(
                number=len(self._transactions),
                process=opened.process,
                began_ns=opened.began_ns,
                deciding_ns=opened.deciding_ns,
                ended_ns=at_ns,
                outcome=outcome,
                operations=tuple(opened.operations),
                is_transactional=opened.is_transactional,
                is_commit_asked=opened.is_commit_asked,
            )
        )
