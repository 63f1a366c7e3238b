"""What an operator may ask of the producers of a partition that this broker leads.

Owns the view of them, and the marker that ends a transaction no coordinator knows. It must never
end another transaction than the one that the operator has seen: where that begins is compared once
more in the marker's turn.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.broker.directory.core.producer_check import SEQUENCES
from tidelog.broker.log.producer_state import NO_TRANSACTION, ProducedBatch, Producer
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.services.markers.handler import MarkerHandler
from tidelog.broker.services.transactions.admin.partitions import ProducerView
from tidelog.broker.transactions.marking import PartitionMarker
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    PartitionKey,
    ProducerEpoch,
    ProducerId,
)

TIMEOUT_MS: Final = 20_000
"""How long the marker may take to be committed."""


class LedProducers:
    """An `OwnProducers`: of the partitions that this broker leads."""

    def __init__(self, replicas: Replicas, markers: MarkerHandler) -> None:
        self._replicas = replicas
        self._markers = markers

    async def describe_producers(self, key: PartitionKey) -> Sequence[ProducerView]:
        """As `OwnProducers` says."""
        producers = self._find(key, "describe the producers of").log.producers.producers
        return [_view(each) for each in sorted(producers, key=lambda each: each.producer_id)]

    async def abort_hanging(
        self,
        key: PartitionKey,
        producer_id: int,
        transaction_start_offset: int,
        *,
        validate_only: bool,
    ) -> None:
        """As `OwnProducers` says."""
        known = self._open(key, producer_id)
        if known is None:
            return
        if known.transaction_start != transaction_start_offset:
            raise TidelogError(
                ErrorCode.INVALID_TRANSACTION_STATE,
                tried=f"abort the transaction of producer {producer_id} that begins at offset "
                f"{transaction_start_offset} of {self._name_of(key)}",
                happened=f"the open one begins at offset {known.transaction_start}",
                hint="List the partition's producers again: that one has ended.",
            )
        if validate_only:
            return
        marker = PartitionMarker(
            key=key,
            # As a coordinator would end it: should one come with its own marker, it is there.
            identity=Identity(ProducerId(producer_id), ProducerEpoch(known.epoch + 1)),
            decision=Decision.ABORT,
            # Nobody's: it must not make a coordinator that leads look like one of the past.
            coordinator_epoch=LeaderEpoch(max(0, known.coordinator_epoch)),
        )
        error = await self._markers.write(
            marker, timeout_ms=TIMEOUT_MS, hangs_from=transaction_start_offset
        )
        if error is not None and self._open(key, producer_id) is not None:
            raise error

    def _open(self, key: PartitionKey, producer_id: int) -> Producer | None:
        """The producer, if it has a transaction open here."""
        log = self._find(key, "abort a hanging transaction in").log
        known = log.producers.find(producer_id)
        return None if known is None or known.transaction_start == NO_TRANSACTION else known

    def _find(self, key: PartitionKey, verb: str) -> Replica:
        tried = f"{verb} {self._name_of(key)}"
        return self._replicas.find(key.topic_id, key.partition, NO_LEADER_EPOCH, tried=tried)

    def _name_of(self, key: PartitionKey) -> str:
        return self._replicas.name_of(key.topic_id, key.partition)


def _last_sequence(last: ProducedBatch) -> int:
    return (last.base_sequence + last.last_offset_delta) % SEQUENCES


def _view(producer: Producer) -> ProducerView:
    last = producer.batches[-1] if producer.batches else None
    return ProducerView(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=-1 if last is None else _last_sequence(last),
        last_timestamp_ms=producer.last_timestamp,
        transaction_start_offset=producer.transaction_start,
        coordinator_epoch=producer.coordinator_epoch,
    )
