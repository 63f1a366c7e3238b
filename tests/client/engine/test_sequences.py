"""Numbers of batches at their limits: the window, the last sequence, the last epoch."""

import msgspec
import pytest

from tests.client.support.engine_world import ProducerWorld, failure, view
from tidelog.client.engine.produce.batch import Batch
from tidelog.client.engine.produce.messages import (
    Answered,
    MetadataArrived,
    ProducerIdAllocated,
    ProducerIdentity,
    StreamBroken,
    StreamOpened,
    TopicWanted,
)
from tidelog.client.engine.produce.producer import BATCHES_IN_FLIGHT_MAX
from tidelog.client.engine.produce.sequences import EPOCH_MAX, SEQUENCE_MAX
from tidelog.client.writing.producer_parts import seal
from tidelog.wire.batch import Codec, read_header
from tidelog.wire.errors import ErrorCode, TidelogError


def started(*, in_flight_max: int = 20, batches_in_flight_max: int = 16) -> ProducerWorld:
    """A producer with an id and a stream to the only partition's leader."""
    world = ProducerWorld(is_idempotent=True, in_flight_max=in_flight_max)
    world.step(TopicWanted(topic="t"))
    give_id(world, 7, batches_in_flight_max)
    world.step(MetadataArrived(view=view({"t": [(1, 0)]})))
    produce(world)
    world.step(StreamOpened(broker_id=1, stream=1))
    return world


def give_id(world: ProducerWorld, producer_id: int, batches_in_flight_max: int = 16) -> None:
    identity = ProducerIdentity(
        producer_id=producer_id, producer_epoch=0, batches_in_flight_max=batches_in_flight_max
    )
    world.step(ProducerIdAllocated(identity=identity))


def produce(world: ProducerWorld, records: int = 1) -> Batch:
    appended = [world.append("t", 0) for _ in range(records)]
    world.seal_all()
    batch = appended[0]
    assert batch is not None
    assert all(each is batch for each in appended), "one batch holds them"
    return batch


def sealed(batch: Batch) -> tuple[int, int, int]:
    """What stands in its bytes."""
    if batch.encoded is None:
        batch.encoded = seal(batch, Codec.NONE)
    header = read_header(batch.encoded[0])
    return header.producer_id, header.producer_epoch, header.base_sequence


def answer(world: ProducerWorld, code: ErrorCode) -> None:
    """To the last request."""
    request = world.sent[max(world.sent)]
    world.step(
        Answered(
            broker_id=1,
            stream=request.stream,
            correlation_id=request.correlation_id,
            outcomes=(failure(code),),
        )
    )


@pytest.mark.parametrize(("announced", "expected"), [(16, 16), (40, BATCHES_IN_FLIGHT_MAX), (5, 5)])
def test_no_more_is_in_flight_than_a_partition_remembers(announced: int, expected: int) -> None:
    world = started(batches_in_flight_max=announced)
    for _ in range(30):
        produce(world)
    assert len(world.core.lanes["t", 0].in_flight) == expected


def test_the_sequence_after_the_last_one_is_0() -> None:
    world = started()
    assert world.core.sequencer is not None
    (partition,) = world.core.sequencer.partitions.values()
    partition.next_sequence = SEQUENCE_MAX - 1
    assert [produce(world, 3).base_sequence, produce(world).base_sequence] == [SEQUENCE_MAX - 1, 1]
    partition.next_sequence = SEQUENCE_MAX
    assert [produce(world).base_sequence, produce(world).base_sequence] == [SEQUENCE_MAX, 0]


def test_after_the_last_epoch_another_producer_id_is_taken() -> None:
    world = started()
    assert world.core.sequencer is not None
    (partition,) = world.core.sequencer.partitions.values()
    partition.producer_epoch = EPOCH_MAX - 1
    answer(world, ErrorCode.BATCH_TOO_LARGE)
    batch = produce(world)
    assert sealed(batch) == (7, EPOCH_MAX, 0), "it fits the format"
    answer(world, ErrorCode.BATCH_TOO_LARGE)
    batch = produce(world)
    assert batch.base_sequence < 0, "it waits for an id"
    give_id(world, 8)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)


