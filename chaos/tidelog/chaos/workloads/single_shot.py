"""Sends each batch once, without sequences: whatever happens to it, it is never tried again."""

import msgspec

from tidelog.chaos.checkers.history.history import Acks, Outcome, Send
from tidelog.chaos.workloads.cluster_client import (
    ClusterClient,
    Incarnation,
    is_nothing_stored,
)
from tidelog.chaos.workloads.log_client import PRODUCE, base_offset_of
from tidelog.chaos.workloads.sequenced_producer import WIRE_ACKS, make_records
from tidelog.v1 import produce_pb2
from tidelog.wire.batch import encode_batch, route_sum
from tidelog.wire.errors import TidelogError


async def send_once(
    client: ClusterClient, topic: Incarnation, partition: int, *, acks: Acks, timeout_ms: int
) -> Outcome:
    """One batch, one attempt."""
    leader = await client.find_leader(topic, partition)
    if leader is None:
        return Outcome.FAILED
    values, records = make_records(client)
    batch = encode_batch(records)
    send = Send(
        client=client.name,
        partition=topic.key(partition),
        values=values,
        began_ns=client.now_ns,
        ended_ns=client.now_ns,
        outcome=Outcome.INDETERMINATE,
        acks=acks,
    )
    client.history.begin(send)
    part = produce_pb2.PartitionBatch(
        topic_id=topic.topic_id,
        partition=partition,
        leader_epoch=leader.epoch,
        batch=batch,
        route_sum=route_sum(topic.topic_id, partition, int.from_bytes(batch[17:21], "big")),
    )
    request = produce_pb2.ProduceRequest(
        batches=[part], acks=WIRE_ACKS[acks], timeout_ms=timeout_ms
    )
    outcome, base_offset = Outcome.INDETERMINATE, -1
    try:
        answer = await client.ask(
            leader.address, PRODUCE, request, produce_pb2.ProduceResponse, timeout_ms=timeout_ms
        )
        base_offset = base_offset_of(answer)
        outcome = Outcome.ACKNOWLEDGED
    except TidelogError as error:
        client.on_error(error)
        client.forget_leader(topic, partition)
        if is_nothing_stored(error):
            outcome = Outcome.FAILED
    finally:
        client.history.end(
            msgspec.structs.replace(
                send, ended_ns=client.now_ns, outcome=outcome, base_offset=base_offset
            )
        )
    return outcome
