"""The data calls of a whole node through its converters: what is stored, refused, waited for."""

import asyncio

import pytest

from tests.broker.support.node_fixtures import with_node
from tests.broker.support.node_in_world import (
    PlainClient,
    configuration,
    partition_batch,
    position,
    sealed,
    values_of,
)
from tidelog.v1 import fetch_pb2, metadata_pb2, produce_pb2, records_pb2
from tidelog.wire.batch import (
    Codec,
    checksum,
    encode_batch,
    fetch_sum,
    read_header,
)
from tidelog.wire.batch.layout import (
    APPEND_TIME_BIT,
    ATTRIBUTES_POSITION,
    CHECKSUM_POSITION,
    DELETE_HORIZON_BIT,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId


def test_batches_come_back_with_offsets_sums_and_watermarks() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t", 2)
        first = await client.produce(partition_batch(topic_id, 1, sealed([b"a", b"b"])))
        second = await client.produce(partition_batch(topic_id, 1, sealed([b"c"])))
        assert [first[0].base_offset, second[0].base_offset] == [0, 2]
        answer = await client.fetch(topic_id, 1, 0)
        assert answer is not None
        assert values_of(answer.batches) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert answer.high_watermark == 3
        assert answer.fetch_sum == fetch_sum(TopicId(topic_id), 1, 0, checksum(answer.batches))
        assert await client.fetch(topic_id, 0, 0) is None, "a partition without news is left out"

    with_node(work)


def test_a_fetch_inside_a_batch_answers_the_whole_batch_and_none_before() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        for start in range(0, 9, 3):
            values = [b"%d" % number for number in range(start, start + 3)]
            await client.produce(partition_batch(topic_id, 0, sealed(values)))
        answer = await client.fetch(topic_id, 0, 4)
        assert answer is not None
        assert values_of(answer.batches)[0] == (3, b"3")

    with_node(work)


@pytest.mark.parametrize("max_bytes", [1, 100, 5_000, 20_000])
def test_a_fetch_answers_at_least_one_batch_and_else_no_more_than_was_asked(max_bytes: int) -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic(
            "t", settings={"segment.bytes": "30000", "retention.ms": "-1"}
        )
        sizes = [10, 3_000, 9_000, 10, 10, 12_000, 5]
        for number, size in enumerate(sizes * 2):
            await client.produce(
                partition_batch(topic_id, 0, sealed([b"%02d" % number + b"x" * size]))
            )
        offset = 0
        while (answer := await client.fetch(topic_id, 0, offset, max_bytes=max_bytes)) is not None:
            records = values_of(answer.batches)
            assert records[0][0] == offset
            assert len(answer.batches) <= max_bytes or len(records) == 1
            offset = records[-1][0] + 1
        assert offset == 2 * len(sizes)

    with_node(work)


def damaged(batch: bytes, position_: int) -> bytes:
    """One bit is wrong."""
    content = bytearray(batch)
    content[position_] ^= 1
    return bytes(content)


def test_a_batch_that_is_not_right_is_refused_and_nothing_is_stored() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t", 2, settings={"max.message.bytes": "2000"})
        good = sealed([b"value"])
        misrouted = partition_batch(topic_id, 0, good)
        misrouted.partition = 1
        old_epoch = partition_batch(topic_id, 0, good)
        old_epoch.leader_epoch = 7
        cases = {
            ErrorCode.CORRUPT_BATCH: [
                produce_pb2.PartitionBatch(topic_id=topic_id, leader_epoch=-1, batch=content)
                for content in (b"", b"x" * 60, good[:-1], good + good, damaged(good, 70))
            ],
            ErrorCode.ROUTE_MISMATCH: [misrouted],
            ErrorCode.BATCH_TOO_LARGE: [partition_batch(topic_id, 0, sealed([b"x" * 2_000]))],
            ErrorCode.UNKNOWN_LEADER_EPOCH: [old_epoch],
            ErrorCode.UNKNOWN_TOPIC_ID: [partition_batch(bytes(16), 0, good)],
            ErrorCode.UNKNOWN_PARTITION: [partition_batch(topic_id, 2, good)],
            ErrorCode.INVALID_ARGUMENT: [
                partition_batch(
                    topic_id,
                    0,
                    encode_batch(
                        [(1, None, b"", ())],
                        producer_id=1,
                        producer_epoch=0,
                        base_sequence=0,
                        is_transactional=True,
                    ),
                ),
                partition_batch(topic_id, 0, encode_batch([(1, None, b"", ())], is_control=True)),
                partition_batch(topic_id, 0, marked(good, APPEND_TIME_BIT)),
                partition_batch(topic_id, 0, marked(good, DELETE_HORIZON_BIT)),
            ],
        }
        for code, batches in cases.items():
            for batch in batches:
                (answer,) = await client.produce(batch)
                assert answer.error.code == code.value, answer
                assert answer.base_offset == -1
        assert await client.read_all(topic_id, 0) == []
        assert await client.read_all(topic_id, 1) == []

    with_node(work)


def marked(batch: bytes, bit: int) -> bytes:
    """With an attribute set that producers never set, and the checksum made to fit."""
    changed = bytearray(batch)
    changed[ATTRIBUTES_POSITION + 1] |= bit
    crc = checksum(bytes(changed[ATTRIBUTES_POSITION:]))
    changed[CHECKSUM_POSITION : CHECKSUM_POSITION + 4] = crc.to_bytes(4, "big")
    return bytes(changed)


def test_one_bad_batch_of_a_request_does_not_stop_the_others() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t", 2)
        bad = partition_batch(topic_id, 0, sealed([b"a"]))
        bad.route_sum ^= 1
        answers = await client.produce(bad, partition_batch(topic_id, 1, sealed([b"b"])))
        assert answers[0].error.code == ErrorCode.ROUTE_MISMATCH.value
        assert not answers[1].HasField("error")

    with_node(work)


def test_a_request_that_names_a_partition_twice_is_refused_whole() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        batch = partition_batch(topic_id, 0, sealed([b"a"]))
        with pytest.raises(TidelogError) as caught:
            await client.produce(batch, batch)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert await client.read_all(topic_id) == []

    with_node(work)


def test_batches_beyond_the_memory_budget_are_refused_and_can_be_sent_again() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t", 3)
        batches = [partition_batch(topic_id, each, sealed([b"x" * 600_000])) for each in range(3)]
        answers = await client.produce(*batches)
        assert [answer.error.code for answer in answers] == [0, 11, 11]
        assert answers[1].error.retriable
        (again,) = await client.produce(batches[1])
        assert not again.HasField("error")

    with_node(work, settings=configuration(produce__queued_bytes_max=str(1024 * 1024)))


def test_producer_ids_and_codecs_pass_through_untouched() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        await client.call("ProducerIdService/AllocateProducerId", b"")
        batch = encode_batch(
            [(5, b"k", b"v" * 100, [("h", None)])],
            codec=Codec.ZSTD,
            producer_id=9,
            producer_epoch=2,
            base_sequence=0,
        )
        await client.produce(partition_batch(topic_id, 0, batch))
        answer = await client.fetch(topic_id, 0, 0)
        assert answer is not None
        assert answer.batches[16:] == batch[16:]
        header = read_header(answer.batches)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 0)

    with_node(work)


