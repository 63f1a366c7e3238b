"""How a marker reaches the leader of a partition, and who is told once it is committed there.

Owns two ports: `MarkerWriting`, by which a coordinator ends a transaction in a partition that this
broker leads, and `MarkerObserver`, by which the owner of an internal partition hears of the end
before the coordinator does.
"""

from typing import Final, Protocol

import msgspec

from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import TRANSACTION_VERSION, Decision
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey

MARKERS_PER_CALL_MAX: Final = 1_000
"""Transactions in one WriteMarkers."""


class PartitionMarker(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one transaction, for one partition."""

    key: PartitionKey
    identity: Identity
    """The producer id, and the epoch of the end: one above that of the transaction's records."""
    decision: Decision
    coordinator_epoch: LeaderEpoch
    """In which its sender leads the partition of `__transactions`."""
    transaction_version: int = TRANSACTION_VERSION


class MarkerWriting(Protocol):
    """Ends transactions in partitions that this broker leads."""

    async def write(self, marker: PartitionMarker, *, timeout_ms: int) -> TidelogError | None:
        """Returns None once the marker is committed in the partition: it was appended now, or it
        was there already. In a partition with a `MarkerObserver` that has returned too.

        NOT_COORDINATOR: a newer coordinator has written here, the sender steps down. Any other
        error: find the leader, send the same marker again; it may be there already.
        """
        ...


class MarkerObserver(Protocol):
    """Hears of the ends of transactions in the partitions that it owns, `__groups` above all."""

    def observes(self, key: PartitionKey) -> bool:
        """Returns whether the ends of transactions in this partition are to be told."""
        ...

    async def marker_committed(
        self, key: PartitionKey, identity: Identity, decision: Decision, marker_offset: int
    ) -> None:
        """Returns once what was committed or aborted shows, so that whoever reads after the
        coordinator has finished sees it (KAFKA-17507). Told once for each attempt of the
        coordinator, hence perhaps twice for one marker and perhaps late, and also of a marker that
        ended nothing, and of one that ends a hanging transaction.

        `identity`: with the epoch of the end. `marker_offset`: where the marker stands; of one that
        was there before, an offset at or above it. Raises a `TidelogError` where this broker does
        not own the partition any more, or not yet: it is the partition's answer, and the
        coordinator of the transaction asks again.
        """
        ...
