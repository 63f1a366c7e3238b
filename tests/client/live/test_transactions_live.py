"""Transactions on real nodes that die: what is committed is there whole and once, the rest never.

Here is what a user sees, by the clients on both drivers; the simulator's checkers judge the rest.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from tests.client.support.drivers import BlockingProducer, Clients
from tests.client.support.group_members import clients
from tests.client.test_transactions import failed
from tests.support.waiting import HANG_MS, HANG_SECONDS, wait_until
from tidelog.client import TopicPartition, TransactionState
from tidelog.client.errors import ErrorCode, TidelogError
from tidelog.testing import TestCluster

__all__ = ["clients"]

pytestmark = [pytest.mark.slow, pytest.mark.live]

PARTITIONS = 3
Read = dict[int, list[bytes]]


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        for topic in ("in", "out"):
            try:
                running.create_topic(topic, PARTITIONS, 3)
            except TidelogError as error:
                # On a machine that stalls a first try may have done it after all.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        yield running


def producer_of(clients: Clients, cluster: TestCluster, name: str = "mover", **more: Any) -> Any:
    return clients.Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id=name, linger_ms=0, **more
    )


def places(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def committed(cluster: TestCluster, topic: str, count: int) -> Read:
    """What a consumer of committed records is given, until it has so many and stands at the end."""
    found: Read = {number: [] for number in range(PARTITIONS)}
    with cluster.consumer(
        auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign(places(topic))

        def turn() -> None:
            for name, records in consumer.poll(200).items():
                found[name.partition] += [record.value for record in records]

        ends = consumer.end_offsets(places(topic))
        wait_until(
            lambda: all(consumer.position(name) >= end for name, end in ends.items()), turn=turn
        )
    assert sum(map(len, found.values())) == count, found
    return found


def test_transfers_are_whole_whatever_dies(clients: Clients, cluster: TestCluster) -> None:
    done: list[bytes] = []
    with producer_of(clients, cluster) as producer:
        for number in range(36):
            if number in (6, 18, 30):
                cluster.kill(1 + number // 12)
            if number in (12, 24):
                cluster.heal()
            value = b"%d" % number
            try:
                with producer.transaction() as t:
                    for partition in range(PARTITIONS):
                        t.send("out", value, partition=partition)
                    if number % 4 == 3:
                        producer.flush()
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            done.append(value)
    cluster.heal()
    assert len(done) == 27
    wanted = dict.fromkeys(range(PARTITIONS), done)
    assert committed(cluster, "out", 27 * PARTITIONS) == wanted


def test_what_is_read_made_and_written_is_one_step_whatever_dies(
    clients: Clients, cluster: TestCluster
) -> None:
    count = 60
    with cluster.producer() as first:
        for number in range(count):
            first.send("in", b"%d" % number, partition=number % PARTITIONS)
    rounds = 0

    def live() -> None:
        """One life of the worker: it dies in its fourth transaction."""
        nonlocal rounds
        with producer_of(clients, cluster) as producer:
            more = {"on_loop_of": producer} if isinstance(producer, BlockingProducer) else {}
            with clients.Consumer(
                "in",
                bootstrap_servers=cluster.bootstrap,
                group_id="movers",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                max_poll_records=4,
                session_timeout_ms=10_000,
                **more,
            ) as consumer:
                moved = 0
                while moved < 4:
                    with producer.transaction(consumer=consumer) as t:
                        polled = consumer.poll(200)
                        for name, records in polled.items():
                            for record in records:
                                t.send("out", record.value, partition=name.partition)
                        if not polled and is_done():
                            return
                        moved += bool(polled)
                        if moved == 4:
                            raise ZeroDivisionError
                    rounds += 1
                    if rounds in (5, 11):
                        cluster.kill(1 + rounds % 3)
                    if rounds in (9, 16):
                        cluster.heal()

    def is_done() -> bool:
        with cluster.admin() as admin:
            stored = admin.list_group_offsets("movers")["movers"]
        each = count // PARTITIONS
        return all(at is not None and at.offset >= each for at in map(stored.get, places("in")))

    for _ in range(count):
        if is_done():
            break
        try:
            live()
        except ZeroDivisionError:
            continue
    cluster.heal()
    found = committed(cluster, "out", count)
    assert Counter(chain.from_iterable(found.values())) == Counter(b"%d" % n for n in range(count))


def test_a_zombie_never_counts(clients: Clients, cluster: TestCluster) -> None:
    with producer_of(clients, cluster) as old, producer_of(clients, cluster) as new:
        old.init_transactions()
        old.begin_transaction()
        old.send("out", b"old", partition=0).get(HANG_SECONDS)
        new.init_transactions()
        new.begin_transaction()
        new.send("out", b"new", partition=0)
        new.commit_transaction()
        error = failed(old.commit_transaction)
        assert (error.code, error.fatal) == (ErrorCode.FENCED_PRODUCER_EPOCH, True)
        assert failed(lambda: old.send("out", b"later", partition=0)).fatal
    assert committed(cluster, "out", 1)[0] == [b"new"]


def test_a_transaction_that_is_open_for_too_long_is_aborted(
    clients: Clients, cluster: TestCluster
) -> None:
    with producer_of(clients, cluster, transaction_timeout_ms=300) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("out", b"late", partition=0).get(HANG_SECONDS)
        with cluster.admin() as admin:
            wait_until(
                lambda: admin.describe_transactions(["mover"])[0].state is TransactionState.ABORTED
            )
        error = failed(producer.commit_transaction)
        assert (error.code, error.abort_required) == (ErrorCode.TRANSACTION_ABORTED, True)
        producer.abort_transaction()
    with producer_of(clients, cluster) as producer, producer.transaction() as t:
        t.send("out", b"next", partition=0)
    assert committed(cluster, "out", 1)[0] == [b"next"]


def test_a_prepared_transaction_outlives_everybody_until_it_is_decided(
    clients: Clients, cluster: TestCluster
) -> None:
    tokens = {}
    for name in ("kept", "left"):
        with producer_of(clients, cluster, name) as producer, producer.transaction() as t:
            t.send("out", name.encode(), partition=0)
            tokens[name] = str(t.prepare())
    for node in (1, 2, 3):
        cluster.kill(node)
        cluster.restart(node)
    with producer_of(clients, cluster, "kept", max_block_ms=HANG_MS) as producer:
        assert failed(producer.init_transactions).code is ErrorCode.TRANSACTION_PREPARED
        with clients.Producer(bootstrap_servers=cluster.bootstrap) as plain:
            for _ in range(2):
                plain.complete(tokens["kept"])
                plain.abandon(tokens["left"])
            assert isinstance(failed(lambda: plain.abandon(tokens["kept"])), TidelogError)
        producer.init_transactions()
    assert committed(cluster, "out", 1)[0] == [b"kept"]
