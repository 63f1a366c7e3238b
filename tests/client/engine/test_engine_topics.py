"""Topics that are deleted, created again or given partitions, as both cores see it."""

import msgspec
import pytest

from tests.client.engine.test_engine_consumer import T0, World, batch, part
from tests.client.support.engine_world import TOPIC_ID, ProducerWorld, failure, view
from tidelog.client.engine.cluster.metadata import ClusterView
from tidelog.client.engine.fetch.messages import (
    FetchMetadata,
    MetadataArrived,
    OffsetsArrived,
    QueryOffsets,
    SendFetch,
)
from tidelog.client.engine.produce.accumulator import Accumulator, AccumulatorLimits
from tidelog.client.engine.produce.batch import Acknowledgement
from tidelog.client.engine.produce.messages import (
    Answered,
    ProducerIdAllocated,
    ProducerIdentity,
    SendProduce,
    StreamOpened,
    TopicWanted,
)
from tidelog.client.types.records import TopicPartition
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionId, TopicId

OTHER_ID = TopicId(b"o" * 16)
MAX_AGE_MS = 300_000


def recreated(version: int, partitions: int = 1) -> ClusterView:
    """The same name, another topic."""
    found = view({"t": [(1, 3)] * partitions}, version)
    topics = tuple(msgspec.structs.replace(each, topic_id=OTHER_ID) for each in found.topics)
    return msgspec.structs.replace(found, topics=topics)


def without_topic(version: int) -> ClusterView:
    """It was deleted."""
    found = view({"t": [(1, 3)]}, version)
    gone = (
        msgspec.structs.replace(
            found.topics[0], topic_id=b"", partitions=(), error=failure(ErrorCode.UNKNOWN_TOPIC)
        ),
    )
    return msgspec.structs.replace(found, topics=gone)


def test_a_topic_that_was_created_again_is_read_from_its_beginning() -> None:
    for reset in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
        world = World(reset)
        world.read_from(7)
        world.answer(part(batch(7), 7))
        effects = world.step(MetadataArrived(view=recreated(2)))
        assert world.core.take() is None, "what was fetched of the old topic is void"
        (query,) = [each for each in effects if isinstance(each, QueryOffsets)]
        assert [(each.topic_id, each.spec) for each in query.queries] == [
            (OTHER_ID, OffsetSpec.EARLIEST)
        ]
        (stop,) = [each for each in effects if isinstance(each, SendFetch)]
        assert stop.removed == ((TOPIC_ID, 0),), "the broker is told to stop with the old one"


def test_without_a_policy_the_user_says_where_to_begin_in_a_topic_that_was_created_again() -> None:
    world = World(None)
    world.read_from(7)
    world.step(MetadataArrived(view=recreated(2)))
    error = world.core.take_error()
    assert error is not None
    assert error.code is ErrorCode.NO_OFFSET_FOR_PARTITION
    assert "created again" in error.happened
    world.core.seek(T0, 0)
    (sent,) = [each for each in world.tick() if isinstance(each, SendFetch)]
    assert [(each.topic_id, each.fetch_offset) for each in sent.positions] == [(OTHER_ID, 0)]


def test_a_deleted_topic_is_told_once_and_a_refresh_does_not_bring_it_back() -> None:
    world = World()
    world.read_from(0)
    (asked,) = [each for each in world.tick(MAX_AGE_MS) if isinstance(each, FetchMetadata)]
    assert asked == FetchMetadata(topics=("t",), may_create=False)
    for version in (2, 3):
        world.step(MetadataArrived(view=without_topic(version)))
        world.tick(MAX_AGE_MS)
    error = world.core.take_error()
    assert error is not None
    assert (error.code, error.happened) == (ErrorCode.UNKNOWN_TOPIC, "topic 't' was deleted")
    assert world.core.take_error() is None
    effects = world.step(MetadataArrived(view=recreated(4)))
    assert any(isinstance(each, QueryOffsets) for each in effects), "its namesake is read"


def test_partitions_that_are_added_while_a_topic_is_read_lose_no_record() -> None:
    world = World(OffsetSpec.LATEST)
    world.core.subscribe(["t"], world.now_ns)
    world.tick()
    (first,) = world.step(MetadataArrived(view=view({"t": [(1, 3)]})))
    assert isinstance(first, QueryOffsets)
    assert first.queries[0].spec is OffsetSpec.LATEST
    effects = world.step(MetadataArrived(view=view({"t": [(1, 3), (1, 0)]}, 2)))
    (query,) = [each for each in effects if isinstance(each, QueryOffsets)]
    assert query.partitions == (TopicPartition("t", 1),)
    assert query.queries[0].spec is OffsetSpec.EARLIEST


def test_a_partition_that_an_offset_answer_leaves_out_is_asked_for_again() -> None:
    world = World()
    world.core.assign([T0], world.now_ns)
    world.tick()
    (query,) = world.step(MetadataArrived(view=view({"t": [(1, 0)]})))
    assert isinstance(query, QueryOffsets)
    world.step(OffsetsArrived(query=query, answers=()))
    again, refreshed = world.tick(1_000)
    assert isinstance(refreshed, FetchMetadata), "another broker may lead by now"
    assert isinstance(again, QueryOffsets)
    answer = OffsetAnswer(topic_id=TOPIC_ID, partition=PartitionId(0), offset=Offset(42))
    world.step(OffsetsArrived(query=again, answers=(answer,)))
    assert world.core.partitions[T0].position == 42


