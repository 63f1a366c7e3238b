"""More topics than one metadata request may name: asked for in several, within the contract."""

from collections.abc import Iterator

from tests.client.support.engine_world import view
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import ClusterView, MetadataCache
from tidelog.client.engine.cluster.topic_messages import FetchMetadata, RefuseTopic, RouteTopic
from tidelog.client.engine.cluster.topics import (
    TOPICS_A_REQUEST,
    TopicDesk,
    TopicEffect,
    TopicSettings,
)
from tidelog.v1 import metadata_pb2, options_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

MS = 1_000_000
MAX_AGE_MS = 300_000
MANY = [f"topic-{number}" for number in range(2_500)]


def bound() -> int:
    """Of the call, as the contract has it."""
    service = metadata_pb2.DESCRIPTOR.services_by_name["MetadataService"]
    options = service.methods_by_name["GetMetadata"].GetOptions()
    return options.Extensions[options_pb2.bounds].elements_max


class Desk:
    """A desk and a cluster that has these topics, and refuses what the contract does."""

    def __init__(self, *topics: str) -> None:
        settings = TopicSettings(max_age_ms=MAX_AGE_MS, bootstrap_timeout_ms=30_000)
        self.desk = TopicDesk(settings, MetadataCache(), Backoff(initial_ms=100, max_ms=1_000))
        self.there = dict.fromkeys(topics)
        self.now_ns = 0
        self.asked: list[FetchMetadata] = []

    def answered(self, wanted: FetchMetadata) -> ClusterView:
        """What the cluster says."""
        assert len(wanted.topics) <= bound(), "RESOURCE_EXHAUSTED"
        return view({name: [(1, 3)] for name in wanted.topics if name in self.there}, 1)

    def turns(self, requests_max: int) -> Iterator[TopicEffect]:
        """Until nothing is due at once; what comes of it."""
        while effects := self.desk.tick(self.now_ns):
            (request,) = effects
            assert isinstance(request, FetchMetadata)
            self.asked.append(request)
            assert len(self.asked) <= requests_max, "it asks again and again"
            yield from self.desk.on_metadata(self.answered(request), self.now_ns)


def test_the_limit_is_the_contracts() -> None:
    assert bound() == TOPICS_A_REQUEST


def test_2500_topics_are_wanted_and_refreshed_by_three_requests_each_time() -> None:
    world = Desk(*MANY)
    for name in MANY:
        world.desk.want(name, 0)
    routed = [each.topic for each in world.turns(3) if isinstance(each, RouteTopic)]
    assert sorted(routed) == sorted(MANY)
    assert [len(each.topics) for each in world.asked] == [1_000, 1_000, 500]
    assert world.desk.next_deadline_ns() == MAX_AGE_MS * MS
    world.now_ns, world.asked = MAX_AGE_MS * MS, []
    assert len(list(world.turns(3))) == len(MANY)
    assert sorted(name for each in world.asked for name in each.topics) == sorted(MANY)
    assert not any(each.may_create for each in world.asked)


def test_one_that_is_wanted_is_asked_for_first_whatever_is_in_use() -> None:
    world = Desk(*MANY, "late")
    for name in MANY:
        world.desk.want(name, 0)
    list(world.turns(3))
    world.asked = []
    world.desk.want("late", 0)
    first = next(each for each in world.turns(3) if isinstance(each, RouteTopic))
    assert first.topic == "late"
    assert len(world.asked) == 1


def test_one_that_is_not_there_is_not_asked_for_without_a_pause() -> None:
    world = Desk(*MANY)
    for name in ("missing", *MANY):
        world.desk.want(name, 0)
    list(world.turns(3))
    assert len(world.asked) == 3
    deadline = world.desk.next_deadline_ns()
    assert deadline is not None
    assert deadline > 0, "after a pause"


def test_a_round_that_fails_in_the_middle_is_begun_again() -> None:
    world = Desk(*MANY)
    for name in MANY:
        world.desk.want(name, 0)
    (request,) = world.desk.tick(0)
    assert isinstance(request, FetchMetadata)
    world.desk.on_metadata(world.answered(request), 0)
    assert world.desk.tick(0)
    failed = TidelogError(ErrorCode.UNAVAILABLE, tried="ask", happened="nobody is there")
    refused = world.desk.on_failure(failed, 0)
    assert {each.topic for each in refused if isinstance(each, RefuseTopic)} <= set(MANY[1_000:])
    world.now_ns = 10_000 * MS
    routed = {each.topic for each in world.turns(3) if isinstance(each, RouteTopic)}
    assert set(MANY[1_000:]) <= routed
