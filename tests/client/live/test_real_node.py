"""The clients against a real node in a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS
from tidelog.client import AdminClient, Consumer, NewTopic, Producer, TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Stays up; each test has a topic of its own."""
    with running_node(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_what_was_produced_is_read_back_in_order(
    shared_node: NodeProcess, codec: str, acks: int | str
) -> None:
    address, topic = shared_node.bootstrap, f"{codec}-{acks}"
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(topic, 3)])
    with Producer(
        bootstrap_servers=address, compression_type=codec, acks=acks, batch_size=8_192
    ) as producer:
        for number in range(2_000):
            producer.send(topic, b"%d" % number, key=b"%d" % (number % 7), headers=[("h", b"1")])
    by_key: dict[bytes, list[int]] = {}
    with Consumer(topic, bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        for _ in range(2_000):
            record = next(consumer)
            by_key.setdefault(record.key, []).append(int(record.value))
    assert sum(map(len, by_key.values())) == 2_000
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_clients_go_on_after_the_node_was_killed_and_started_again(node: NodeProcess) -> None:
    name = TopicPartition("t", 0)
    with (
        Producer(bootstrap_servers=node.bootstrap, retry_backoff_ms=20) as producer,
        Consumer("t", bootstrap_servers=node.bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        first = producer.send("t", b"before").get(HANG_SECONDS)
        assert next(consumer).value == b"before"
        node.restart()
        acknowledged = [first.offset]
        for number in range(200):
            future = producer.send("t", b"%d" % number)
            acknowledged.append(future.get(HANG_SECONDS).offset)
        end = consumer.end_offsets([name])[name]
        values = [next(consumer).value for _ in range(end - 1)]
        assert values == [b"%d" % number for number in range(200)], "each once, in order"
        assert acknowledged == list(range(end))


def test_an_acknowledged_record_survives_a_kill(node: NodeProcess) -> None:
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        stored = [producer.send("t", b"%d" % number) for number in range(100)]
        for future in stored:
            future.get(HANG_SECONDS)
        node.restart()
    with Consumer("t", bootstrap_servers=node.bootstrap, auto_offset_reset="earliest") as consumer:
        assert [int(next(consumer).value) for _ in range(100)] == list(range(100))
