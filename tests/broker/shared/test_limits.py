"""What one request may cost, and what each answer is bounded by."""

import asyncio

import pytest

from tests.broker.support.node_fixtures import with_node
from tests.broker.support.node_in_world import PlainClient, configuration, partition_batch, sealed
from tidelog.broker.groups.state.limits import PARTITIONS_PER_GROUP_MAX
from tidelog.broker.services.groups.admin import FILTERS_MAX
from tidelog.broker.services.log_dirs.handler import wanted_of
from tidelog.broker.shared.limits import PARTS_PER_REQUEST_MAX, RECORDS_ANSWER_BYTES
from tidelog.v1 import (
    admin_pb2,
    common_pb2,
    group_admin_pb2,
    groups_pb2,
    log_dirs_pb2,
    metadata_pb2,
    produce_pb2,
    records_pb2,
)
from tidelog.wire.batch import Codec, checksum, encode_batch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId

MIB = 1024 * 1024
BIG = {"max.message.bytes": str(3 * MIB)}


async def fetch_records(
    client: PlainClient, offset: int, max_records: int = 0
) -> records_pb2.FetchRecordsResponse:
    request = records_pb2.FetchRecordsRequest(
        topic="t", fetch_offset=offset, max_records=max_records
    )
    raw = await client.call("RecordsService/FetchRecords", request.SerializeToString())
    return records_pb2.FetchRecordsResponse.FromString(raw)


async def refusal(client: PlainClient, method: str, message: bytes) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        await client.call(method, message)
    return caught.value


def zeros(*sizes: int) -> bytes:
    """A small batch of large records."""
    return encode_batch([(1, None, bytes(size), ()) for size in sizes], codec=Codec.LZ4)


def test_plain_records_of_small_batches_that_unfold_are_answered_in_bounded_parts() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        for _ in range(3):
            await client.produce(partition_batch(topic_id, 0, zeros(*[900_000] * 4)))
        await client.produce(partition_batch(topic_id, 0, zeros(5 * MIB, 10)))
        sizes, offset = [], 0
        while (answer := await fetch_records(client, offset)).records:
            assert answer.records[0].offset == offset
            size_bytes = answer.ByteSize()
            assert size_bytes <= RECORDS_ANSWER_BYTES or len(answer.records) == 1
            sizes += [len(record.value) for record in answer.records]
            offset = answer.next_offset
        assert sizes == [900_000] * 12 + [5 * MIB, 10]

    with_node(work)


def test_a_record_that_fits_no_answer_is_refused_and_can_be_passed() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        await client.produce(partition_batch(topic_id, 0, zeros(10, 17 * MIB, 11)))
        first = await fetch_records(client, 0)
        assert [len(record.value) for record in first.records] == [10]
        request = records_pb2.FetchRecordsRequest(topic="t", fetch_offset=1)
        error = await refusal(client, "RecordsService/FetchRecords", request.SerializeToString())
        assert error.code is ErrorCode.BATCH_TOO_LARGE
        assert "offset 2" in error.hint
        last = await fetch_records(client, 2)
        assert [len(record.value) for record in last.records] == [11]

    with_node(work)


def test_records_before_a_batch_that_cannot_be_read_are_answered() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        await client.produce(partition_batch(topic_id, 0, sealed([b"a", b"b"])))
        whole = sealed([b"c"])
        garbage = reseal(whole[:-4] + b"\xff" * 4)
        await client.produce(partition_batch(topic_id, 0, garbage))
        first = await fetch_records(client, 0)
        assert [record.value for record in first.records] == [b"a", b"b"]
        request = records_pb2.FetchRecordsRequest(topic="t", fetch_offset=first.next_offset)
        error = await refusal(client, "RecordsService/FetchRecords", request.SerializeToString())
        assert error.code is ErrorCode.CORRUPT_BATCH

    with_node(work)


def reseal(batch: bytes) -> bytes:
    """The right checksum over a wrong body."""
    crc = checksum(batch[21:])
    return batch[:17] + crc.to_bytes(4, "big") + batch[21:]


