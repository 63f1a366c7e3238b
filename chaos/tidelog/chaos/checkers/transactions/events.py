"""What happened before what in a history of transactions, as a graph.

Theory of operation. A transaction is no point in time: it reads at one moment, its commit is
decided at another, and each of its partitions shows it at a third. So the nodes are these moments:

    asked ──▶ answered ──▶ … ──▶ decided ──▶ readable at p/5 ──▶ readable at p/8 ──▶ …
    (each poll of a transaction)    │                  │
                                    └▶ readable at q/2 └▶ answered (a poll that read up to p/5)

- A decision comes before each of its records is readable; in one partition lower offsets are
  readable before higher ones, because nothing above an open transaction is.
- wr: a record is readable before a poll that returned it is answered. Drawn only from the highest
  offset of a poll: all lower ones come before it along the partition.
- rw: a reader that asked for the end of a partition and read up to it has seen all that was
  readable; what lies behind became readable after it had asked. Drawn only from such an end, which
  is the final version of the partition at that moment. A plain poll draws none, because it may
  return any next part of the log.
- The polls of one transaction are in order, and all before its decision; the calls of one process
  are in order; what was over comes before what began later in real time.

Each edge holds in every correct log whatever its brokers do, so a cycle is a contradiction. Write
order across partitions is no edge: writes of transactions that run at once interleave freely.
"""

from bisect import bisect_left

import msgspec

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.checkers.transactions.graph import ANTI, DATA, PROCESS, REALTIME, Graph
from tidelog.chaos.checkers.transactions.history import Transaction, TransactionOutcome
from tidelog.chaos.checkers.transactions.view import NumberedPoll, Place, TransactionView


class Decided(msgspec.Struct, frozen=True):
    """The commit of a transaction is decided, or a plain send is appended."""

    transaction: Transaction


class Asked(msgspec.Struct, frozen=True):
    """A poll is called."""

    reader: NumberedPoll


class Answered(msgspec.Struct, frozen=True):
    """A poll has its answer."""

    reader: NumberedPoll


class Readable(msgspec.Struct, frozen=True):
    """A record can be read from now on."""

    partition: PartitionKey
    offset: int
    value: str


class Moment(msgspec.Struct, frozen=True):
    """A point in real time at which something was over."""

    at_ns: int


Event = Decided | Asked | Answered | Readable | Moment


class EventGraph:
    """The events of one history and their order."""

    def __init__(self, view: TransactionView) -> None:
        self.graph = Graph()
        self.events: list[Event] = []
        self._view = view
        self._readable: dict[Place, int] = {}
        self._offsets: dict[PartitionKey, list[int]] = {}
        self._decided: dict[int, int] = {}
        """The node of each transaction that must have committed and has sent anything."""
        self._asked: dict[int, int] = {}
        self._answered: dict[int, int] = {}
        self._add_records()
        self._add_decisions()
        for reader in view.polls:
            self._add_poll(reader)
        by_transaction: dict[int, list[NumberedPoll]] = {}
        for reader in view.polls:
            by_transaction.setdefault(reader.transaction.number, []).append(reader)
        for polls in by_transaction.values():
            self._order_transaction(polls)
        self._order_processes(by_transaction)
        self._order_times()

    def _add(self, event: Event) -> int:
        self.events.append(event)
        return self.graph.add_node()

    def _add_records(self) -> None:
        for partition, records in self._view.known().items():
            self._offsets[partition] = [offset for offset, _ in records]
            before: int | None = None
            for offset, value in records:
                node = self._add(Readable(partition, offset, value))
                self._readable[partition, offset] = node
                if before is not None:
                    self.graph.add_edge(before, node, DATA, length=0)
                before = node

    def _add_decisions(self) -> None:
        for transaction, sent in self._view.committed_sends():
            node = self._decided.get(transaction.number)
            if node is None:
                node = self._decided[transaction.number] = self._add(Decided(transaction))
            readable = self._readable.get((sent.partition, self._view.place_of(sent)))
            if readable is not None:
                self.graph.add_edge(node, readable, DATA, length=0)

    def _add_poll(self, reader: NumberedPoll) -> None:
        asked = self._asked[reader.number] = self._add(Asked(reader))
        answered = self._answered[reader.number] = self._add(Answered(reader))
        self.graph.add_edge(asked, answered, DATA, length=0)
        blame = self._view.blame
        for partition, records in reader.poll.records:
            if (reader.number, partition) in blame.polls:
                continue
            believed = [offset for offset, value in records if value not in blame.values]
            readable = self._readable.get((partition, max(believed, default=-1)))
            if readable is not None:
                self.graph.add_edge(readable, answered, DATA)
        for partition, end in reader.poll.ends:
            offsets = self._offsets.get(partition, [])
            behind = bisect_left(offsets, end)
            if behind < len(offsets) and (reader.number, partition) not in blame.polls:
                readable = self._readable[partition, offsets[behind]]
                self.graph.add_edge(asked, readable, ANTI)

    def _order_transaction(self, polls: list[NumberedPoll]) -> None:
        transaction = polls[0].transaction
        before: int | None = None
        decided = self._decided.get(transaction.number)
        for reader in polls:
            if before is not None:
                self.graph.add_edge(before, self._asked[reader.number], DATA)
            before = self._answered[reader.number]
            # A poll after the call of the commit may be answered after the decision.
            if decided is not None and reader.poll.ended_ns <= transaction.deciding_ns:
                self.graph.add_edge(before, decided, DATA)

    def _order_processes(self, by_transaction: dict[int, list[NumberedPoll]]) -> None:
        before: dict[str, tuple[int, int]] = {}
        """For each process its latest event, and when that was over."""
        for transaction in sorted(self._view.history.transactions, key=lambda each: each.began_ns):
            polls = by_transaction.get(transaction.number, [])
            decided = self._decided.get(transaction.number)
            first = self._asked[polls[0].number] if polls else decided
            # One of unknown outcome may be decided long after its process gave it up.
            is_known = transaction.outcome is TransactionOutcome.COMMITTED
            last = decided if is_known else None
            if last is None and polls:
                last = self._answered[polls[-1].number]
            earlier = before.get(transaction.process)
            if first is not None and earlier is not None and earlier[1] <= transaction.began_ns:
                self.graph.add_edge(earlier[0], first, PROCESS)
            if last is not None:
                before[transaction.process] = (last, transaction.ended_ns)

    def _order_times(self) -> None:
        over: list[tuple[int, int]] = []
        begun: list[tuple[int, int]] = []
        for reader in self._view.polls:
            over.append((reader.poll.ended_ns, self._answered[reader.number]))
            begun.append((reader.poll.began_ns, self._asked[reader.number]))
        for number, node in self._decided.items():
            transaction = self._view.history.transactions[number]
            if transaction.outcome is TransactionOutcome.COMMITTED:
                over.append((transaction.ended_ns, node))
            is_called = transaction.is_transactional
            begun.append((transaction.deciding_ns if is_called else transaction.began_ns, node))
        # One chain of moments stands for the edges between all pairs: their number stays small.
        times = sorted({at_ns for at_ns, _ in over})
        moments: list[int] = []
        for at_ns in times:
            moments.append(self._add(Moment(at_ns)))
            if len(moments) > 1:
                self.graph.add_edge(moments[-2], moments[-1], REALTIME, length=0)
        for at_ns, node in over:
            self.graph.add_edge(node, moments[bisect_left(times, at_ns)], REALTIME)
        for at_ns, node in begun:
            earlier = bisect_left(times, at_ns)
            if earlier > 0:
                self.graph.add_edge(moments[earlier - 1], node, REALTIME, length=0)
