"""Producers that a partition meets for the first time: handed-out ids, so many of one caller."""

from contextlib import suppress
from itertools import count

import msgspec
import pytest

from tests.broker.support.node_fixtures import with_node
from tests.broker.support.node_in_world import PlainClient, partition_batch
from tidelog.broker.log.producer_state import PRODUCERS_MAX
from tidelog.broker.services.produce.admission import (
    COUNTS_MAX,
    NEW_PRODUCERS_MAX,
    WINDOW_MS,
    ProducerAdmission,
)
from tidelog.ports import RequestContext
from tidelog.ports.request_context import ANONYMOUS, CLIENT_LISTENER, NO_DEADLINE_NS
from tidelog.v1 import produce_pb2, producer_id_pb2
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

KEY = PartitionKey(TopicId(b"t" * 16), PartitionId(0))
HANDED_OUT = 1_000_000
FIRST = read_header(
    encode_batch([(1, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0)
)


def caller(principal: str = ANONYMOUS, address: str = "10.0.0.1:1") -> RequestContext:
    return RequestContext(
        principal=principal,
        listener=CLIENT_LISTENER,
        client_id="",
        address=address,
        deadline_ns=NO_DEADLINE_NS,
    )


def admitted(
    admission: ProducerAdmission,
    context: RequestContext,
    producers: int,
    *,
    now_ms: int = 0,
    key: PartitionKey = KEY,
) -> int:
    """How many of so many new producers come in."""
    found = 0
    for _ in range(producers):
        with suppress(TidelogError):
            admission.admit(
                context, key, FIRST, next_producer_id=HANDED_OUT, now_ms=now_ms, tried="produce"
            )
            found += 1
    return found


def test_a_caller_that_brought_in_its_share_is_told_so_and_may_try_again() -> None:
    admission = ProducerAdmission()
    admitted(admission, caller(), NEW_PRODUCERS_MAX)
    with pytest.raises(TidelogError, match="has brought 2500 new producers") as caught:
        admission.admit(
            caller(), KEY, FIRST, next_producer_id=HANDED_OUT, now_ms=0, tried="produce"
        )
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    assert caught.value.retriable


def test_one_caller_never_brings_in_as_many_as_a_log_remembers() -> None:
    admission, ports = ProducerAdmission(), count(1)
    contexts = [caller(address=f"10.0.0.1:{next(ports)}") for _ in range(4)]
    found = sum(admitted(admission, each, PRODUCERS_MAX) for each in contexts)
    assert found == NEW_PRODUCERS_MAX, "another connection is the same caller"
    found += admitted(admission, contexts[0], PRODUCERS_MAX, now_ms=WINDOW_MS)
    assert found < PRODUCERS_MAX, "also where two windows meet"


def test_others_are_not_held_back() -> None:
    admission = ProducerAdmission()
    assert admitted(admission, caller(), PRODUCERS_MAX) == NEW_PRODUCERS_MAX
    other = PartitionKey(KEY.topic_id, PartitionId(1))
    assert admitted(admission, caller(), 10, key=other) == 10
    assert admitted(admission, caller(address="10.0.0.2:1"), 10) == 10
    assert admitted(admission, caller("CN=alice"), 10) == 10
    assert admitted(admission, caller("CN=alice", "10.0.0.9:1"), PRODUCERS_MAX) == (
        NEW_PRODUCERS_MAX - 10
    )


def test_a_caller_comes_in_again_after_a_while_and_after_a_clock_was_set_back() -> None:
    admission = ProducerAdmission()
    assert admitted(admission, caller(), PRODUCERS_MAX, now_ms=WINDOW_MS) == NEW_PRODUCERS_MAX
    assert admitted(admission, caller(), 1, now_ms=2 * WINDOW_MS - 1) == 0
    assert admitted(admission, caller(), 1, now_ms=2 * WINDOW_MS) == 1
    assert admitted(admission, caller(), 1, now_ms=0) == 1


def test_what_is_remembered_of_callers_is_bounded() -> None:
    admission = ProducerAdmission()
    for number in range(COUNTS_MAX + 10):
        admitted(admission, caller(f"CN={number}"), 1)
    assert len(admission) == COUNTS_MAX


def test_an_id_that_was_not_handed_out_is_refused_until_the_metadata_say_so() -> None:
    admission = ProducerAdmission()
    header = msgspec.structs.replace(FIRST, producer_id=HANDED_OUT)
    with pytest.raises(TidelogError, match="not known to be handed out") as caught:
        admission.admit(
            caller(), KEY, header, next_producer_id=HANDED_OUT, now_ms=0, tried="produce"
        )
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.retriable
    admission.admit(
        caller(), KEY, header, next_producer_id=HANDED_OUT + 1, now_ms=0, tried="produce"
    )


async def given_id(client: PlainClient) -> int:
    raw = await client.call("ProducerIdService/AllocateProducerId", b"")
    return producer_id_pb2.AllocateProducerIdResponse.FromString(raw).producer_id


async def first_batch(
    client: PlainClient, topic_id: bytes, producer_id: int
) -> produce_pb2.PartitionAcknowledgement:
    batch = encode_batch(
        [(1, None, b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    (answer,) = await client.produce(partition_batch(topic_id, 0, batch))
    return answer


def test_made_up_ids_do_not_push_a_producer_out_of_a_partition() -> None:
    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("t")
        victim = await given_id(client)
        stored = await first_batch(client, topic_id, victim)
        assert not stored.HasField("error")
        for made_up in range(1_000_000, 1_000_000 + 100):
            answer = await first_batch(client, topic_id, made_up)
            assert answer.error.code == ErrorCode.UNAVAILABLE.value
        again = await first_batch(client, topic_id, victim)
        assert again.base_offset == stored.base_offset
        assert len(await client.read_all(topic_id)) == 1

    with_node(work)
