"""The asyncio clients against a real node in a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.support.drivers import Clients
from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS
from tidelog.client import NewTopic, TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path) as running:
        yield running


def test_asyncio_clients_go_on_after_the_node_was_killed_and_started_again(
    node: NodeProcess,
) -> None:
    clients, name = Clients("asyncio"), TopicPartition("t", 0)
    with (
        clients.AdminClient(bootstrap_servers=node.bootstrap) as admin,
        clients.Producer(bootstrap_servers=node.bootstrap, retry_backoff_ms=20) as producer,
        clients.Consumer(
            "t", bootstrap_servers=node.bootstrap, auto_offset_reset="earliest"
        ) as consumer,
    ):
        admin.create_topics([NewTopic("t", 1)])
        futures = [producer.send("t", b"%d" % number) for number in range(100)]
        producer.flush(HANG_SECONDS)
        assert [int(next(consumer).value) for _ in range(100)] == list(range(100))
        node.restart()
        futures += [producer.send("t", b"%d" % number) for number in range(100, 200)]
        producer.flush(HANG_SECONDS)
        assert [future.get(HANG_SECONDS).offset for future in futures] == list(range(200))
        assert [int(next(consumer).value) for _ in range(100)] == list(range(100, 200))
        assert consumer.position(name) == 200
        assert consumer.end_offsets([name]) == {name: 200}
