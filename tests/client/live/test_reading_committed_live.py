"""Consumers of committed records against a real node: every way to read, on both drivers."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.support.drivers import BOTH, Clients
from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.client import NewTopic, Producer, TopicPartition
from tidelog.kafka import KafkaConsumer
from tidelog.wire.batch import decode_records

pytestmark = [pytest.mark.slow, pytest.mark.live]
ROUNDS = 6
READ = "read"
NAME = TopicPartition(READ, 0)
OPEN = TopicPartition("open", 0)
WANTED = [b"%d-%d" % (number, each) for number in range(0, ROUNDS, 2) for each in range(3)]
EVERYTHING = [b"%d-%d" % (number, each) for number in range(ROUNDS) for each in range(3)]
END = ROUNDS * 4
"""Each transaction is three records and a marker; the last one is aborted."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """With a topic that ends in an aborted transaction, and one in which a transaction is open."""
    with running_node(tmp_path_factory.mktemp("node")) as running:
        with Clients("threads").AdminClient(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic(READ, 1), NewTopic(OPEN.topic, 1)])
        with Producer(
            bootstrap_servers=running.bootstrap,
            transactional_id="t",
            transaction_timeout_ms=600_000,
        ) as producer:
            producer.init_transactions()
            for number in range(ROUNDS):
                _write(producer, number)
            with producer.transaction() as open_:
                open_.send(OPEN.topic, b"later").get(HANG_SECONDS)
                with Producer(bootstrap_servers=running.bootstrap) as other:
                    other.send(OPEN.topic, b"now").get(HANG_SECONDS)
                yield running


def _write(producer: Producer, number: int) -> None:
    """Every second one is aborted."""
    producer.begin_transaction()
    for each in range(3):
        producer.send(READ, b"%d-%d" % (number, each))
    # An abort takes back what was not sent yet: it would not be in the log.
    producer.flush(HANG_SECONDS)
    if number % 2:
        producer.abort_transaction()
    else:
        producer.commit_transaction()


@pytest.fixture(params=BOTH, ids=repr)
def clients(request: pytest.FixtureRequest) -> Clients:
    found = request.param
    assert isinstance(found, Clients)
    return found


def by_poll(consumer: Any) -> list[bytes | None]:
    return [
        record.value
        for records in consumer.poll(HANG_MS, max_records=4).values()
        for record in records
    ]


def by_batches(consumer: Any) -> list[bytes | None]:
    return [
        record[4]
        for batch in consumer.poll_batches(HANG_MS)
        for record in decode_records(batch.data)
    ]


def by_table(consumer: Any) -> list[bytes | None]:
    found: list[bytes | None] = consumer.poll_arrow(HANG_MS).column("value").to_pylist()
    return found


@pytest.mark.parametrize("read", [by_poll, by_batches, by_table])
@pytest.mark.parametrize(
    ("level", "wanted"), [("read_committed", WANTED), ("read_uncommitted", EVERYTHING)]
)
def test_each_way_to_read_gives_what_its_level_says_and_no_lag_is_left(
    clients: Clients,
    node: NodeProcess,
    level: str,
    wanted: list[bytes],
    read: Callable[[Any], list[bytes | None]],
) -> None:
    with clients.Consumer(bootstrap_servers=node.bootstrap, isolation_level=level) as consumer:
        consumer.assign([NAME])
        consumer.seek_to_beginning(NAME)
        found: list[bytes | None] = []
        while len(found) < len(wanted):
            found += read(consumer)
        assert found == wanted
        assert consumer.end_offsets([NAME]) == {NAME: END}
        while consumer.position(NAME) < END:
            # An aborted tail is passed over without a record.
            assert consumer.poll(10) == {}


def test_a_group_of_readers_of_committed_records_commits_behind_the_aborted_tail(
    clients: Clients, node: NodeProcess
) -> None:
    with clients.Consumer(
        READ,
        bootstrap_servers=node.bootstrap,
        group_id=f"g-{clients!r}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        found: list[bytes] = []
        while len(found) < len(WANTED) or consumer.position(NAME) < END:
            for records in consumer.poll(100).values():
                found += [record.value for record in records]
        assert found == WANTED
        consumer.commit()
        assert consumer.committed(NAME) == END


def test_what_is_open_holds_readers_of_committed_records_back(
    clients: Clients, node: NodeProcess
) -> None:
    def reader(level: str) -> Any:
        return clients.Consumer(bootstrap_servers=node.bootstrap, isolation_level=level)

    with reader("read_committed") as committed, reader("read_uncommitted") as everything:
        assert committed.end_offsets([OPEN]) == {OPEN: 0}
        assert everything.end_offsets([OPEN]) == {OPEN: 2}
        for consumer in (committed, everything):
            consumer.assign([OPEN])
            consumer.seek_to_beginning(OPEN)
        assert len(everything.poll(HANG_MS)) == 1
        assert committed.poll(200) == {}
        assert committed.position(OPEN) == 0
        committed.seek_to_end(OPEN)
        assert committed.position(OPEN) == 0


@pytest.mark.parametrize(
    ("level", "wanted"), [("read_committed", WANTED), ("read_uncommitted", EVERYTHING)]
)
def test_kafka_pythons_consumer_and_the_command_do_the_same(
    node: NodeProcess, level: str, wanted: list[bytes]
) -> None:
    consumer = KafkaConsumer(
        READ,
        bootstrap_servers=node.bootstrap,
        isolation_level=level,
        auto_offset_reset="earliest",
    )
    assert [next(consumer).value for _ in wanted] == wanted
    consumer.close()
    command = ["consume", READ, "-o", "beginning", "-e", "--json", "--isolation", level]
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *command, "-b", node.bootstrap],
        capture_output=True,
        timeout=HANG_SECONDS,
        check=True,
    )
    assert [json.loads(line)["value"].encode() for line in done.stdout.splitlines()] == wanted
