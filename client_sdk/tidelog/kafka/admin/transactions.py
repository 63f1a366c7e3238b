"""Transactions, as scripts call KafkaAdminClient.

Owns kafka-python's forms of what is asked and answered. What is done is the client's. A prepared
transaction, which Kafka has not, is told as an ongoing one.
"""

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from tidelog.client import TopicPartition
from tidelog.client.types.transactions import TransactionDescription as Description
from tidelog.client.types.transactions import TransactionState as State
from tidelog.kafka import errors
from tidelog.kafka.admin.base import AdminBase
from tidelog.kafka.admin.groups import NamedText
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.translation import translating

SLACK_MS: Final = 5 * 60 * 1000
"""As kafka-python adds to the longest timeout before it calls a transaction hanging."""


class TransactionState(NamedText):
    """Where a transactional id stands."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"


_STATES: Final[Mapping[State, TransactionState]] = {
    State.EMPTY: TransactionState.EMPTY,
    State.ONGOING: TransactionState.ONGOING,
    State.PREPARED: TransactionState.ONGOING,
    State.COMMITTING: TransactionState.PREPARE_COMMIT,
    State.ABORTING: TransactionState.PREPARE_ABORT,
    State.COMMITTED: TransactionState.COMPLETE_COMMIT,
    State.ABORTED: TransactionState.COMPLETE_ABORT,
    State.UNKNOWN: TransactionState.UNKNOWN,
}


class TransactionListing(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """A transactional id; times in milliseconds, -1 where nothing is in progress."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """What a partition remembers of a producer; -1 where there is nothing."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers of one partition."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """Which open transaction of a partition to abort."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


class TransactionCalls(AdminBase):
    """List, describe, abort on a partition."""

    @checked
    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[Any] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """Transactional ids by the broker that coordinates them."""
        states = {
            TransactionState.build_from(each, "state_filters") for each in state_filters or ()
        }
        producers = set(producer_id_filters or ())
        pattern = _compiled(transactional_id_pattern or "")
        wanted = None if broker_ids is None else set(broker_ids)
        with translating():
            brokers = self._client.describe_cluster().brokers
            listed = self._client.list_transactions((), duration_filter_ms or 0)
            names = [each.transactional_id for each in listed]
            described = self._client.describe_transactions(names) if names else []
        found: dict[int, list[TransactionListing]] = {
            each.broker_id: [] for each in brokers if wanted is None or each.broker_id in wanted
        }
        for each in described:
            state = _STATES[each.state]
            is_wanted = (not states or state in states) and (
                not producers or each.producer_id in producers
            )
            if not is_wanted or not pattern.search(each.transactional_id):
                continue
            if wanted is None or each.coordinator_id in wanted:
                found.setdefault(each.coordinator_id, []).append(
                    TransactionListing(each.transactional_id, each.producer_id, state)
                )
        return found

    @checked
    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Each of them; the first that is not there raises."""
        with translating():
            found = self._client.describe_transactions(transactional_ids)
        return {each.transactional_id: _described(each) for each in found}

    @checked
    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """The producers of partitions, as their leaders know them."""
        del broker_id
        with translating():
            found = self._client.describe_producers(partitions)
        return {
            name: PartitionProducerState(
                [
                    ProducerState(
                        producer_id=each.producer_id,
                        producer_epoch=each.producer_epoch,
                        last_sequence=_or_none(each.last_sequence),
                        last_timestamp=each.last_timestamp_ms,
                        coordinator_epoch=_or_none(each.coordinator_epoch),
                        current_transaction_start_offset=_or_none(each.transaction_start_offset),
                    )
                    for each in producers
                ]
            )
            for name, producers in found.items()
        }

    @checked
    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Abort an open transaction of a partition that no coordinator has in progress; one that a
        coordinator has is refused with InvalidTxnStateError.
        """
        with translating():
            found = self._client.describe_producers([spec.topic_partition])
            for each in found[spec.topic_partition]:
                start = each.transaction_start_offset
                if each.producer_id != spec.producer_id or start is None:
                    continue
                if each.producer_epoch != spec.producer_epoch:
                    raise errors.InvalidProducerEpochError(
                        f"producer {spec.producer_id} is at epoch {each.producer_epoch}"
                    )
                self._client.abort_hanging_transaction(
                    spec.topic_partition, spec.producer_id, start
                )

    @checked
    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[dict[str, Any]]:
        """What has been in progress for five minutes longer than that."""
        wanted = None if broker_ids is None else set(broker_ids)
        with translating():
            listed = self._client.list_transactions((), max_transaction_timeout_ms + SLACK_MS)
            names = [each.transactional_id for each in listed]
            described = self._client.describe_transactions(names) if names else []
        now_ms = int(time.time() * 1000)
        return [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "state": _STATES[each.state].value,
                "age_ms": now_ms - each.start_time_ms,
                "coordinator_id": each.coordinator_id,
                "topic_partitions": sorted(each.partitions),
            }
            for each in described
            if each.start_time_ms is not None and (wanted is None or each.coordinator_id in wanted)
        ]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"transactional_id_pattern is no regular expression: {error}") from None


def _described(found: Description) -> TransactionDescription:
    return TransactionDescription(
        coordinator_id=found.coordinator_id,
        state=_STATES[found.state],
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=_or_none(found.start_time_ms),
        topic_partitions=set(found.partitions),
    )


def _or_none(number: int | None) -> int:
    """As Kafka's protocol has it."""
    return -1 if number is None else number
