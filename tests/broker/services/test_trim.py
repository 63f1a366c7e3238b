"""DeleteRecords on a node: what goes, what is refused, and that each point stands by itself."""

from collections.abc import Sequence

import pytest

from tests.broker.support.node_fixtures import with_node
from tests.broker.support.node_in_world import (
    ADDRESS,
    CALL_MS,
    PlainClient,
    partition_batch,
    sealed,
    values_of,
)
from tidelog.broker.shared.limits import PARTS_PER_REQUEST_MAX
from tidelog.v1 import admin_pb2, common_pb2, metadata_pb2, topic_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

DELETE = "TopicAdminService/DeleteRecords"
Point = tuple[bytes, int, int]


async def trim(client: PlainClient, *points: Point) -> list[int | ErrorCode]:
    """Where each partition begins after it, or how it is refused."""
    request = topic_admin_pb2.DeleteRecordsRequest(
        points=[
            topic_admin_pb2.TrimPoint(
                partition=common_pb2.TopicPartition(topic_id=topic_id, partition=partition),
                before_offset=offset,
            )
            for topic_id, partition, offset in points
        ]
    )
    answer = await client.network.call(
        ADDRESS, f"/tidelog.v1.{DELETE}", request.SerializeToString(), timeout_ms=CALL_MS
    )
    results = topic_admin_pb2.DeleteRecordsResponse.FromString(answer).results
    assert [(each.partition.topic_id, each.partition.partition) for each in results] == [
        point[:2] for point in points
    ]
    for each in results:
        assert each.HasField("error") == (each.log_start_offset == -1)
    return [
        ErrorCode(each.error.code) if each.HasField("error") else each.log_start_offset
        for each in results
    ]


async def filled(
    client: PlainClient, name: str, values: Sequence[bytes], partitions: int = 1
) -> bytes:
    """A topic with a batch for each value in each partition."""
    topic_id = await client.create_topic(name, partitions, {"segment.bytes": "1024"})
    for value in values:
        for number in range(partitions):
            (answer,) = await client.produce(partition_batch(topic_id, number, sealed([value])))
            assert not answer.HasField("error"), answer
    return topic_id


async def earliest(client: PlainClient, topic_id: bytes, partition: int = 0) -> int:
    """As ListOffsets tells it."""
    query = metadata_pb2.OffsetQuery(
        topic_id=topic_id,
        partition=partition,
        leader_epoch=-1,
        spec=metadata_pb2.OFFSET_SPEC_EARLIEST,
    )
    request = metadata_pb2.ListOffsetsRequest(queries=[query])
    answer = await client.call("MetadataService/ListOffsets", request.SerializeToString())
    return metadata_pb2.ListOffsetsResponse.FromString(answer).answers[0].offset


async def size_bytes(client: PlainClient) -> int:
    """Of the one partition of topic `t`."""
    request = admin_pb2.DescribeTopicsRequest(topic_names=["t"])
    answer = await client.call("AdminService/DescribeTopics", request.SerializeToString())
    return admin_pb2.DescribeTopicsResponse.FromString(answer).topics[0].partitions[0].size_bytes


VALUES = [b"%d" % number * 300 for number in range(9)]


def test_what_lies_below_the_offset_goes_and_nothing_else() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await filled(client, "t", VALUES)
        assert await trim(client, (topic_id, 0, 5)) == [5]
        assert await earliest(client, topic_id) == 5
        below = await client.fetch(topic_id, 0, 4)
        assert below is not None
        assert ErrorCode(below.error.code) is ErrorCode.OFFSET_OUT_OF_RANGE
        found: list[tuple[int, bytes]] = []
        while len(found) < 4:
            rest = await client.fetch(topic_id, 0, 5 + len(found))
            assert rest is not None
            found += [each for each in values_of(rest.batches) if each[0] >= 5 + len(found)]
        assert found == list(enumerate(VALUES[5:], start=5))

    with_node(work)


def test_minus_one_is_all_that_is_committed_and_the_next_record_goes_on_from_there() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await filled(client, "t", VALUES[:3])
        assert await trim(client, (topic_id, 0, -1)) == [3]
        assert await trim(client, (topic_id, 0, -1)) == [3]
        (answer,) = await client.produce(partition_batch(topic_id, 0, sealed([b"next"])))
        assert (answer.base_offset, answer.log_start_offset) == (3, 3)

    with_node(work)


def test_of_a_partition_that_is_trimmed_to_its_end_nothing_stays_on_the_disk() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await filled(client, "t", VALUES[:2])
        assert await size_bytes(client) > 600
        assert await trim(client, (topic_id, 0, -1)) == [2]
        assert await size_bytes(client) == 0

    with_node(work)


def test_a_point_at_or_below_the_start_changes_nothing() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await filled(client, "t", VALUES[:3])
        assert await trim(client, (topic_id, 0, 0)) == [0]
        assert await trim(client, (topic_id, 0, 2)) == [2]
        assert await trim(client, (topic_id, 0, 1)) == [2]
        assert await trim(client, (topic_id, 0, 3)) == [3], "the high watermark itself"

    with_node(work)


def test_each_point_is_answered_by_itself() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await filled(client, "t", VALUES[:2], partitions=3)
        unknown = bytes([1]) * 16
        outcomes = await trim(
            client,
            (topic_id, 0, 3),
            (topic_id, 1, 1),
            (topic_id, 2, -2),
            (topic_id, 3, 0),
            (unknown, 0, 0),
        )
        assert outcomes == [
            ErrorCode.OFFSET_OUT_OF_RANGE,
            1,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ]
        assert [await earliest(client, topic_id, number) for number in range(3)] == [0, 1, 0]

    with_node(work)


def test_a_request_that_cannot_be_is_refused_as_a_whole() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await filled(client, "t", VALUES[:2])
        many = [(topic_id, number, 0) for number in range(PARTS_PER_REQUEST_MAX + 1)]
        twice = [(topic_id, 0, 1), (topic_id, 0, 2)]
        for points in (many, twice, [(b"short", 0, 0)]):
            with pytest.raises(TidelogError) as caught:
                await trim(client, *points)
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert await earliest(client, topic_id) == 0

    with_node(work)


def test_records_from_the_future_and_keyless_ones_of_a_compacted_topic_are_refused() -> None:
    async def work(client: PlainClient) -> None:
        plain = await client.create_topic("plain")
        far = sealed([b"v"], timestamp_ms=4_000_000_000_000)
        (answer,) = await client.produce(partition_batch(plain, 0, far))
        assert ErrorCode(answer.error.code) is ErrorCode.INVALID_TIMESTAMP
        compacted = await client.create_topic("compacted", 1, {"cleanup.policy": "compact"})
        (answer,) = await client.produce(partition_batch(compacted, 0, sealed([b"v"])))
        assert ErrorCode(answer.error.code) is ErrorCode.INVALID_ARGUMENT
        assert "no key" in answer.error.happened
        (answer,) = await client.produce(partition_batch(plain, 0, sealed([b"v"])))
        assert answer.base_offset == 0

    with_node(work)