def test_a_request_of_plain_records_is_bounded_as_a_whole_before_anything_is_done() -> None:
    async def work(client: PlainClient) -> None:
        records = [records_pb2.Record(key=b"%d" % n, value=bytes(200_000)) for n in range(6)]
        request = records_pb2.ProduceRecordsRequest(topic="t", records=records)
        error = await refusal(client, "RecordsService/ProduceRecords", request.SerializeToString())
        assert error.code is ErrorCode.BATCH_TOO_LARGE
        assert "records.request_bytes_max" in error.happened
        assert await names(client) == []

    with_node(work, settings=configuration(default_partitions="6"))


async def names(client: PlainClient) -> list[str]:
    request = admin_pb2.DescribeTopicsRequest()
    raw = await client.call("AdminService/DescribeTopics", request.SerializeToString())
    return [topic.name for topic in admin_pb2.DescribeTopicsResponse.FromString(raw).topics]


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch", "sequence"),
    [(-5, 0, 0), (1, -1, 0), (1, 40_000, 0), (1, 0, -7), (-1, -1, -1)],
)
def test_a_producer_identity_that_no_batch_can_hold_is_refused(
    producer_id: int, producer_epoch: int, sequence: int
) -> None:
    async def work(client: PlainClient) -> None:
        request = records_pb2.ProduceRecordsRequest(
            topic="t",
            partition=0,
            records=[records_pb2.Record(value=b"a")],
            producer=records_pb2.ProducerIdentity(
                producer_id=producer_id, producer_epoch=producer_epoch, sequence=sequence
            ),
        )
        error = await refusal(client, "RecordsService/ProduceRecords", request.SerializeToString())
        assert error.code is ErrorCode.INVALID_ARGUMENT
        assert await names(client) == []

    with_node(work)


def test_more_parts_than_can_be_answered_are_refused_before_anything_is_done() -> None:
    async def work(client: PlainClient) -> None:
        count = PARTS_PER_REQUEST_MAX + 1
        batches = [
            produce_pb2.PartitionBatch(topic_id=bytes(16), partition=number)
            for number in range(count)
        ]
        produce = produce_pb2.ProduceRequest(batches=batches)
        query = metadata_pb2.OffsetQuery(topic_id=bytes(16), spec=metadata_pb2.OFFSET_SPEC_LATEST)
        offsets = metadata_pb2.ListOffsetsRequest(queries=[query] * count)
        describe = admin_pb2.DescribeTopicsRequest(topic_names=["t"] * count)
        for method, message in (
            ("ProduceService/Produce", produce.SerializeToString()),
            ("MetadataService/ListOffsets", offsets.SerializeToString()),
            ("AdminService/DescribeTopics", describe.SerializeToString()),
        ):
            error = await refusal(client, method, message)
            assert error.code is ErrorCode.INVALID_ARGUMENT
            assert "at most" in error.happened

    with_node(work)


def test_log_directories_of_too_many_topics_partitions_or_brokers_are_refused() -> None:
    async def work(client: PlainClient) -> None:
        most = PARTS_PER_REQUEST_MAX
        topic = common_pb2.TopicPartitions(topic_id=bytes(16))
        whole = common_pb2.TopicPartitions(topic_id=bytes(16), partitions=range(most))
        asked = log_dirs_pb2.DescribeLogDirsRequest
        method = "LogDirService/DescribeLogDirs"
        for message in (
            asked(topics=[topic] * (most + 1)),
            asked(topics=[whole, topic]),
            asked(broker_ids=[1] * (most + 1)),
        ):
            error = await refusal(client, method, message.SerializeToString())
            assert error.code is ErrorCode.INVALID_ARGUMENT
            assert str(most + 1) in error.happened
        admitted = asked(topics=[whole], broker_ids=[1] * most)
        raw = await client.call(method, admitted.SerializeToString())
        (broker,) = log_dirs_pb2.DescribeLogDirsResponse.FromString(raw).brokers
        assert not broker.HasField("error"), broker.error

    with_node(work)