def test_a_topic_of_append_time_tells_the_brokers_time() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic(
            "t", settings={"message.timestamp.type": "LogAppendTime"}
        )
        (answer,) = await client.produce(partition_batch(topic_id, 0, sealed([b"a"], 77)))
        assert answer.append_time_ms > 77
        stored = await client.fetch(topic_id, 0, 0)
        assert stored is not None
        assert read_header(stored.batches).max_timestamp == answer.append_time_ms
        assert values_of(stored.batches) == [(0, b"a")], "the checksum fits the new time"

    with_node(work)


def test_a_long_poll_answers_when_something_comes_and_else_after_its_time() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert await client.fetch(topic_id, 0, 0, wait_ms=2_000) is None
        assert 2.0 <= loop.time() - started < 3.0
        parked = asyncio.ensure_future(client.fetch(topic_id, 0, 0, wait_ms=20_000))
        await asyncio.sleep(1)
        assert not parked.done()
        started = loop.time()
        await client.produce(partition_batch(topic_id, 0, sealed([b"a"])))
        answer = await parked
        assert answer is not None
        assert loop.time() - started < 1.0

    with_node(work)


@pytest.mark.parametrize("offset", [-1, 3, 1 << 62])
def test_an_offset_outside_the_log_is_refused_with_its_range(offset: int) -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        await client.produce(partition_batch(topic_id, 0, sealed([b"a", b"b"])))
        answer = await client.fetch(topic_id, 0, offset, wait_ms=10_000)
        assert answer is not None
        assert answer.error.code == ErrorCode.OFFSET_OUT_OF_RANGE.value
        assert "from 0 to the high watermark 2" in answer.error.happened

    with_node(work)


