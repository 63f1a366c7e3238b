"""A leader that does not serve: who leads instead is asked for, and the user is told that he waits.

The world is the one of `test_engine_consumer`; brokers 1 and 2 live.
"""

import pytest

from tests.client.engine.test_engine_consumer import T0, World, batch, part
from tests.client.support.engine_world import TOPIC_ID, failure, view
from tidelog.client.engine.cluster.times import AGAIN_NS, FIRST_NS
from tidelog.client.engine.fetch.messages import (
    ConsumerEffect,
    FetchMetadata,
    MetadataArrived,
    MetadataFailed,
    OffsetsArrived,
    OffsetsFailed,
    OpenStream,
    PartitionBatches,
    QueryOffsets,
    StreamBroken,
    StreamOpened,
    TellReadAgain,
    TellUnread,
)
from tidelog.wire.calls.offsets import OffsetAnswer
from tidelog.wire.errors import CATALOGUE, ErrorCode
from tidelog.wire.ids import Offset, PartitionId

RETRIABLE = sorted(code for code, meaning in CATALOGUE.items() if meaning.retriable)
LOOK_MS = 250
"""The world's time goes on in steps of this, as a driver's would."""


def asked_leader() -> tuple[World, QueryOffsets]:
    """A consumer whose first look-up is on its way to leader 1."""
    world = World()
    world.core.assign([T0], world.now_ns)
    world.tick()
    (query,) = world.step(MetadataArrived(view=view({"t": [(1, 0)]})))
    assert isinstance(query, QueryOffsets), "without a position the leader is asked for one"
    return world, query


def passing(world: World, duration_ns: int) -> list[ConsumerEffect]:
    """What is done while nobody answers."""
    effects: list[ConsumerEffect] = []
    until_ns = world.now_ns + duration_ns
    while world.now_ns < until_ns:
        effects += world.tick(LOOK_MS)
    return effects


def told(effects: list[ConsumerEffect]) -> list[TellUnread | TellReadAgain]:
    return [each for each in effects if isinstance(each, TellUnread | TellReadAgain)]


@pytest.mark.parametrize("code", RETRIABLE)
def test_metadata_are_fetched_after_whatever_a_leader_answers_that_can_be_tried_again(
    code: ErrorCode,
) -> None:
    world, query = asked_leader()
    effects = world.step(OffsetsFailed(query=query, error=failure(code)))
    effects += passing(world, 1_000_000_000)
    assert any(isinstance(each, FetchMetadata) for each in effects), code.name
    again = world.step(MetadataArrived(view=view({"t": [(2, 1)]}, version=2)))
    again += passing(world, 1_000_000_000)
    asked = [each for each in again if isinstance(each, QueryOffsets)]
    assert [each.broker_id for each in asked] == [2], "the new leader is asked, once"


def test_a_leader_that_is_silent_is_not_waited_for_once_another_leads() -> None:
    world, query = asked_leader()
    asked = world.step(MetadataArrived(view=view({"t": [(2, 1)]}, version=2)))
    (second,) = [each for each in asked if isinstance(each, QueryOffsets)]
    assert second.broker_id == 2
    late = OffsetAnswer(topic_id=TOPIC_ID, partition=PartitionId(0), offset=Offset(7))
    world.step(OffsetsArrived(query=query, answers=(late,)))
    assert world.core.partitions[T0].position is None, "what the old one says is not believed"
    answer = OffsetAnswer(topic_id=TOPIC_ID, partition=PartitionId(0), offset=Offset(3))
    world.step(OffsetsArrived(query=second, answers=(answer,)))
    assert world.core.partitions[T0].position == 3


@pytest.mark.parametrize("code", RETRIABLE)
def test_so_are_they_when_the_leader_refuses_a_position(code: ErrorCode) -> None:
    world = World()
    world.read_from(5)
    refused = PartitionBatches(topic_id=TOPIC_ID, partition=PartitionId(0), error=failure(code))
    effects = world.answer(refused) + passing(world, 1_000_000_000)
    assert any(isinstance(each, FetchMetadata) for each in effects), code.name


def test_a_leader_that_goes_on_refusing_is_asked_with_growing_pauses() -> None:
    world, query = asked_leader()
    metadata = queries = 0
    effects = world.step(OffsetsFailed(query=query, error=failure(ErrorCode.UNAVAILABLE)))
    for _ in range(40):
        effects += world.tick(LOOK_MS)
        for each in list(effects):
            effects.remove(each)
            if isinstance(each, FetchMetadata):
                metadata += 1
                effects += world.step(MetadataArrived(view=view({"t": [(1, 0)]})))
            elif isinstance(each, QueryOffsets):
                queries += 1
                error = failure(ErrorCode.UNAVAILABLE)
                effects += world.step(OffsetsFailed(query=each, error=error))
    assert 8 <= queries <= 16, "ten seconds, and a second between two tries in the end"
    assert metadata <= queries + 1


