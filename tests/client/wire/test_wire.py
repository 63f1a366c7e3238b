"""What the client puts on the wire by hand is what protobuf would have made."""

import pytest

from tidelog.client.engine.produce.batch import Acknowledgement
from tidelog.client.engine.produce.messages import LeaderHint
from tidelog.client.engine.produce.producer_ids import ProducerIdentity
from tidelog.client.wire import calls as wire
from tidelog.client.writing.producer_parts import broker_wait_ms
from tidelog.v1 import errors_pb2, produce_pb2, producer_id_pb2
from tidelog.wire.calls.produce import PartitionBatch
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId


@pytest.mark.parametrize("sizes", [(), (1,), (1, 127, 128), (16_383, 16_384, 3_000_000)])
@pytest.mark.parametrize("epoch", [-1, 0, 77])
def test_a_produce_request_reads_as_it_was_meant(sizes: tuple[int, ...], epoch: int) -> None:
    batches = [
        PartitionBatch(
            TopicId(b"i" * 16),
            PartitionId(partition),
            LeaderEpoch(epoch),
            bytes(size),
            2**32 - 1 - partition,
        )
        for partition, size in enumerate(sizes)
    ]
    data = wire.produce_request(300, batches, acks=-1, timeout_ms=30_000)
    found = produce_pb2.ProduceStreamRequest.FromString(data)
    assert found == produce_pb2.ProduceStreamRequest(
        correlation_id=300,
        request=produce_pb2.ProduceRequest(
            batches=[
                produce_pb2.PartitionBatch(
                    topic_id=each.topic_id,
                    partition=each.partition,
                    leader_epoch=each.leader_epoch,
                    batch=each.batch,
                    route_sum=each.route_sum,
                )
                for each in batches
            ],
            acks=produce_pb2.ACKS_ALL,
            timeout_ms=30_000,
        ),
    )
    assert len(data) == found.ByteSize()


def test_the_leader_that_a_broker_names_is_read_beside_its_refusal() -> None:
    refused = errors_pb2.Error(code=errors_pb2.ERROR_CODE_NOT_LEADER, retriable=True)
    acknowledged = [
        produce_pb2.PartitionAcknowledgement(base_offset=5, leader_epoch=1),
        produce_pb2.PartitionAcknowledgement(error=refused, leader_epoch=4, leader_id=0),
        produce_pb2.PartitionAcknowledgement(error=refused, leader_epoch=-1),
    ]
    data = produce_pb2.ProduceStreamResponse(
        correlation_id=3,
        response=produce_pb2.ProduceResponse(acknowledgements=acknowledged, throttle_ms=7),
    ).SerializeToString()
    answer = wire.read_produce_answer(1, 1, data, 0)
    assert answer.hints == (None, LeaderHint(leader_id=0, leader_epoch=LeaderEpoch(4)), None)
    assert answer.outcomes[0] == Acknowledgement(
        base_offset=Offset(5), append_time_ms=0, leader_epoch=LeaderEpoch(1)
    )
    assert (answer.correlation_id, answer.error, answer.throttle_ms) == (3, None, 7)


def test_an_identity_is_read_as_it_was_given() -> None:
    data = producer_id_pb2.AllocateProducerIdResponse(
        producer_id=1 << 40, producer_epoch=3, max_in_flight_batches=16
    ).SerializeToString()
    assert wire.read_producer_identity(data) == ProducerIdentity(
        producer_id=1 << 40, producer_epoch=3, batches_in_flight_max=16
    )


def test_a_broker_waits_less_long_than_the_client() -> None:
    waits = [broker_wait_ms(timeout_ms) for timeout_ms in (30_000, 300, 1)]
    assert waits == [29_000, 270, 1]