def test_offsets_are_found_by_place_and_by_time() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic(
            "t", settings={"segment.bytes": "1024", "retention.ms": "-1"}
        )
        for number in range(40):
            batch = sealed([b"x" * 50, b"y" * 50], 1_000 + 10 * number)
            await client.produce(partition_batch(topic_id, 0, batch))
        spec = metadata_pb2.OffsetSpec
        expected = [
            (spec.OFFSET_SPEC_EARLIEST, 0, 0),
            (spec.OFFSET_SPEC_LATEST, 0, 80),
            (spec.OFFSET_SPEC_AT_TIME, 0, 0),
            (spec.OFFSET_SPEC_AT_TIME, 1_000, 0),
            (spec.OFFSET_SPEC_AT_TIME, 1_001, 1),
            (spec.OFFSET_SPEC_AT_TIME, 1_002, 2),
            (spec.OFFSET_SPEC_AT_TIME, 1_255, 52),
            (spec.OFFSET_SPEC_AT_TIME, 1_391, 79),
            (spec.OFFSET_SPEC_AT_TIME, 1_392, -1),
            (spec.OFFSET_SPEC_MAX_TIMESTAMP, 0, 79),
        ]
        queries = [
            metadata_pb2.OffsetQuery(
                topic_id=topic_id, leader_epoch=-1, spec=each, timestamp_ms=time_ms
            )
            for each, time_ms, _ in expected
        ]
        request = metadata_pb2.ListOffsetsRequest(queries=queries)
        answer = await client.call("MetadataService/ListOffsets", request.SerializeToString())
        answers = metadata_pb2.ListOffsetsResponse.FromString(answer).answers
        assert [each.offset for each in answers] == [offset for *_, offset in expected]

    with_node(work)


def test_plain_records_go_by_key_and_come_back_with_everything() -> None:
    async def work(client: PlainClient) -> None:
        await client.create_topic("t", 3)
        records = [
            records_pb2.Record(
                key=b"k%d" % (number % 5),
                value=b"" if number == 3 else b"v%d" % number,
                headers=[records_pb2.Header(key="h", value=b"1"), records_pb2.Header(key="n")],
                timestamp_ms=number,
            )
            for number in range(20)
        ]
        records.append(records_pb2.Record(key=b"k1"))
        request = records_pb2.ProduceRecordsRequest(topic="t", records=records)
        raw = await client.call("RecordsService/ProduceRecords", request.SerializeToString())
        places = records_pb2.ProduceRecordsResponse.FromString(raw).places
        assert len({place.partition for place in places}) > 1
        for record, place in zip(records, places, strict=True):
            fetch = records_pb2.FetchRecordsRequest(
                topic="t", partition=place.partition, fetch_offset=place.offset, max_records=1
            )
            raw = await client.call("RecordsService/FetchRecords", fetch.SerializeToString())
            fetched = records_pb2.FetchRecordsResponse.FromString(raw)
            (found,) = fetched.records
            assert found.offset == place.offset
            assert fetched.next_offset == place.offset + 1
            assert (found.key, found.value, found.headers) == (
                record.key,
                record.value,
                record.headers,
            )
            assert found.HasField("value") == record.HasField("value")

    with_node(work)


def test_a_fetch_stream_pays_by_credit_and_follows_a_seek() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        for number in range(6):
            await client.produce(partition_batch(topic_id, 0, sealed([b"%d" % number * 100])))
        stream = client.network.stream("node:9192", "/tidelog.v1.FetchService/FetchStream")

        async def send(**fields: object) -> None:
            request = fetch_pb2.FetchStreamRequest(**fields)  # type: ignore[arg-type]
            await stream.send(request.SerializeToString())

        async def receive() -> fetch_pb2.FetchStreamResponse:
            message = await stream.receive()
            assert message is not None
            return fetch_pb2.FetchStreamResponse.FromString(message)

        await send(positions=[position(topic_id, 0, 0)], credit_bytes=200, session_epoch=1)
        first = await receive()
        assert first.session_epoch == 1
        assert [value[:1] for _, value in values_of(first.partitions[0].batches)] == [b"0"]
        parked = asyncio.ensure_future(receive())
        await asyncio.sleep(5)
        second = await parked
        assert [value[:1] for _, value in values_of(second.partitions[0].batches)] == [b"1"]
        parked = asyncio.ensure_future(receive())
        await asyncio.sleep(5)
        assert not parked.done(), "the credit is used up"
        await send(positions=[position(topic_id, 0, 5)], credit_bytes=10_000, session_epoch=2)
        third = await parked
        assert third.session_epoch == 2
        assert values_of(third.partitions[0].batches) == [(5, b"5" * 100)]
        parked = asyncio.ensure_future(receive())
        await asyncio.sleep(5)
        assert not parked.done(), "nothing is new"
        await client.produce(partition_batch(topic_id, 0, sealed([b"new"])))
        assert values_of((await parked).partitions[0].batches) == [(6, b"new")]
        await send(positions=[position(topic_id, 0, 99)], session_epoch=3)
        assert (await receive()).partitions[0].error.code == ErrorCode.OFFSET_OUT_OF_RANGE.value
        await stream.end_sending()
        assert await stream.receive() is None

    with_node(work)