def test_a_batch_that_is_numbered_anew_is_sealed_anew_and_in_doubt_no_more() -> None:
    world = started()
    batch = produce(world)
    assert sealed(batch) == (7, 0, 1)
    broken = StreamBroken(broker_id=1, stream=1, error=failure(ErrorCode.UNAVAILABLE))
    world.step(broken)
    before = world.core.lanes["t", 0].waiting[0]
    before.is_doubtful = False  # Only the second of the two was ever on its way.
    world.tick(1_000)
    world.step(StreamOpened(broker_id=1, stream=2))
    numbers = sorted(world.sent)[-2:]
    for number, code in zip(
        numbers, (ErrorCode.BATCH_TOO_LARGE, ErrorCode.UNKNOWN_PRODUCER_ID), strict=True
    ):
        world.step(
            Answered(broker_id=1, stream=2, correlation_id=number, outcomes=(failure(code),))
        )
    world.tick(1_000)
    assert sealed(batch) == (7, 1, 0)
    answer(world, ErrorCode.INVALID_TIMESTAMP)
    outcome = world.outcomes[batch.number]
    assert isinstance(outcome, TidelogError)
    assert outcome.code is ErrorCode.INVALID_TIMESTAMP, "nothing of it is in doubt"


def test_numbers_of_a_topic_that_was_created_again_begin_at_0() -> None:
    world = started()
    answer(world, ErrorCode.UNKNOWN_TOPIC_ID)
    found = view({"t": [(1, 0)]}, 2)
    topic = msgspec.structs.replace(found.topics[0], topic_id=b"j" * 16)
    world.step(MetadataArrived(view=msgspec.structs.replace(found, topics=(topic,))))
    world.tick(1_000)
    assert [outcome for outcome in world.outcomes.values() if isinstance(outcome, TidelogError)]
    batch = produce(world)
    assert (batch.topic_id, batch.producer_epoch, batch.base_sequence) == (b"j" * 16, 0, 0)
    assert world.core.sequencer is not None
    assert list(world.core.sequencer.partitions) == [(b"j" * 16, 0)], "the old one is forgotten"


def test_a_close_without_waiting_tells_what_may_be_stored_from_what_is_not() -> None:
    world = started(in_flight_max=1)
    waiting = produce(world)
    broken = StreamBroken(broker_id=1, stream=1, error=failure(ErrorCode.UNAVAILABLE))
    world.step(broken)
    closed = TidelogError(ErrorCode.CLOSED, tried="produce", happened="the producer was closed")
    world.perform(world.core.abandon(closed))
    codes = {
        number: outcome.code
        for number, outcome in world.outcomes.items()
        if isinstance(outcome, TidelogError)
    }
    assert codes == {0: ErrorCode.INDETERMINATE, waiting.number: ErrorCode.CLOSED}


def test_a_broker_counts_as_silent_after_a_second_without_the_answer_that_it_owes() -> None:
    world = started()
    world.tick(999)
    assert not world.core.is_silent(1)
    world.tick(1)
    assert world.core.is_silent(1)
    assert not world.core.is_silent(2)
    answer(world, ErrorCode.BATCH_TOO_LARGE)
    assert not world.core.is_silent(1), "it owes nothing"
    produce(world)
    assert not world.core.is_silent(1), "that is a new second"


def test_the_core_says_when_time_alone_has_something_to_do() -> None:
    world = started()
    deadlines_ms = []
    for _ in range(3):
        due_ns = world.core.next_deadline_ns()
        assert due_ns is not None
        deadlines_ms.append((due_ns - world.now_ns) // 1_000_000)
        world.tick(deadlines_ms[-1])
    # Metadata are asked for each second while a broker is silent, and twice as often it is looked
    # whether the log has to be told.
    assert deadlines_ms == [500, 500, 500]
    answer(world, ErrorCode.DEADLINE_EXCEEDED)
    lane = world.core.lanes["t", 0]
    for _ in range(400):
        due_ns = world.core.next_deadline_ns()
        assert due_ns is not None
        assert due_ns > world.now_ns, "nothing is left to be done now"
        world.tick((due_ns - world.now_ns) // 1_000_000)
        if lane.in_flight:
            answer(world, ErrorCode.DEADLINE_EXCEEDED)
        if world.outcomes:
            break
    assert world.now_ns == 1_000_000_000 + 120_000_000_000, "at the delivery timeout, to the tick"
