"""A record handler in a group, on a real node: what is done is committed, dead letters included."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.client import (
    AdminClient,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Producer,
    RecordHandler,
    RetryPolicy,
    TopicPartition,
)

pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path) as running:
        yield running


def test_a_group_goes_on_behind_what_its_handler_has_done(node: NodeProcess) -> None:
    address, name = node.bootstrap, TopicPartition("t", 0)
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic("t", 1), NewTopic("dead", 1)])
    seen: list[bytes] = []

    def handle(record: ConsumerRecord) -> None:
        seen.append(record.value)
        int(record.value)
        if record.value == b"5":
            handler.stop()

    with Producer(bootstrap_servers=address) as producer:
        producer.send_batch("t", [b"1", b"2", b"three", b"4", b"5", b"6"]).get(HANG_SECONDS)
        with Consumer(
            "t",
            bootstrap_servers=address,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            handler = RecordHandler(
                consumer,
                handle,
                producer,
                "dead",
                policy=RetryPolicy(tries=2, backoff_ms=1),
                commit=consumer.commit,
            )
            handler.run()
            assert consumer.committed(name) == 5
    assert seen == [b"1", b"2", b"three", b"three", b"4", b"5"]
    with Consumer(
        "dead", bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=HANG_MS
    ) as consumer:
        assert next(consumer).value == b"three"
    with Consumer(
        "t", bootstrap_servers=address, group_id="g", consumer_timeout_ms=HANG_MS
    ) as consumer:
        assert next(consumer).value == b"6"