@pytest.mark.slow
def test_a_produce_stream_appends_in_its_order_and_answers_each_request() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        stream = client.network.stream("node:9192", "/tidelog.v1.ProduceService/ProduceStream")
        for number in range(150):
            batch = partition_batch(topic_id, 0, sealed([b"%d" % number]))
            request = produce_pb2.ProduceStreamRequest(
                correlation_id=number, request=produce_pb2.ProduceRequest(batches=[batch])
            )
            await stream.send(request.SerializeToString())
        await stream.end_sending()
        offsets = {}
        while (message := await stream.receive()) is not None:
            answer = produce_pb2.ProduceStreamResponse.FromString(message)
            offsets[answer.correlation_id] = answer.response.acknowledgements[0].base_offset
        assert offsets == {number: number for number in range(150)}
        expected = [(number, b"%d" % number) for number in range(150)]
        assert await client.read_all(topic_id) == expected

    with_node(work)


def test_a_topic_is_created_by_the_first_plain_records_unless_that_is_switched_off() -> None:
    request = records_pb2.ProduceRecordsRequest(
        topic="fresh", records=[records_pb2.Record(value=b"a")]
    )

    async def allowed(client: PlainClient) -> None:
        raw = await client.call("RecordsService/ProduceRecords", request.SerializeToString())
        (place,) = records_pb2.ProduceRecordsResponse.FromString(raw).places
        assert (place.partition, place.offset) == (0, 0)

    async def refused(client: PlainClient) -> None:
        with pytest.raises(TidelogError) as caught:
            await client.call("RecordsService/ProduceRecords", request.SerializeToString())
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
        assert "auto_create_topics = true" in caught.value.hint

    with_node(allowed, settings=configuration(auto_create_topics="true"))
    with_node(refused)


def test_an_answer_of_several_partitions_stays_within_its_bytes() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t", 3)
        for partition in range(3):
            await client.produce(partition_batch(topic_id, partition, sealed([b"x" * 6_000])))
        positions = [position(topic_id, partition, 0) for partition in range(3)]
        request = fetch_pb2.FetchRequest(positions=positions, max_bytes=10_000)
        raw = await client.call("FetchService/Fetch", request.SerializeToString())
        assert len(fetch_pb2.FetchResponse.FromString(raw).partitions) == 1
        stream = client.network.stream("node:9192", "/tidelog.v1.FetchService/FetchStream")
        begin = fetch_pb2.FetchStreamRequest(
            positions=positions, credit_bytes=100_000, max_bytes=10_000
        )
        await stream.send(begin.SerializeToString())
        seen = []
        for _ in range(3):
            message = await stream.receive()
            assert message is not None
            answer = fetch_pb2.FetchStreamResponse.FromString(message)
            seen += [each.partition for each in answer.partitions]
        assert sorted(seen) == [0, 1, 2]
        await stream.end_sending()

    with_node(work)


def test_a_full_answer_is_not_held_back_for_more_than_fits_into_it() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        for _ in range(5):
            await client.produce(partition_batch(topic_id, 0, sealed([b"x" * 1_000])))
        request = fetch_pb2.FetchRequest(
            positions=[position(topic_id, 0, 0)],
            max_bytes=2_000,
            min_bytes=1_000_000,
            max_wait_ms=20_000,
        )
        began = asyncio.get_running_loop().time()
        await client.call("FetchService/Fetch", request.SerializeToString())
        assert asyncio.get_running_loop().time() - began < 1

    with_node(work)


def test_a_fetch_that_names_a_partition_twice_is_refused_as_a_produce_is() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        request = fetch_pb2.FetchRequest(positions=[position(topic_id, 0, 0)] * 2, max_wait_ms=200)
        with pytest.raises(TidelogError) as caught:
            await client.call("FetchService/Fetch", request.SerializeToString())
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert "t-0 twice" in caught.value.happened

    with_node(work)
