"""What the client puts on the wire by hand is what protobuf would have made."""

import pytest

from tidelog.client import wire
from tidelog.v1 import produce_pb2


@pytest.mark.parametrize("sizes", [(), (1,), (1, 127, 128), (16_383, 16_384, 3_000_000)])
@pytest.mark.parametrize("epoch", [-1, 0, 77])
def test_a_produce_request_reads_as_it_was_meant(sizes: tuple[int, ...], epoch: int) -> None:
    batches = [
        (b"i" * 16, partition, epoch, bytes(size), 2**32 - 1 - partition)
        for partition, size in enumerate(sizes)
    ]
    data = wire.produce_request(300, batches, acks=-1, timeout_ms=30_000)
    found = produce_pb2.ProduceStreamRequest.FromString(data)
    assert found == produce_pb2.ProduceStreamRequest(
        correlation_id=300,
        request=produce_pb2.ProduceRequest(
            batches=[
                produce_pb2.PartitionBatch(
                    topic_id=topic_id,
                    partition=partition,
                    leader_epoch=leader_epoch,
                    batch=batch,
                    route_sum=route_sum,
                )
                for topic_id, partition, leader_epoch, batch, route_sum in batches
            ],
            acks=produce_pb2.ACKS_ALL,
            timeout_ms=30_000,
        ),
    )
    assert len(data) == found.ByteSize()