def test_who_waits_for_a_leader_is_told_which_address_why_and_since_when() -> None:
    world, query = asked_leader()
    effects = world.step(OffsetsFailed(query=query, error=failure(ErrorCode.UNAVAILABLE)))
    effects += passing(world, FIRST_NS - 1_000_000_000)
    assert told(effects) == []
    (notice,) = told(passing(world, 2_000_000_000))
    assert isinstance(notice, TellUnread)
    assert notice.partition == T0
    assert notice.address == view({}).brokers[0].address
    assert notice.error.code is ErrorCode.UNAVAILABLE
    assert notice.waited_ms >= FIRST_NS // 1_000_000


def test_it_is_told_again_only_after_a_while() -> None:
    world, query = asked_leader()
    world.step(OffsetsFailed(query=query, error=failure(ErrorCode.UNAVAILABLE)))
    assert len(told(passing(world, FIRST_NS + AGAIN_NS - 1_000_000_000))) == 1
    assert len(told(passing(world, 2_000_000_000))) == 1


def test_a_leader_that_says_nothing_is_told_of_as_well() -> None:
    world, _ = asked_leader()
    (notice,) = told(passing(world, FIRST_NS + 1_000_000_000))
    assert isinstance(notice, TellUnread)
    assert notice.error.code is ErrorCode.DEADLINE_EXCEEDED


def test_a_partition_without_a_leader_and_a_cluster_without_an_answer_are_told_of() -> None:
    world = World()
    world.core.assign([T0], world.now_ns)
    world.tick()
    world.step(MetadataArrived(view=view({"t": [(-1, 0)]})))
    (notice,) = told(passing(world, FIRST_NS + 1_000_000_000))
    assert isinstance(notice, TellUnread)
    assert (notice.address, notice.error.code) == ("", ErrorCode.NOT_LEADER)
    assert "no leader" in notice.error.happened
    silent = World()
    silent.core.assign([T0], silent.now_ns)
    silent.tick()
    silent.step(MetadataFailed(error=failure(ErrorCode.UNAVAILABLE)))
    (unreached,) = told(passing(silent, FIRST_NS + 1_000_000_000))
    assert isinstance(unreached, TellUnread)
    assert unreached.error.code is ErrorCode.UNAVAILABLE


def test_the_end_of_a_wait_that_was_told_is_told() -> None:
    world, query = asked_leader()
    passing(world, FIRST_NS + 1_000_000_000)
    answer = OffsetAnswer(topic_id=TOPIC_ID, partition=PartitionId(0), offset=Offset(0))
    effects = world.step(OffsetsArrived(query=query, answers=(answer,)))
    (opening,) = [each for each in effects if isinstance(each, OpenStream)]
    world.step(StreamOpened(broker_id=1, stream=opening.stream))
    (notice,) = told(passing(world, 2_000_000_000))
    assert isinstance(notice, TellReadAgain)
    assert told(passing(world, FIRST_NS + AGAIN_NS)) == []


def test_a_leader_that_takes_positions_and_refuses_them_does_not_hide_the_wait() -> None:
    world = World()
    world.read_from(5)
    refused = PartitionBatches(
        topic_id=TOPIC_ID, partition=PartitionId(0), error=failure(ErrorCode.UNAVAILABLE)
    )
    notices: list[TellUnread | TellReadAgain] = []
    refusals = 0
    for _ in range(40):
        state = world.core.partitions[T0]
        if state.broker_id is not None:
            refusals += 1
            notices += told(world.answer(refused, epoch=state.session_epoch))
        notices += told(world.tick(LOOK_MS))
    assert refusals > 3, "it takes the position each time"
    assert [type(each) for each in notices] == [TellUnread]


def test_nothing_is_told_of_a_reader_that_is_served_or_wants_nothing() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5), 5))
    assert told(passing(world, FIRST_NS + AGAIN_NS)) == []
    assert world.core.watch.next_deadline_ns() is None, "a parked consumer is left alone"
    world.core.pause(T0)
    world.step(StreamBroken(broker_id=1, stream=1, error=failure(ErrorCode.UNAVAILABLE)))
    assert told(passing(world, FIRST_NS + AGAIN_NS)) == []


def test_time_in_which_nobody_drove_the_consumer_does_not_count() -> None:
    world, query = asked_leader()
    world.step(OffsetsFailed(query=query, error=failure(ErrorCode.UNAVAILABLE)))
    passing(world, 1_000_000_000)
    assert told(world.tick(60_000)) == []
    assert told(passing(world, FIRST_NS - 1_000_000_000)) == []
    assert len(told(passing(world, 2_000_000_000))) == 1