def test_a_topic_that_was_created_again_with_fewer_partitions_is_routed_over_these() -> None:
    limits = AccumulatorLimits(
        batch_bytes=1_000, batch_bytes_max=1_000, buffer_bytes=100_000, linger_ns=0, in_flight_max=5
    )
    accumulator = Accumulator(limits, lambda: 0)
    accumulator.set_route("t", TOPIC_ID, 4)
    route = accumulator.routes["t"]
    route.sticky = 3
    assert accumulator.append(route, 3, 0, None, b"old", (), 100) is not None
    accumulator.set_route("t", OTHER_ID, 2)
    assert (route.partition_count, route.sticky) == (2, 0)
    (old,) = accumulator.take_sealed()
    assert (old.topic_id, old.partition) == (TOPIC_ID, 3), "and fails as what was for the old topic"
    accumulator.release(old)
    assert accumulator.append(route, route.sticky, 0, None, b"new", (), 100) is not None
    accumulator.set_route("t", OTHER_ID, 5)
    assert accumulator.append(route, 4, 0, None, b"new", (), 100) is not None


def test_what_the_leader_of_a_deleted_topic_refuses_late_ends_with_what_waits_of_it() -> None:
    world = ProducerWorld(is_idempotent=True, in_flight_max=2)
    world.step(TopicWanted(topic="t"))
    world.step(MetadataArrived(view=view({"t": [(1, 3)]})))
    identity = ProducerIdentity(producer_id=7, producer_epoch=0, batches_in_flight_max=16)
    world.step(ProducerIdAllocated(identity=identity))
    for _ in range(3):
        world.append("t", 0)
        world.seal_all()
        world.step(StreamOpened(broker_id=1, stream=1))
    assert len(world.core.lanes["t", 0].in_flight) == 2
    world.step(MetadataArrived(view=recreated(2)))
    sent = []
    for number, code in ((1, ErrorCode.STORAGE_FULL), (2, ErrorCode.OUT_OF_ORDER_SEQUENCE)):
        refused = (failure(code),)
        sent += world.step(Answered(broker_id=1, stream=1, correlation_id=number, outcomes=refused))
    for _ in range(5):
        sent += world.tick(1_000)
    assert not any(isinstance(each, SendProduce) for each in sent), "nothing reaches the namesake"
    assert [
        outcome.code for outcome in world.outcomes.values() if isinstance(outcome, TidelogError)
    ] == [ErrorCode.UNKNOWN_TOPIC_ID] * 3


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_batch_that_is_sealed_late_for_a_deleted_topic_fails_beside_one_in_flight(
    *, is_idempotent: bool
) -> None:
    """The same broker leads the new topic: nothing of the old one is left to be sent."""
    world = ProducerWorld(is_idempotent=is_idempotent, in_flight_max=5)
    world.step(TopicWanted(topic="t"))
    world.step(MetadataArrived(view=view({"t": [(1, 3)]})))
    identity = ProducerIdentity(producer_id=7, producer_epoch=0, batches_in_flight_max=16)
    world.step(ProducerIdAllocated(identity=identity))
    world.append("t", 0)
    world.seal_all()
    world.step(StreamOpened(broker_id=1, stream=1))
    assert len(world.core.lanes["t", 0].in_flight) == 1
    world.append("t", 0)
    world.step(MetadataArrived(view=recreated(2)))
    world.seal_all()
    (late,) = world.outcomes.values()
    assert isinstance(late, TidelogError)
    assert late.code is ErrorCode.UNKNOWN_TOPIC_ID
    stored = (Acknowledgement(base_offset=Offset(4)),)
    world.step(Answered(broker_id=1, stream=1, correlation_id=1, outcomes=stored))
    assert not world.core.lanes
    assert len(world.outcomes) == 2


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_records_for_a_deleted_topic_fail_once_it_was_looked_for_again(is_idempotent: bool) -> None:
    world = ProducerWorld(is_idempotent=is_idempotent)
    world.step(TopicWanted(topic="t"))
    world.step(MetadataArrived(view=view({"t": [(1, 3)]})))
    identity = ProducerIdentity(producer_id=7, producer_epoch=0, batches_in_flight_max=16)
    world.step(ProducerIdAllocated(identity=identity))
    world.step(MetadataArrived(view=without_topic(2)))
    for _ in range(2):
        world.append("t", 0)
        world.seal_all()
    world.tick(0)
    assert not world.outcomes, "another broker may know better"
    version = 3
    while not world.outcomes:
        assert version < 50, "it is looked for until the delivery timeout"
        world.tick(500)
        world.step(MetadataArrived(view=without_topic(version)))
        version += 1
    told = [each for each in world.outcomes.values() if isinstance(each, TidelogError)]
    assert [each.code for each in told] == [ErrorCode.UNKNOWN_TOPIC] * 2
    assert not world.core.lanes


def test_a_record_that_stood_behind_others_tells_what_hindered_all() -> None:
    world = ProducerWorld(is_idempotent=False)
    world.step(TopicWanted(topic="t"))
    world.step(MetadataArrived(view=view({"t": [(-1, 3)]})))
    for _ in range(2):
        world.append("t", 0)
        world.seal_all()
    world.tick(0)
    world.tick(world.core.settings.delivery_timeout_ms + 1_000)
    told = [each for each in world.outcomes.values() if isinstance(each, TidelogError)]
    assert ["has no leader" in each.happened for each in told] == [True, True]
