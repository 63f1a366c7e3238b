"""Writes a history of transactions as EDN, as Jepsen's workload for Kafka and Elle read it.

Each operation has two lines: `:invoke` when it was called, `:ok`, `:fail` or `:info` when it ended.
A `:send`, `:poll` or `:txn` is a vector of `[:send key value]` and `[:poll]`, completed as
`[:send key [offset value]]` and `[:poll {key [[offset value] …]}]`. Keys are partitions and values
are records, both as whole numbers; `EdnNames` says which is which.

What a Jepsen history cannot say is said another way:

- A process does one thing at a time, and an unknown outcome ends it: a plain send beside another
  gets a process of its own, and what comes after an unknown outcome is done by the next process of
  the same thread.
- A consumer that seeks is one that is assigned its other partitions and then all of them. The same
  stands after an aborted transaction: Jepsen takes it that consumers are rewound then, and ours say
  by a seek whether they are.
- An assignment inside a transaction comes after it. That a read reached the end that it asked for
  is not told: Jepsen draws no rw edges.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.checkers.transactions.history import (
    OFFSET_UNKNOWN,
    Assignment,
    AssignmentKind,
    Operation,
    SendOperation,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)


class EdnNames:
    """The whole numbers that stand for partitions and values, in order of first use."""

    def __init__(self, history: TransactionHistory) -> None:
        self.partitions: dict[PartitionKey, int] = {}
        self.values: dict[str, int] = {}
        for assignment in history.assignments:
            for partition, _ in assignment.positions:
                self.key(partition)
        for transaction in history.transactions:
            for sent in transaction.sends():
                self.key(sent.partition)
                self.value(sent.value)

    def key(self, partition: PartitionKey) -> int:
        """The number of a partition."""
        return self.partitions.setdefault(partition, len(self.partitions))

    def value(self, value: str) -> int:
        """The number of a value; one that nobody sent gets a number as well."""
        return self.values.setdefault(value, len(self.values))


class _Line:
    """One operation of one thread, called or ended."""

    def __init__(self, at_ns: int, kind: str, function: str, value: str, more: str = "") -> None:
        self.at_ns = at_ns
        self.kind = kind
        self.text = f":f :{function}, :value {value}{more}"


class _Thread:
    """Does one thing at a time; a process that ends without an outcome is followed by another."""

    def __init__(self) -> None:
        self.lines: deque[_Line] = deque()
        self.free_ns = 0
        self.ended_processes = 0


def export_edn(history: TransactionHistory) -> Iterator[str]:
    """The lines of the history, in the order of their times."""
    names = EdnNames(history)
    threads: list[_Thread] = []
    for assignments, transactions in _by_process(history):
        threads += _Process(names, assignments).write(transactions)
    heads = [
        (thread.lines[0].at_ns, thread.lines[0].kind != "invoke", number)
        for number, thread in enumerate(threads)
        if thread.lines
    ]
    heapq.heapify(heads)
    index = 0
    while heads:
        _, _, number = heapq.heappop(heads)
        thread = threads[number]
        line = thread.lines.popleft()
        process = number + len(threads) * thread.ended_processes
        yield (
            f"{{:index {index}, :time {line.at_ns}, :type :{line.kind}, "
            f":process {process}, {line.text}}}"
        )
        index += 1
        thread.ended_processes += line.kind == "info"
        if thread.lines:
            head = thread.lines[0]
            heapq.heappush(heads, (head.at_ns, head.kind != "invoke", number))


def _by_process(
    history: TransactionHistory,
) -> Iterator[tuple[deque[Assignment], list[Transaction]]]:
    assignments: dict[str, deque[Assignment]] = {}
    transactions: dict[str, list[Transaction]] = {}
    for assignment in history.assignments:
        assignments.setdefault(assignment.process, deque()).append(assignment)
    for transaction in history.transactions:
        transactions.setdefault(transaction.process, []).append(transaction)
    for process in dict.fromkeys([*assignments, *transactions]):
        own = sorted(transactions.get(process, []), key=lambda each: each.began_ns)
        yield assignments.get(process, deque()), own


class _Process:
    """Writes the lines of one process: its own thread, and one for each plain send beside it."""

    def __init__(self, names: EdnNames, assignments: deque[Assignment]) -> None:
        self._names = names
        self._assignments = assignments
        self._threads = [_Thread()]
        self._how = "assign"
        self._assigned: dict[PartitionKey, None] = {}
        self._polls = 0

    def write(self, transactions: Iterable[Transaction]) -> list[_Thread]:
        """Everything that the process did."""
        for transaction in transactions:
            while self._assignments and self._is_before(self._assignments[0], transaction):
                self._assign(self._assignments.popleft())
            self._do(transaction)
        while self._assignments:
            self._assign(self._assignments.popleft())
        return self._threads

    def _is_before(self, assignment: Assignment, transaction: Transaction) -> bool:
        is_polled = assignment.polls_before <= self._polls
        return is_polled and assignment.at_ns <= transaction.began_ns

    def _do(self, transaction: Transaction) -> None:
        thread = self._thread_at(transaction.began_ns)
        operations = transaction.operations
        polled = [key for each in transaction.polls() for key, _ in each.records]
        self._polls += len(list(transaction.polls()))
        if operations:
            function = _function(operations)
            called = " ".join(self._called(each) for each in operations)
            ended = " ".join(self._ended(each) for each in operations)
            kind = transaction.outcome.value
            more = self._rebalances(transaction)
            thread.lines.append(_Line(transaction.began_ns, "invoke", function, f"[{called}]"))
            thread.lines.append(_Line(transaction.ended_ns, kind, function, f"[{ended}]", more))
            thread.free_ns = transaction.ended_ns
        if transaction.outcome is TransactionOutcome.ABORTED and polled:
            self._reset(polled, transaction.ended_ns)

    def _thread_at(self, at_ns: int) -> _Thread:
        """The first thread that is free."""
        for thread in self._threads:
            if thread.free_ns <= at_ns:
                return thread
        self._threads.append(_Thread())
        return self._threads[-1]

    def _assign(self, assignment: Assignment) -> None:
        keys = [partition for partition, _ in assignment.positions]
        at_ns = max(assignment.at_ns, self._threads[0].free_ns)
        if assignment.kind is AssignmentKind.SEEK:
            self._reset(keys, at_ns)
            return
        self._how = assignment.kind.value
        sought = [key for key, at in assignment.positions if at != OFFSET_UNKNOWN]
        self._assigned = dict.fromkeys(keys)
        if sought:
            self._reset(sought, at_ns)
        else:
            self._told_assigned(keys, at_ns)

    def _reset(self, keys: Iterable[PartitionKey], at_ns: int) -> None:
        """Forgets where the consumer stood in these partitions."""
        others = {key: None for key in self._assigned if key not in set(keys)}
        self._told_assigned(others, at_ns)
        self._assigned |= dict.fromkeys(keys)
        self._told_assigned(self._assigned, at_ns)

    def _told_assigned(self, keys: Iterable[PartitionKey], at_ns: int) -> None:
        thread = self._threads[0]
        at_ns = max(at_ns, thread.free_ns)
        value = "[" + " ".join(str(self._names.key(key)) for key in keys) + "]"
        for kind in ("invoke", "ok"):
            thread.lines.append(_Line(at_ns, kind, self._how, value))

    def _called(self, operation: Operation) -> str:
        if isinstance(operation, SendOperation):
            key, value = self._names.key(operation.partition), self._names.value(operation.value)
            return f"[:send {key} {value}]"
        return "[:poll]"

    def _ended(self, operation: Operation) -> str:
        if isinstance(operation, SendOperation):
            key, value = self._names.key(operation.partition), self._names.value(operation.value)
            offset = "nil" if operation.offset == OFFSET_UNKNOWN else operation.offset
            return f"[:send {key} [{offset} {value}]]"
        answers = (
            f"{self._names.key(partition)} ["
            + " ".join(f"[{offset} {self._names.value(value)}]" for offset, value in records)
            + "]"
            for partition, records in operation.records
        )
        return "[:poll {" + ", ".join(answers) + "}]"

    def _rebalances(self, transaction: Transaction) -> str:
        keys = dict.fromkeys(key for each in transaction.polls() for key in each.rebalanced)
        if not keys:
            return ""
        told = " ".join(str(self._names.key(key)) for key in keys)
        return f", :rebalance-log [{{:keys [{told}]}}]"


def _function(operations: Iterable[Operation]) -> str:
    kinds = {isinstance(each, SendOperation) for each in operations}
    if len(kinds) > 1:
        return "txn"
    return "send" if kinds.pop() else "poll"
