"""Partitions that come while a member is in its group: with `latest` nothing of them is skipped."""

import pytest

from tests.client.engine.test_engine_consumer import World
from tests.client.engine.test_engine_topics import without_topic
from tests.client.support.engine_world import view
from tidelog.client.engine.fetch.messages import (
    ConsumerEffect,
    FetchMetadata,
    MetadataArrived,
    QueryOffsets,
)
from tidelog.client.types.records import TopicPartition
from tidelog.wire.calls.offsets import OffsetSpec

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIEST, LATEST = OffsetSpec.EARLIEST, OffsetSpec.LATEST


class MemberWorld(World):
    """A member of a group that is subscribed to topic t."""

    def __init__(self, reset: OffsetSpec | None = LATEST) -> None:
        super().__init__(reset)
        self.version = 0
        self.begins: dict[TopicPartition, OffsetSpec] = {}
        """Where it asked to begin."""

    def be_member(self) -> list[ConsumerEffect]:
        self.core.be_member(["t"], self.now_ns)
        return self.note(self.tick())

    def metadata(self, partitions: int) -> None:
        """The topic has so many; none: there is no such topic."""
        self.version += 1
        found = view({"t": [(1, 3)] * partitions}, self.version)
        if not partitions:
            found = without_topic(self.version)
        self.note(self.step(MetadataArrived(view=found)))

    def assign(self, *names: TopicPartition) -> None:
        """All that the coordinator gives; nothing of it is committed."""
        self.core.assign(names, self.now_ns)
        self.note(self.tick(1_000))

    def note(self, effects: list[ConsumerEffect]) -> list[ConsumerEffect]:
        for each in effects:
            if isinstance(each, QueryOffsets):
                specs = [query.spec for query in each.queries]
                self.begins.update(zip(each.partitions, specs, strict=True))
        return effects


def test_a_partition_that_came_after_the_subscription_begins_at_its_first_record() -> None:
    world = MemberWorld()
    (asked,) = world.be_member()
    assert isinstance(asked, FetchMetadata)
    assert (asked.topics, asked.may_create) == (("t",), False)
    world.metadata(1)
    world.assign(T0)
    world.metadata(2)
    world.assign(T0, T1)
    assert world.begins == {T0: LATEST, T1: EARLIEST}


def test_an_idle_member_that_is_given_the_new_partition_knows_it_for_new() -> None:
    world = MemberWorld()
    world.be_member()
    world.metadata(1)
    world.metadata(2)
    world.assign(T1)
    assert world.begins == {T1: EARLIEST}


def test_the_coordinator_may_know_of_a_partition_first() -> None:
    world = MemberWorld()
    world.be_member()
    world.metadata(1)
    world.assign(T0, T1)
    world.metadata(2)
    assert world.begins == {T0: LATEST, T1: EARLIEST}


def test_a_topic_that_was_not_there_when_it_subscribed_is_new_as_a_whole() -> None:
    world = MemberWorld()
    world.be_member()
    world.metadata(0)
    world.metadata(2)
    world.assign(T0, T1)
    assert world.begins == {T0: EARLIEST, T1: EARLIEST}


def test_what_is_assigned_at_once_of_a_topic_that_a_pattern_found_was_there_before() -> None:
    world = MemberWorld()
    world.core.be_member([], world.now_ns)
    world.assign(T0, T1)
    world.metadata(2)
    assert world.begins == {T0: LATEST, T1: LATEST}


def test_a_new_subscription_begins_anew_to_look() -> None:
    world = MemberWorld()
    world.be_member()
    world.metadata(1)
    world.metadata(2)
    world.be_member()
    world.assign(T0, T1)
    assert world.begins == {T0: LATEST, T1: LATEST}


@pytest.mark.parametrize("reset", [EARLIEST, None])
def test_another_policy_holds_for_new_partitions_too(reset: OffsetSpec | None) -> None:
    world = MemberWorld(reset)
    world.be_member()
    world.metadata(1)
    world.assign(T0, T1)
    world.metadata(2)
    assert world.begins == ({} if reset is None else {T0: EARLIEST, T1: EARLIEST})


def test_who_chooses_his_partitions_himself_is_asked_by_his_own_policy() -> None:
    world = MemberWorld()
    world.metadata(1)
    world.assign(T0)
    world.metadata(2)
    world.assign(T0, T1)
    assert world.begins == {T0: LATEST, T1: LATEST}
