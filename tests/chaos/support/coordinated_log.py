"""Leaders of partitions for the model: what a leader checks of batches and markers, and no more."""

import msgspec

from tests.chaos.support.transaction_model import PendingTransaction, TransactionModel
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.ids import LeaderEpoch


class Batch(msgspec.Struct, frozen=True):
    """One record on its way."""

    transactional_id: str
    identity: Identity
    sequence: int
    value: str


class ModelLeader:
    """Of one partition."""

    def __init__(self, model: TransactionModel, name: str) -> None:
        self._model = model
        self._name = name
        self._epochs: dict[int, int] = {}
        """By producer id: of its data, or one more once a marker has ended them."""
        self._stored: dict[tuple[Identity, int], int] = {}
        """Each batch by identity and sequence, and its offset."""
        self._coordinator_epoch = LeaderEpoch(-1)
        self.open: dict[int, PendingTransaction] = {}
        """By producer id."""

    def is_fenced(self, identity: Identity) -> bool:
        """Whether a marker, or a newer producer, has ended this identity here."""
        return identity.producer_epoch < self._epochs.get(identity.producer_id, -1)

    def offset_of(self, batch: Batch) -> int | None:
        """Where a batch that is sent again lies."""
        return self._stored.get((batch.identity, batch.sequence))

    def is_open(self, identity: Identity) -> bool:
        """Whether the coordinator was asked about this transaction already."""
        is_same = self._epochs.get(identity.producer_id) == identity.producer_epoch
        return is_same and identity.producer_id in self.open

    def append(self, batch: Batch) -> int:
        """Stores a batch."""
        producer_id = batch.identity.producer_id
        if producer_id not in self.open:
            self.open[producer_id] = PendingTransaction()
        self._epochs[producer_id] = batch.identity.producer_epoch
        offset = self._model.append(self._name, batch.value, self.open[producer_id])
        self._stored[batch.identity, batch.sequence] = offset
        return offset

    def mark(
        self, identity: Identity, decision: Decision, coordinator_epoch: LeaderEpoch
    ) -> PendingTransaction | None:
        """Ends what is open of a producer; a marker that is there already ends nothing."""
        assert coordinator_epoch >= self._coordinator_epoch, "markers of an older coordinator"
        self._coordinator_epoch = coordinator_epoch
        stored = self._epochs.get(identity.producer_id, -1)
        pending = self.open.get(identity.producer_id)
        if identity.producer_epoch <= stored:
            # There already; or below what is open, as it is only where the coordinator forgot it.
            return None
        self._epochs[identity.producer_id] = identity.producer_epoch
        if pending is None:
            return None
        del self.open[identity.producer_id]
        partition = self._model.partitions[self._name]
        self._model.mark(partition, pending, is_committed=decision is Decision.COMMIT)
        return pending
