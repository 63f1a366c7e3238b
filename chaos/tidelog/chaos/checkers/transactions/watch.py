"""Invariants of transactions that hold at every step, of what is committed in every log. Pure.

Fed with batches as they are committed, in the order of each log, and with the records of
coordinators. It knows nothing of how a broker decides.

    decided_twice       two markers of one transaction that say two things
    unnamed_data        data of a transaction in a partition that no committed record of its
                        coordinator names
    marker_of_nothing   a marker whose decision no committed record of a coordinator carries
    data_after_end      data of a transaction behind its marker: nothing will ever end them
    overlapping         data of a transaction while an earlier one of its producer is open
    epoch_of_data       a marker with the epoch of the data that it ends
    older_coordinator   a marker of a coordinator that a newer one had followed here
    state_skipped       a transactional id went from one state to another that may not follow
    last_epoch          an identity of the epoch that is reserved for markers, or a marker above it
    marker_again        a marker that is in its partition already
"""

from collections.abc import Hashable
from typing import Final

from tidelog.broker.transactions.state.records import decode_record
from tidelog.broker.transactions.state.states import (
    EPOCH_MAX,
    MAY_FOLLOW,
    Succession,
    TransactionState,
)
from tidelog.wire.ids import PartitionKey

VIOLATIONS_MAX: Final = 5

Transaction = tuple[int, int]
"""Producer id, and the epoch of its data."""


class TransactionsWatch:
    """Of one run, all partitions."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.markers = 0
        self.data = 0
        self.records = 0
        self._named: set[tuple[Transaction, PartitionKey]] = set()
        """Partitions that a committed record of the coordinator names, by transaction."""
        self._decided: dict[Transaction, bool] = {}
        """Of each transaction that a record decides, whether it commits."""
        self._marked: dict[Transaction, tuple[bool, Hashable]] = {}
        """Of each transaction with a marker its decision, and where."""
        self._ended: dict[tuple[PartitionKey, int], int] = {}
        """By partition and producer, the highest epoch of a marker."""
        self._open: dict[tuple[PartitionKey, int], int] = {}
        """By partition and producer, the epoch of the open transaction."""
        self._coordinators: dict[tuple[PartitionKey, int], int] = {}
        self._states: dict[str, TransactionState] = {}
        self._takeovers: dict[str, tuple[int, Transaction]] = {}
        """By id, how many there were, and the identity that the last of them brought."""

    def takeovers_of(self, transactional_id: str) -> int:
        """How often anybody took it over without naming an identity, as far as is committed; the
        first time counts as well."""
        return self._takeovers.get(transactional_id, (0, (0, 0)))[0]

    def open_in(self, key: PartitionKey) -> list[int]:
        """Producers with an open transaction there."""
        return [producer for where, producer in self._open if where == key]

    def on_data(self, key: PartitionKey, producer_id: int, epoch: int, offset: int) -> None:
        """A batch of a transaction is committed."""
        self.data += 1
        place, transaction = (key, producer_id), (producer_id, epoch)
        what = f"data of {producer_id}@{epoch} in {key} at {offset}"
        if (transaction, key) not in self._named:
            self.report(f"unnamed_data: {what}: no coordinator has noted it")
        if epoch < self._ended.get(place, -1):
            self.report(f"data_after_end: {what}, behind a marker of {self._ended[place]}")
        opened = self._open.setdefault(place, epoch)
        if opened != epoch:
            self.report(f"overlapping: {what}, while {opened} is open")

    def on_marker(
        self,
        key: PartitionKey,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        offset: int,
    ) -> None:
        """A marker is committed."""
        self.markers += 1
        place = (key, producer_id)
        transaction = (producer_id, epoch - 1)
        what = f"the marker of {producer_id}@{epoch} in {key} at {offset}"
        said, where = self._marked.setdefault(transaction, (is_commit, f"{key} at {offset}"))
        if said != is_commit:
            self.report(f"decided_twice: {what} says {is_commit}, the one in {where} {said}")
        decided = self._decided.get(transaction)
        if decided is None or decided != is_commit:
            self.report(f"marker_of_nothing: {what} says {is_commit}, the records {decided}")
        opened = self._open.pop(place, -1)
        if opened >= epoch:
            self.report(f"epoch_of_data: {what} ends {opened}")
        if coordinator_epoch < self._coordinators.get(place, -1):
            self.report(f"older_coordinator: {what}, of coordinator {coordinator_epoch}")
        self._coordinators[place] = max(coordinator_epoch, self._coordinators.get(place, -1))
        if epoch == self._ended.get(place):
            self.report(f"marker_again: {what}")
        if epoch > EPOCH_MAX + 1:
            self.report(f"last_epoch: {what}")
        self._ended[place] = max(epoch, self._ended.get(place, -1))

    def on_record(self, key: bytes, value: bytes | None) -> None:
        """A record of `__transactions` is committed."""
        self.records += 1
        decoded = decode_record(key, value)
        if decoded is None:
            return
        name, told = decoded[0].transactional_id, decoded[1]
        if told is None:
            self._states.pop(name, None)
            return
        before = self._states.get(name)
        if before is not None and before not in MAY_FOLLOW[told.state]:
            self.report(f"state_skipped: {name} went from {before.name} to {told.state.name}")
        self._states[name] = told.state
        producer_id, epoch = told.current.producer_id, told.current.producer_epoch
        if told.succession in (Succession.TAKEN_OVER, Succession.NONE):
            count, brought = self._takeovers.get(name, (0, (-1, -1)))
            if brought != (producer_id, epoch):
                self._takeovers[name] = (count + 1, (producer_id, epoch))
        if told.is_ending:
            commits = told.state is TransactionState.PREPARE_COMMIT
            decided = self._decided.setdefault((producer_id, epoch - 1), commits)
            if decided != commits:
                self.report(f"decided_twice: {name} at {producer_id}@{epoch} is {commits}")
            return
        if epoch > EPOCH_MAX and not told.is_idle:
            self.report(f"last_epoch: {name} works as {producer_id}@{epoch}")
        for topic in told.topics:
            for number in topic.partitions:
                at = PartitionKey(topic.topic_id, number)  # type: ignore[arg-type]
                self._named.add(((producer_id, epoch), at))

    def report(self, violation: str) -> None:
        """Something that must never be."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(violation)