def test_calls_about_groups_are_refused_before_more_is_read_than_a_group_has() -> None:
    async def work(client: PlainClient) -> None:
        count = PARTITIONS_PER_GROUP_MAX + 1
        topic = common_pb2.TopicPartitions(topic_id=bytes(16), partitions=range(count))
        fetch = groups_pb2.FetchOffsetsRequest(group="g", topics=[topic])
        heartbeat = groups_pb2.GroupHeartbeatRequest(group="g")
        heartbeat.owned.topics.append(topic)
        offsets = [groups_pb2.OffsetCommit(topic_id=bytes(16))] * count
        commit = groups_pb2.CommitOffsetsRequest(group="g", offsets=offsets)
        for method, request in (
            ("FetchOffsets", fetch),
            ("GroupHeartbeat", heartbeat),
            ("CommitOffsets", commit),
        ):
            error = await refusal(client, f"GroupService/{method}", request.SerializeToString())
            assert error.code is ErrorCode.INVALID_ARGUMENT
            assert "at most" in error.happened

    with_node(work)


def test_groups_are_not_listed_by_more_states_and_types_than_there_are() -> None:
    async def work(client: PlainClient) -> None:
        request = group_admin_pb2.ListGroupsRequest(
            states=[group_admin_pb2.GROUP_STATE_EMPTY] * FILTERS_MAX,
            types=[groups_pb2.GROUP_TYPE_RECONCILED],
        )
        error = await refusal(client, "GroupAdminService/ListGroups", request.SerializeToString())
        assert error.code is ErrorCode.INVALID_ARGUMENT
        assert str(FILTERS_MAX + 1) in error.happened

    with_node(work)


def test_a_topic_that_is_named_several_times_is_named_with_all_of_its_partitions() -> None:
    a, b, c = (TopicId(bytes([number]) * 16) for number in range(3))
    named = [(a, [1, 2]), (b, [1]), (c, []), (a, [2, 3]), (b, []), (c, [1]), (b, [2])]
    assert wanted_of(named) == {a: {1, 2, 3}, b: set(), c: set()}


def test_one_batch_larger_than_the_whole_budget_is_stored_when_it_is_alone() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t", settings=BIG)
        (answer,) = await client.produce(partition_batch(topic_id, 0, sealed([b"x" * 2 * MIB])))
        assert not answer.HasField("error"), answer.error

    with_node(work, settings=configuration(produce__queued_bytes_max=str(MIB)))


def test_topics_are_described_once_each_in_the_order_of_their_names() -> None:
    async def work(client: PlainClient) -> None:
        for name in ("b", "a"):
            await client.create_topic(name)
        request = admin_pb2.DescribeTopicsRequest(topic_names=["z", "b", "a", "b", "x" * 9_000])
        raw = await client.call("AdminService/DescribeTopics", request.SerializeToString())
        topics = admin_pb2.DescribeTopicsResponse.FromString(raw).topics
        assert [topic.name[:1] for topic in topics] == ["a", "b", "x", "z"]
        assert [topic.error.code for topic in topics] == [0, 0, 20, 20]
        assert len(topics[2].error.happened) <= 1_000

    with_node(work)


def test_a_topic_named_twice_in_a_creation_is_refused_with_the_whole_request() -> None:
    async def work(client: PlainClient) -> None:
        new = admin_pb2.NewTopic(name="t")
        request = admin_pb2.CreateTopicsRequest(topics=[new, new])
        error = await refusal(client, "AdminService/CreateTopics", request.SerializeToString())
        assert error.code is ErrorCode.INVALID_ARGUMENT
        assert await names(client) == []

    with_node(work)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_topic_that_several_clients_cause_at_once_serves_each_of_them(seed: int) -> None:
    async def use(client: PlainClient, number: int) -> None:
        record = records_pb2.Record(value=b"%d" % number)
        request = records_pb2.ProduceRecordsRequest(topic="t", records=[record])
        raw = await client.call("RecordsService/ProduceRecords", request.SerializeToString())
        (place,) = records_pb2.ProduceRecordsResponse.FromString(raw).places
        assert not place.HasField("error"), place.error

    async def work(client: PlainClient) -> None:
        await asyncio.gather(*(use(client, number) for number in range(8)))
        records = await client.read_all(await client.topic_id("t"))
        assert len(records) == 8

    with_node(work, seed=seed, settings=configuration(auto_create_topics="true"))
