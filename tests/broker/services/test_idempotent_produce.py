"""What a broker makes of numbered batches and records, and whom it names when it does not lead."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from tests.broker.support.node_fixtures import with_node
from tests.broker.support.node_in_world import PlainClient, partition_batch
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.produce.handler import (
    Acks,
    PartitionAcknowledgement,
    ProduceHandler,
    Submitted,
)
from tidelog.broker.services.produce.wire import fill_response
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports.real.clock import RealClock
from tidelog.v1 import errors_pb2, produce_pb2, records_pb2
from tidelog.wire.batch import encode_batch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, TopicId

TOPIC = TopicId(b"t" * 16)


def numbered(sequence: int, *, epoch: int = 0, records: int = 1) -> bytes:
    """A batch of producer 7."""
    return encode_batch(
        [(1, None, b"v", ())] * records,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


async def hand_out_ids(client: PlainClient) -> None:
    """A block of them, with 7 in it."""
    await client.call("ProducerIdService/AllocateProducerId", b"")


def code_of(error: errors_pb2.Error) -> ErrorCode:
    return ErrorCode(error.code)


def test_a_batch_that_is_sent_again_gets_the_offset_of_the_first() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        await hand_out_ids(client)
        offsets, codes = [], []
        for batch in (
            numbered(0, records=2),
            numbered(2),
            numbered(0, records=2),
            numbered(5),
            numbered(0, epoch=1),
            numbered(3),
        ):
            (answer,) = await client.produce(partition_batch(topic_id, 0, batch))
            offsets.append(answer.base_offset)
            codes.append(code_of(answer.error).name if answer.HasField("error") else "")
        assert codes == ["", "", "", "OUT_OF_ORDER_SEQUENCE", "", "FENCED_PRODUCER_EPOCH"]
        assert offsets == [0, 2, 0, -1, 3, -1]
        assert len(await client.read_all(topic_id)) == 4

    with_node(work)


def test_a_batch_of_a_producer_that_has_no_sequence_is_refused_and_not_stored_twice() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        await hand_out_ids(client)
        for _ in range(2):
            (answer,) = await client.produce(partition_batch(topic_id, 0, numbered(-1)))
            assert code_of(answer.error) is ErrorCode.INVALID_ARGUMENT
            assert "no sequence" in answer.error.happened
        assert await client.read_all(topic_id) == []

    with_node(work)


async def produce_records(
    client: PlainClient, sequence: int | None, count: int
) -> records_pb2.ProduceRecordsResponse:
    request = records_pb2.ProduceRecordsRequest(
        topic="t", partition=0, records=[records_pb2.Record(value=b"v")] * count
    )
    if sequence is not None:
        request.producer.CopyFrom(records_pb2.ProducerIdentity(producer_id=7, sequence=sequence))
    raw = await client.call("RecordsService/ProduceRecords", request.SerializeToString())
    return records_pb2.ProduceRecordsResponse.FromString(raw)


def test_plain_records_with_an_identity_are_stored_once() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        await hand_out_ids(client)
        for _ in range(2):
            answer = await produce_records(client, 0, 3)
            assert [place.offset for place in answer.places] == [0, 1, 2]
            assert not answer.duplicates_possible
        answer = await produce_records(client, 4, 1)
        assert code_of(answer.places[0].error) is ErrorCode.OUT_OF_ORDER_SEQUENCE
        for count in (1, 2):
            answer = await produce_records(client, None, 1)
            assert answer.duplicates_possible
            assert len(await client.read_all(topic_id)) == 3 + count

    with_node(work)


def hinted(leader_id: int, code: ErrorCode, topic_id: TopicId = TOPIC) -> PartitionAcknowledgement:
    """The answer to a batch that was refused so, on a broker that knows this leader at epoch 4."""
    partition = SimpleNamespace(leader_id=leader_id, leader_epoch=4)
    image = SimpleNamespace(topics={TOPIC: SimpleNamespace(partitions=(partition,))})
    metadata = cast(ImageSource, SimpleNamespace(image=lambda: image))
    handler = ProduceHandler(cast(Replicas, None), RealClock(), BrokerLimits(), metadata)
    refused = TidelogError(code, tried="produce", happened="so it is")

    async def wait() -> list[PartitionAcknowledgement]:
        return await handler.wait(
            Submitted([(topic_id, PartitionId(0))], Acks.ALL, 0, [refused], Image().name_partition)
        )

    (answer,) = asyncio.run(wait())
    return answer


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_broker_that_does_not_lead_names_the_leader_and_its_epoch(code: ErrorCode) -> None:
    answer = hinted(2, code)
    assert (answer.leader_id, answer.leader_epoch) == (2, 4)
    response = produce_pb2.ProduceResponse()
    fill_response(response, [answer])
    said = response.acknowledgements[0]
    assert (said.HasField("leader_id"), said.leader_id, said.leader_epoch) == (True, 2, 4)


@pytest.mark.parametrize(
    ("leader_id", "code", "topic_id"),
    [
        (NO_LEADER, ErrorCode.NOT_LEADER, TOPIC),
        (2, ErrorCode.STORAGE_FULL, TOPIC),
        (2, ErrorCode.NOT_LEADER, TopicId(b"x" * 16)),
    ],
)
def test_nobody_is_named_where_that_would_not_help(
    leader_id: int, code: ErrorCode, topic_id: TopicId
) -> None:
    answer = hinted(leader_id, code, topic_id)
    assert (answer.leader_id, answer.leader_epoch) == (None, -1)
    response = produce_pb2.ProduceResponse()
    fill_response(response, [answer])
    assert not response.acknowledgements[0].HasField("leader_id")
