"""A consumer whose offsets a transaction commits: what is delivered again, and what is not."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BlockingProducer, Clients
from tests.client.support.group_members import clients, refused, until
from tests.client.test_transactions import failed, make
from tests.client.test_transactions_lost import no_abort
from tests.support.waiting import HANG_SECONDS, wait_until
from tidelog.client import Producer, TopicPartition
from tidelog.client.errors import ErrorCode, TransactionError

__all__ = ["clients"]

pytestmark = pytest.mark.slow

COUNT = 6


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as running:
        for topic in ("in", "out"):
            running.create(topic, 2)
        with Producer(bootstrap_servers=running.address) as producer:
            for number in range(COUNT):
                for partition in (0, 1):
                    producer.send("in", b"%d-%d" % (partition, number), partition=partition)
        yield running


@pytest.fixture
def producer(clients: Clients, server: ContractServer) -> Iterator[Any]:
    with make(clients, server, "move") as found:
        yield found


def reader(clients: Clients, server: ContractServer, producer: Any, **more: Any) -> Any:
    """A member of the group, on the producer's loop."""
    if isinstance(producer, BlockingProducer):
        more["on_loop_of"] = producer
    return clients.Consumer(
        "in",
        bootstrap_servers=server.address,
        **{
            "group_id": "movers",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "retry_backoff_ms": 20,
            "max_poll_records": 2,
            **more,
        },
    )


def move(producer: Any, consumer: Any, *, dies: bool = False) -> int:
    """One poll, and its records to the other topic; how many."""
    count = 0
    with producer.transaction(consumer=consumer) as t:
        for name, records in consumer.poll(50).items():
            for record in records:
                t.send("out", record.value, partition=name.partition)
                count += 1
        if dies and count:
            raise ZeroDivisionError
    return count


def test_what_is_read_counts_with_what_is_written(
    clients: Clients, producer: Any, server: ContractServer
) -> None:
    aborted = 0
    with reader(clients, server, producer) as consumer:

        def turn() -> None:
            nonlocal aborted
            try:
                move(producer, consumer, dies=aborted < 3)
            except ZeroDivisionError:
                aborted += 1

        wait_until(lambda: server.groups.committed("movers") == {0: COUNT, 1: COUNT}, turn=turn)
    assert aborted == 3
    wanted = [b"%d-%d" % (partition, number) for partition in (0, 1) for number in range(COUNT)]
    assert server.transactions.committed("out") == wanted


def test_records_that_were_polled_before_the_block_belong_to_it(
    clients: Clients, producer: Any, server: ContractServer
) -> None:
    with reader(clients, server, producer) as consumer:
        polled: list[bytes] = []

        def turn() -> None:
            found = consumer.poll(50)
            values = [record.value for records in found.values() for record in records]
            polled.extend(values)
            if not values:
                return
            with producer.transaction(consumer=consumer) as t:
                t.send("out", values[0], partition=0)
                if len(polled) <= 4:
                    t.abort()

        wait_until(lambda: server.groups.committed("movers") == {0: COUNT, 1: COUNT}, turn=turn)
    assert len(polled) == len(set(polled)) + 4, "what was aborted came again, and nothing else"


def test_a_partition_that_went_to_another_member_aborts_the_transaction(
    clients: Clients, producer: Any, server: ContractServer
) -> None:
    with reader(clients, server, producer) as consumer:
        until(lambda: len(consumer.assignment()) == 2, consumer)
        consumer.seek(TopicPartition("in", 0), 0)
        consumer.seek(TopicPartition("in", 1), 0)
        t = producer.transaction(consumer=consumer)
        with t:
            seen: set[int] = set()

            def turn() -> None:
                seen.update(name.partition for name in consumer.poll(50))

            wait_until(lambda: seen == {0, 1}, turn=turn)
            with reader(clients, server, producer) as other:
                until(lambda: len(consumer.assignment()) == 1, consumer, other)
                error = failed(t.commit)
            assert (error.code, error.abort_required) == (ErrorCode.STALE_ASSIGNMENT, True)
            t.abort()
        assert server.groups.committed("movers") == {}


def test_consumers_that_would_break_it_are_refused(
    clients: Clients, producer: Any, server: ContractServer
) -> None:
    with reader(clients, server, producer, enable_auto_commit=True) as consumer:
        error = failed(lambda: producer.transaction(consumer=consumer))
        assert error.hint == "make the consumer with enable_auto_commit=False"
    with reader(clients, server, producer, group_id=None) as consumer:
        error = failed(lambda: producer.transaction(consumer=consumer))
        assert error.hint == "make the consumer with a group_id"
    assert "consumer is of type" in failed(lambda: producer.transaction(consumer=7)).happened
    assert refused(lambda: producer.transaction(consumer=producer)).code is (
        ErrorCode.INVALID_ARGUMENT
    )


def test_behind_a_block_that_could_not_abort_the_consumer_goes_back_first(
    clients: Clients, server: ContractServer
) -> None:
    with (
        make(clients, server, "move") as producer,
        reader(clients, server, producer) as consumer,
    ):
        producer.init_transactions()
        polled: list[Any] = []

        def fail() -> None:
            with producer.transaction(consumer=consumer) as t:
                for name, records in consumer.poll(50).items():
                    polled.append(records)
                    t.send("out", records[0].value, partition=name.partition).get(HANG_SECONDS)
                if polled:
                    server.transactions.refuse = no_abort
                    raise ZeroDivisionError

        while not polled:
            try:
                fail()
            except ZeroDivisionError:
                break
        server.transactions.refuse = None
        with pytest.raises(TransactionError) as caught:
            move(producer, consumer)
        assert caught.value.retriable
        wait_until(
            lambda: server.groups.committed("movers") == {0: COUNT, 1: COUNT},
            turn=lambda: move(producer, consumer),
        )
    wanted = [b"%d-%d" % (partition, number) for partition in (0, 1) for number in range(COUNT)]
    assert server.transactions.committed("out") == wanted
