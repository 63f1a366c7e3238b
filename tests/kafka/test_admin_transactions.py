"""Transactions by kafka-python's names of its admin client."""

from collections.abc import Iterator

import pytest

from tests.client.support.transaction_server import TransactionServer
from tidelog.kafka import TopicPartition
from tidelog.kafka.admin import (
    AbortTransactionSpec,
    KafkaAdminClient,
    TransactionListing,
    TransactionState,
)
from tidelog.kafka.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    TransactionalIdNotFoundError,
)
from tidelog.v1 import transaction_admin_pb2 as pb

ORDERS_0 = TopicPartition("orders", 0)
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def server() -> Iterator[TransactionServer]:
    with TransactionServer() as started:
        started.create("orders", 2)
        started.hold(
            "billing", pb.TRANSACTION_STATE_ONGOING, ("orders", 0),
            producer_id=7, started_ms=LONG_AGO_MS, age_ms=2_000_000,
        )  # fmt: skip
        started.hold("ledger", pb.TRANSACTION_STATE_PREPARED, producer_id=8, age_ms=1)
        started.hold("till", pb.TRANSACTION_STATE_COMPLETE_COMMIT, producer_id=9)
        yield started


@pytest.fixture
def admin(server: TransactionServer) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=server.address) as made:
        yield made


def test_transactions_are_listed_by_their_coordinators_and_filtered(
    admin: KafkaAdminClient,
) -> None:
    found = admin.list_transactions()
    assert found == {
        1: [
            TransactionListing("billing", 7, TransactionState.ONGOING),
            TransactionListing("ledger", 8, TransactionState.ONGOING),
            TransactionListing("till", 9, TransactionState.COMPLETE_COMMIT),
        ]
    }
    for filters, names in (
        ({"producer_id_filters": [9, 99]}, ["till"]),
        ({"state_filters": ["CompleteCommit"]}, ["till"]),
        ({"state_filters": [TransactionState.ONGOING]}, ["billing", "ledger"]),
        ({"duration_filter_ms": 10}, ["billing"]),
        ({"transactional_id_pattern": "l+e"}, ["ledger"]),
        ({"transactional_id_pattern": "ll"}, ["billing", "till"]),
    ):
        listed = admin.list_transactions(**filters)
        assert [each.transactional_id for each in listed[1]] == names, filters
    assert admin.list_transactions(broker_ids=[2]) == {}
    with pytest.raises(ValueError, match="no regular expression"):
        admin.list_transactions(transactional_id_pattern="(")
    with pytest.raises(ValueError, match="Unrecognized"):
        admin.list_transactions(state_filters=["Sleeping"])


def test_transactions_are_described(admin: KafkaAdminClient) -> None:
    found = admin.describe_transactions(["billing", "till"])
    assert found["billing"].topic_partitions == {ORDERS_0}
    assert found["billing"].transaction_start_time_ms == LONG_AGO_MS
    assert (found["till"].state, found["till"].coordinator_id) == ("CompleteCommit", 1)
    assert found["till"].transaction_start_time_ms == -1
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transactions(["nobody"])


def test_an_old_transaction_is_called_hanging_as_kafka_python_does(
    admin: KafkaAdminClient,
) -> None:
    (found,) = admin.find_hanging_transactions()
    assert found["transactional_id"] == "billing"
    assert found["state"] == "Ongoing"
    assert found["topic_partitions"] == [ORDERS_0]
    assert admin.find_hanging_transactions(max_transaction_timeout_ms=2_000_000) == []


def test_an_open_transaction_of_a_partition_is_aborted_unless_a_coordinator_has_it(
    server: TransactionServer, admin: KafkaAdminClient
) -> None:
    server.remember("orders", 0, 99, 40, LONG_AGO_MS)
    (producer,) = admin.describe_producers([ORDERS_0])[ORDERS_0].active_producers
    assert (producer.producer_id, producer.current_transaction_start_offset) == (99, 40)
    assert producer.coordinator_epoch == -1
    with pytest.raises(InvalidProducerEpochError):
        admin.abort_transaction(AbortTransactionSpec(ORDERS_0, 99, 2))
    admin.abort_transaction(AbortTransactionSpec(ORDERS_0, 99, 3))
    (producer,) = admin.describe_producers([ORDERS_0])[ORDERS_0].active_producers
    assert producer.current_transaction_start_offset == -1
    server.remember("orders", 1, 7, 4, LONG_AGO_MS)
    with pytest.raises(InvalidTxnStateError):
        admin.abort_transaction(AbortTransactionSpec(TopicPartition("orders", 1), 7, 3))
    with pytest.raises(TypeError, match="AbortTransactionSpec"):
        admin.abort_transaction(99)  # type: ignore[arg-type]
