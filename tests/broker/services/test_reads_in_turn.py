"""Partitions with a backlog on a whole node: none waits until another is read to its end."""

import pytest

from tests.broker.support.node_fixtures import with_node
from tests.broker.support.node_in_world import (
    ADDRESS,
    PlainClient,
    partition_batch,
    position,
    sealed,
)
from tidelog.v1 import fetch_pb2, subscribe_pb2

pytestmark = pytest.mark.slow


async def fill(client: PlainClient, batch_count: int, size_bytes: int) -> bytes:
    """A topic of two partitions, with so many batches in each."""
    topic_id = await client.create_topic("t", 2)
    batch = sealed([b"x" * size_bytes])
    for _ in range(batch_count):
        await client.produce(*(partition_batch(topic_id, number, batch) for number in range(2)))
    return topic_id


def test_a_fetch_stream_reads_partitions_in_turn() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await fill(client, 40, 300_000)
        stream = client.network.stream(ADDRESS, "/tidelog.v1.FetchService/FetchStream")
        request = fetch_pb2.FetchStreamRequest(
            positions=[position(topic_id, number, 0) for number in range(2)],
            credit_bytes=1 << 30,
            session_epoch=1,
        )
        await stream.send(request.SerializeToString())
        found = [0, 0]
        for _ in range(12):
            message = await stream.receive()
            assert message is not None
            for each in fetch_pb2.FetchStreamResponse.FromString(message).partitions:
                found[each.partition] += len(each.batches)
        stream.cancel()
        assert max(found) - min(found) < 2 * 1024 * 1024, f"bytes by partition: {found}"

    with_node(work)


@pytest.mark.parametrize("credit", [7, 1_000])
@pytest.mark.parametrize("size_bytes", [60_000, 300_000])
def test_a_subscription_reads_partitions_in_turn(size_bytes: int, credit: int) -> None:
    async def work(client: PlainClient) -> None:
        await fill(client, 40, size_bytes)
        stream = client.network.stream(ADDRESS, "/tidelog.v1.SubscribeService/Subscribe")
        begin = subscribe_pb2.SubscribeBegin(
            topics=["t"], start_at=subscribe_pb2.START_AT_EARLIEST, credit_records=credit
        )
        await stream.send(subscribe_pb2.SubscribeRequest(begin=begin).SerializeToString())
        found, unpaid = [0, 0], 0
        while max(found) < 30:
            message = await stream.receive()
            assert message is not None
            answer = subscribe_pb2.SubscribeResponse.FromString(message)
            found[answer.records.partition] += len(answer.records.records)
            unpaid += len(answer.records.records)
            if unpaid >= credit:
                grant = subscribe_pb2.SubscribeCredit(records=unpaid)
                await stream.send(subscribe_pb2.SubscribeRequest(credit=grant).SerializeToString())
                unpaid = 0
        stream.cancel()
        assert min(found) > 20, f"records by partition: {found}"

    with_node(work)
