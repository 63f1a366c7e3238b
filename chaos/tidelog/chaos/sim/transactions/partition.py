"""What one leader knows of its partition: producers, open transactions, aborted ones, offsets.

All of it is a function of the entries, by `apply` alone, so that a live leader and one that has
read the same log have the same. Transactions are kept by the parts that a broker's log uses.
"""

from collections.abc import Iterable

import msgspec

from tidelog.broker.log.transactions.aborted import AbortedIndex, AbortedTransaction
from tidelog.broker.log.transactions.admission import ProducerHere
from tidelog.broker.log.transactions.open import OpenTransactions
from tidelog.chaos.sim.transactions.truth import Entry


class Producer(msgspec.Struct, kw_only=True):
    """Of one producer id."""

    epoch: int
    is_open: bool = False
    coordinator_epoch: int = -1
    last_sequence: int = -1
    stored: dict[int, int] = {}
    """Offsets of the batches of this epoch, by sequence."""
    staged: list[tuple[str, int, int]] = []
    """Offsets of groups that its marker will decide about."""


class PartitionState(msgspec.Struct, kw_only=True):
    """Of one partition."""

    producers: dict[int, Producer] = {}
    transactions: OpenTransactions = msgspec.field(default_factory=OpenTransactions)
    aborted: AbortedIndex = msgspec.field(default_factory=AbortedIndex)
    offsets: dict[str, tuple[int, int]] = {}
    """By group: position and state, as committed."""
    end: int = 0

    def apply(self, entry: Entry) -> None:
        """Takes the next entry of the log."""
        assert entry.offset == self.end, f"{entry.offset} comes behind {self.end}"
        self.end += 1
        if entry.producer_id < 0:
            return
        producer = self.producers.get(entry.producer_id)
        if producer is None or entry.producer_epoch > producer.epoch:
            before = producer
            producer = self.producers[entry.producer_id] = Producer(epoch=entry.producer_epoch)
            if before is not None:
                producer.is_open = before.is_open
                producer.coordinator_epoch = before.coordinator_epoch
                producer.staged = before.staged
        if entry.is_marker:
            self._end(entry, producer)
            return
        if entry.sequence >= 0:
            producer.last_sequence = entry.sequence
            producer.stored[entry.sequence] = entry.offset
        producer.is_open = True
        self.transactions.begin(entry.producer_id, entry.offset)
        if entry.position is not None:
            producer.staged.append(entry.position)

    def _end(self, entry: Entry, producer: Producer) -> None:
        producer.is_open = False
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.last_sequence = -1
        producer.stored.clear()
        staged, producer.staged = producer.staged, []
        if entry.is_commit:
            for group, position, state in staged:
                self.offsets[group] = (position, state)
        aborted = self.transactions.end(
            entry.producer_id, entry.offset, is_aborted=not entry.is_commit
        )
        if aborted is not None:
            self.aborted.add(aborted)

    def here(self, producer_id: int) -> ProducerHere | None:
        """As admission looks at it."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return None
        return ProducerHere(
            epoch=producer.epoch,
            is_open=producer.is_open,
            coordinator_epoch=producer.coordinator_epoch,
        )

    def stable(self, high_watermark: int) -> int:
        """How far readers of committed records go."""
        self.transactions.commit_to(high_watermark)
        return self.transactions.last_stable_offset(high_watermark)

    def aborted_between(self, begin: int, end: int) -> list[AbortedTransaction]:
        """What such readers skip."""
        return self.aborted.overlapping(begin, end)

    def is_staged(self, group: str) -> bool:
        """Whether a transaction is open that may commit offsets of the group."""
        return any(
            each[0] == group for producer in self.producers.values() for each in producer.staged
        )

    def told(self) -> object:
        """All of it, to be compared."""
        return (
            {number: msgspec.to_builtins(each) for number, each in self.producers.items()},
            self.transactions.first_open_offset(),
            len(self.transactions),
            self.aborted.encode(),
            self.offsets,
            self.end,
        )


def rebuilt(entries: Iterable[Entry]) -> PartitionState:
    """What a leader makes of the log when it begins."""
    state = PartitionState()
    for entry in entries:
        state.apply(entry)
    return state
