"""KafkaProducer's transactions: kafka-python's five calls, and its errors."""

from collections.abc import Callable, Iterator

import pytest

from tests.client.support.contract_server import ContractServer
from tidelog.kafka import (
    ConsumerGroupMetadata,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
    errors,
)
from tidelog.kafka.errors import KafkaError
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as running:
        running.create("t", 2)
        yield running


@pytest.fixture
def producer(server: ContractServer) -> Iterator[KafkaProducer]:
    with KafkaProducer(
        bootstrap_servers=server.address, transactional_id="pay", max_block_ms=5_000
    ) as made:
        yield made


def failed(kind: type[KafkaError], call: Callable[[], object]) -> KafkaError:
    with pytest.raises(kind) as caught:
        call()
    return caught.value


def test_a_script_with_the_five_calls_runs(producer: KafkaProducer, server: ContractServer) -> None:
    place = {TopicPartition("t", 0): OffsetAndMetadata(3, "m")}
    producer.init_transactions()
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        producer.send("t", b"v", partition=1)
        producer.send_offsets_to_transaction(place, ConsumerGroupMetadata("g"))
        producer.send_offsets_to_transaction({TopicPartition("t", 1): OffsetAndMetadata(4)}, "g")
        end()
    assert server.transactions.committed("t") == [b"v", b"v"]
    assert server.groups.committed("g") == {0: 3, 1: 4}


def test_calls_at_the_wrong_moment_are_an_illegal_state(
    producer: KafkaProducer, server: ContractServer
) -> None:
    for call in (
        producer.begin_transaction,
        producer.commit_transaction,
        lambda: producer.send("t", b"v"),
    ):
        failed(errors.IllegalStateError, call)
    producer.init_transactions()
    producer.begin_transaction()
    failed(errors.IllegalStateError, producer.begin_transaction)
    with KafkaProducer(bootstrap_servers=server.address) as plain:
        failed(errors.IllegalStateError, plain.init_transactions)


def test_a_fenced_producer_says_that_it_is_over(
    producer: KafkaProducer, server: ContractServer
) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.flush()
    server.transactions.take_over("pay")
    assert failed(errors.ProducerFencedError, producer.commit_transaction).fatal
    assert failed(errors.ProducerFencedError, producer.begin_transaction).fatal


def test_an_error_says_that_only_an_abort_helps(
    producer: KafkaProducer, server: ContractServer
) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    who = ConsumerGroupMetadata("g", 3, "nobody")
    place = {TopicPartition("t", 0): OffsetAndMetadata(3)}
    send = lambda: producer.send_offsets_to_transaction(place, who)  # noqa: E731
    assert failed(errors.UnknownMemberIdError, send).txn_requires_abort
    assert failed(KafkaError, producer.commit_transaction).txn_requires_abort
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.commit_transaction()
    assert server.transactions.committed("t") == [b"v"]


def test_a_timeout_beyond_the_clusters_limit_is_refused(server: ContractServer) -> None:
    server.transactions.timeout_ms_max = 1_000
    with KafkaProducer(
        bootstrap_servers=server.address, transactional_id="pay", transaction_timeout_ms=2_000
    ) as producer:
        error = failed(KafkaError, producer.init_transactions)
        assert error.code is ErrorCode.INVALID_ARGUMENT
