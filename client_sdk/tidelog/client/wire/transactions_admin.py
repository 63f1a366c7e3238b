"""Transactions in protobuf, as operators see them. As `wire.admin`.

Owns method names, requests and answers. It must never decide anything.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.client.types.records import TopicPartition
from tidelog.client.types.transactions import (
    ProducerDescription,
    TransactionDescription,
    TransactionList,
    TransactionListing,
    TransactionState,
)
from tidelog.client.wire.calls import error_of
from tidelog.v1 import common_pb2, coordinator_pb2, transaction_admin_pb2, transactions_pb2
from tidelog.wire.errors import TidelogError

LIST_TRANSACTIONS: Final = "/tidelog.v1.TransactionAdminService/ListTransactions"
DESCRIBE_TRANSACTIONS: Final = "/tidelog.v1.TransactionAdminService/DescribeTransactions"
ABORT_TRANSACTION: Final = "/tidelog.v1.TransactionAdminService/AbortTransaction"
DESCRIBE_PRODUCERS: Final = "/tidelog.v1.TransactionAdminService/DescribeProducers"
ABORT_HANGING: Final = "/tidelog.v1.TransactionAdminService/AbortHangingTransaction"
DECIDE_PREPARED: Final = "/tidelog.v1.TransactionService/DecidePrepared"
PARTITIONS_A_REQUEST: Final = 1_000
"""Whose producers one request describes."""

Place = tuple[bytes, int]
"""Topic id and partition."""

_STATES: Final = {
    transaction_admin_pb2.TRANSACTION_STATE_EMPTY: TransactionState.EMPTY,
    transaction_admin_pb2.TRANSACTION_STATE_ONGOING: TransactionState.ONGOING,
    transaction_admin_pb2.TRANSACTION_STATE_PREPARE_COMMIT: TransactionState.COMMITTING,
    transaction_admin_pb2.TRANSACTION_STATE_PREPARE_ABORT: TransactionState.ABORTING,
    transaction_admin_pb2.TRANSACTION_STATE_COMPLETE_COMMIT: TransactionState.COMMITTED,
    transaction_admin_pb2.TRANSACTION_STATE_COMPLETE_ABORT: TransactionState.ABORTED,
    transaction_admin_pb2.TRANSACTION_STATE_PREPARED: TransactionState.PREPARED,
}
_STATE_NUMBERS: Final = {state: number for number, state in _STATES.items()}
_DECISIONS: Final = {
    "commit": transactions_pb2.TRANSACTION_DECISION_COMMIT,
    "abort": transactions_pb2.TRANSACTION_DECISION_ABORT,
}


def list_transactions_request(
    states: Iterable[TransactionState], min_age_ms: int, *, after_id: str
) -> bytes:
    """One page; no states: all of them."""
    return transaction_admin_pb2.ListTransactionsRequest(
        states=[_STATE_NUMBERS[each] for each in states], min_age_ms=min_age_ms, after_id=after_id
    ).SerializeToString()


def read_transactions(data: bytes) -> tuple[TransactionList, str]:
    """A page, and after which id the next one begins; empty: it was the last."""
    answer = transaction_admin_pb2.ListTransactionsResponse.FromString(data)
    transactions = tuple(
        TransactionListing(
            transactional_id=each.transactional_id,
            producer_id=each.identity.producer_id,
            producer_epoch=each.identity.producer_epoch,
            state=_STATES.get(each.state, TransactionState.UNKNOWN),
            age_ms=_known(each.age_ms),
        )
        for each in answer.transactions
    )
    found = TransactionList(
        transactions=transactions, missing_coordinators=answer.missing_coordinators
    )
    return found, answer.next_after_id


def describe_transactions_request(transactional_ids: Iterable[str]) -> bytes:
    """By id, none twice."""
    return transaction_admin_pb2.DescribeTransactionsRequest(
        transactional_ids=transactional_ids
    ).SerializeToString()


def read_descriptions(
    data: bytes, names: Mapping[bytes, str]
) -> list[TransactionDescription | TidelogError]:
    """One for each id, in order; `names` of topics by id."""
    answer = transaction_admin_pb2.DescribeTransactionsResponse.FromString(data)
    return [error_of(each.error) or _description(each, names) for each in answer.transactions]


def _description(
    found: transaction_admin_pb2.TransactionDescription, names: Mapping[bytes, str]
) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=found.transactional_id,
        producer_id=found.identity.producer_id,
        producer_epoch=found.identity.producer_epoch,
        state=_STATES.get(found.state, TransactionState.UNKNOWN),
        start_time_ms=_known(found.start_time_ms),
        timeout_ms=found.timeout_ms,
        coordinator_id=found.coordinator_id,
        partitions=_partitions(found.topics, names),
        waits_for=_partitions(found.waits_for, names),
        principal=found.principal,
    )


def _partitions(
    topics: Iterable[common_pb2.TopicPartitions], names: Mapping[bytes, str]
) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(names.get(each.topic_id, ""), partition)
            for each in topics
            for partition in each.partitions
        )
    )


def abort_transaction_request(transactional_id: str, *, validate_only: bool) -> bytes:
    """Of one id."""
    return transaction_admin_pb2.AbortTransactionRequest(
        transactional_id=transactional_id, validate_only=validate_only
    ).SerializeToString()


def read_aborted(data: bytes) -> list[bool | TidelogError]:
    """Whether there was a transaction to abort: one answer for the id."""
    return [transaction_admin_pb2.AbortTransactionResponse.FromString(data).was_aborted]


def describe_producers_request(places: Iterable[Place]) -> bytes:
    """At most `PARTITIONS_A_REQUEST`, none twice."""
    return transaction_admin_pb2.DescribeProducersRequest(
        partitions=[
            common_pb2.TopicPartition(topic_id=topic_id, partition=partition)
            for topic_id, partition in places
        ]
    ).SerializeToString()


def read_producers(data: bytes) -> list[tuple[ProducerDescription, ...] | TidelogError]:
    """One answer for each partition, in order."""
    answer = transaction_admin_pb2.DescribeProducersResponse.FromString(data)
    return [
        error_of(each.error) or tuple(_producer(found) for found in each.producers)
        for each in answer.partitions
    ]


def _producer(found: transaction_admin_pb2.ProducerStatus) -> ProducerDescription:
    return ProducerDescription(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        last_sequence=_known(found.last_sequence),
        last_timestamp_ms=found.last_timestamp_ms,
        transaction_start_offset=_known(found.transaction_start_offset),
        coordinator_epoch=_known(found.coordinator_epoch),
    )


def abort_hanging_request(
    place: Place, producer_id: int, transaction_start_offset: int, *, validate_only: bool
) -> bytes:
    """On one partition."""
    topic_id, partition = place
    return transaction_admin_pb2.AbortHangingTransactionRequest(
        partition=common_pb2.TopicPartition(topic_id=topic_id, partition=partition),
        producer_id=producer_id,
        transaction_start_offset=transaction_start_offset,
        validate_only=validate_only,
    ).SerializeToString()


def find_coordinator_request(transactional_id: str) -> bytes:
    """Asks any broker for the coordinator of one id."""
    return coordinator_pb2.FindCoordinatorsRequest(
        kind=coordinator_pb2.COORDINATOR_KIND_TRANSACTION, keys=[transactional_id]
    ).SerializeToString()


def decide_prepared_request(found: TransactionDescription, decision: str) -> bytes:
    """With the token that its description tells."""
    return transactions_pb2.DecidePreparedRequest(
        transactional_id=found.transactional_id,
        identity=transactions_pb2.TransactionalIdentity(
            producer_id=found.producer_id, producer_epoch=found.producer_epoch
        ),
        decision=_DECISIONS[decision],
    ).SerializeToString()


def _known(number: int) -> int | None:
    """-1 stands for nothing."""
    return None if number < 0 else number
