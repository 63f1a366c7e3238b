"""Leader epochs against a real broker: where its log parts from what a checkpoint says was read.

A node that starts again leads under a new epoch. A checkpoint that claims to have read beyond the
end of the old one is what an unclean election leaves behind.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.chaos.live.processes.node import NodeProcess
from tidelog.client import AdminClient, NewTopic, Producer, TopicPartition
from tidelog.client.sync.admin.positions import PositionClient
from tidelog.spark.options import parse_options
from tidelog.spark.stream import StreamPlanner
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = [pytest.mark.slow, pytest.mark.live]

NAME = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """20 records of one leader epoch, 20 of a later one."""
    running = NodeProcess(tmp_path_factory.mktemp("node"))
    running.start()
    with AdminClient(bootstrap_servers=running.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])
    produce(running, 20)
    running.stop()
    running.start()
    produce(running, 20)
    yield running
    running.kill()


def produce(node: NodeProcess, count: int) -> None:
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for _ in range(count):
            producer.send("t", b"v")


def epochs(client: PositionClient) -> tuple[bytes, int, int]:
    """The topic's id, the epoch of the first record, that of the last."""
    ids = {"t": client.topics(["t"])["t"].topic_id}
    first = client.offsets({NAME: (OffsetSpec.EARLIEST, -1)}, ids)[NAME]
    last = client.offsets({NAME: (OffsetSpec.LATEST, -1)}, ids)[NAME]
    assert (first.offset, last.offset) == (0, 40)
    return ids["t"], first.leader_epoch, last.leader_epoch


def test_a_leader_says_where_its_log_parts_from_what_was_read(node: NodeProcess) -> None:
    with PositionClient(bootstrap_servers=node.bootstrap) as client:
        topic_id, old, new = epochs(client)
        assert old < new
        ids = {"t": topic_id}
        for offset, epoch in ((20, old), (5, old), (5, new), (40, new)):
            assert client.partings({NAME: (offset, epoch)}, ids) == {}, (offset, epoch)
        assert client.partings({NAME: (30, old)}, ids) == {NAME: 20}
        assert client.partings({NAME: (45, new)}, ids) == {NAME: 40}
        with pytest.raises(TidelogError) as caught:
            client.partings({NAME: (20, old)}, {"t": bytes(16)}, 300)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def checkpoint(node: NodeProcess, offset: int) -> dict[str, Any]:
    """What a stream has written that had read to the offset under the old epoch."""
    with PositionClient(bootstrap_servers=node.bootstrap) as client:
        topic_id, old, _ = epochs(client)
    return {
        "topics": {
            "t": {"epochs": {"0": old}, "id": topic_id.hex(), "offsets": {"0": offset}},
        }
    }


def planner(node: NodeProcess, *, strict: bool) -> StreamPlanner:
    raw = {
        "subscribe": "t",
        "bootstrap.servers": node.bootstrap,
        "failOnDataLoss": str(strict).lower(),
    }
    return StreamPlanner(parse_options(raw, is_streaming=True))


@pytest.mark.parametrize("strict", [True, False])
def test_a_new_leader_alone_is_no_loss(node: NodeProcess, strict: bool) -> None:
    begun, asked = checkpoint(node, 20), planner(node, strict=strict)
    [span] = asked.plan(begun, asked.latest_offset(begun, None))
    assert (span.start, span.end) == (20, 40)
    asked.close()


def test_a_checkpoint_beyond_a_truncation_fails_or_goes_on_where_the_logs_part(
    node: NodeProcess, caplog: pytest.LogCaptureFixture
) -> None:
    begun, asked = checkpoint(node, 30), planner(node, strict=True)
    with pytest.raises(TidelogError, match="truncated at offset 20") as caught:
        asked.latest_offset(begun, None)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    asked.close()
    asked = planner(node, strict=False)
    ended = asked.latest_offset(begun, None)
    [span] = asked.plan(begun, ended)
    assert (span.start, span.end) == (20, 40)
    assert "truncated at offset 20" in caplog.text
    # The batch is the same when it is run again, and what follows goes on behind it.
    again = planner(node, strict=False)
    [replayed] = again.plan(begun, ended)
    assert (replayed.start, replayed.end, replayed.topic_id) == (20, 40, span.topic_id)
    again.close()
    assert asked.latest_offset(ended, None) == ended
    asked.close()
