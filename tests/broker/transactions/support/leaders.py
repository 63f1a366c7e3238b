"""Leaders of partitions as a coordinator meets them: what they hold of producers, by plain rules.

What must never be: a marker that ends another transaction than the one that it was decided for, two
different decisions of one transaction, data that is accepted after its end.
"""

import msgspec

from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.messages import SendMarkers
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey


def refusal(code: ErrorCode) -> TidelogError:
    """A leader's word."""
    return TidelogError(code, tried="write a marker", happened="so said the leader")


class OfProducer(msgspec.Struct):
    """What one partition holds of one producer id."""

    epoch: int
    is_open: bool = False


class Leaders:
    """All partitions."""

    def __init__(self) -> None:
        self.producers: dict[tuple[PartitionKey, int], OfProducer] = {}
        self.coordinator_epochs: dict[tuple[PartitionKey, int], int] = {}
        self.decisions: dict[tuple[int, int], Decision] = {}
        """Of markers that any leader took, by producer id and the epoch of the data."""
        self.written: list[tuple[PartitionKey, Identity, Decision]] = []

    def produce(self, key: PartitionKey, identity: Identity) -> bool:
        """Accept data of a transaction whose partition the coordinator has added."""
        at = (key, identity.producer_id)
        known = self.producers.get(at)
        if known is not None and identity.producer_epoch < known.epoch:
            return False
        assert known is None or not known.is_open or known.epoch == identity.producer_epoch, (
            f"{key}: {identity} joins the open transaction of epoch {known.epoch}"
        )
        decided = self.decisions.get((identity.producer_id, identity.producer_epoch))
        assert decided is None, f"{key}: {identity} was {decided} and is written to"
        self.producers[at] = OfProducer(identity.producer_epoch, is_open=True)
        return True

    def take(self, marker: SendMarkers, key: PartitionKey) -> TidelogError | None:
        """Write the marker, or know that it is there."""
        identity = marker.identity
        at = (key, identity.producer_id)
        if marker.coordinator_epoch < self.coordinator_epochs.get(at, -1):
            return refusal(ErrorCode.NOT_COORDINATOR)
        self.coordinator_epochs[at] = marker.coordinator_epoch
        ended = (identity.producer_id, identity.producer_epoch - 1)
        decision = self.decisions.setdefault(ended, marker.decision)
        assert decision is marker.decision, f"{identity} ends {ended} twice: {decision}"
        known = self.producers.get(at)
        if known is not None and identity.producer_epoch < known.epoch:
            return refusal(ErrorCode.FENCED_PRODUCER_EPOCH)
        if known is not None and identity.producer_epoch == known.epoch:
            # It is there already: its answer was lost, or its coordinator died.
            assert not known.is_open, f"{key}: a marker of the data's own epoch {identity}"
            return None
        assert known is None or not known.is_open or known.epoch == identity.producer_epoch - 1, (
            f"{key}: {identity} ends the transaction of epoch {known.epoch}"
        )
        self.producers[at] = OfProducer(identity.producer_epoch)
        self.written.append((key, identity, marker.decision))
        return None

    def forget(self, topic_id: bytes) -> None:
        """The topic is deleted."""
        for at in [each for each in self.producers if each[0].topic_id == topic_id]:
            del self.producers[at]

    def open_transactions(self) -> dict[int, dict[int, None]]:
        """Epochs with open data, by producer id."""
        found: dict[int, dict[int, None]] = {}
        for (_, producer_id), each in self.producers.items():
            if each.is_open:
                found.setdefault(producer_id, {})[each.epoch] = None
        return found
