"""What every plan of moves keeps, over clusters of any shape."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metadata_quorum.controller import clusters
from tidelog.metadata.eligibility import may_take_replicas
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.controller.brokers.changes import drain, fence
from tidelog.metadata_quorum.controller.partitions.reassignment import alter_reassignments
from tidelog.metadata_quorum.controller.partitions.reassignment_plan import Plan, plan_reassignments
from tidelog.wire.ids import BrokerId, PartitionId, TopicId

pytestmark = pytest.mark.slow

Key = tuple[TopicId, PartitionId]
Placed = dict[Key, tuple[BrokerId, ...]]


class Shape(NamedTuple):
    """A cluster."""

    racks: Sequence[str]
    """Of each broker; none: no rack is configured."""
    hosts: Sequence[str]
    """Of each broker: the machine that it runs on."""
    topics: Sequence[Sequence[tuple[int, ...]]]
    fenced: frozenset[int]
    drained: frozenset[int]

    def image(self, moved: Mapping[Key, Sequence[BrokerId]] | None = None) -> Image:
        """With all in place; `moved`: what stands elsewhere."""
        count = len(self.racks)
        racks = self.racks if any(self.racks) else ()
        image = clusters.cluster(count, racks=racks, hosts=self.hosts)
        for number, topic in enumerate(self.topics, 1):
            topic_id = clusters.topic_id(number)
            members = [
                tuple(map(int, (moved or {}).get((topic_id, PartitionId(place)), replicas)))
                for place, replicas in enumerate(topic)
            ]
            image = clusters.with_topic(
                image, *members, name=f"t{number}", number=number, in_sync_min=1
            )
        for each in sorted(self.drained)[: len(image.brokers) - 1]:
            image = clusters.after(image, drain(image, BrokerId(each), is_cancelled=False))
        for each in sorted(self.fenced):
            epoch = image.brokers[BrokerId(each)].epoch
            image = clusters.after(image, fence(image, BrokerId(each), epoch))
        return image


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Two to six brokers, one to three topics, each on some of them."""
    count = draw(st.integers(2, 6))
    rack = st.sampled_from(["a", "b", "c"]) if draw(st.booleans()) else st.just("")
    numbers = list(range(1, count + 1))
    topics = []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, min(3, count)))
        members = st.permutations(numbers).map(lambda drawn, size=size: tuple(drawn[:size]))  # type: ignore[misc]
        topics.append(draw(st.lists(members, min_size=1, max_size=8)))
    some = st.frozensets(st.sampled_from(numbers), max_size=1)
    return Shape(
        racks=draw(st.lists(rack, min_size=count, max_size=count)),
        hosts=draw(st.lists(st.sampled_from("xyz"), min_size=count, max_size=count)),
        topics=topics,
        fenced=draw(some),
        drained=draw(some),
    )


def placed(image: Image) -> Placed:
    """Replicas of all partitions."""
    return {
        (topic.topic_id, part.partition): part.replicas
        for topic in image.topics.values()
        for part in topic.partitions
    }


def targets(plan: Plan) -> Placed:
    """Of the partitions that change."""
    return {(each.topic_id, each.partition): each.replicas for each in plan.reassignments}


def rack_count(image: Image, replicas: Sequence[BrokerId]) -> int:
    """In how many racks they stand."""
    return len({image.brokers[each].rack for each in replicas})


def host_count(image: Image, replicas: Sequence[BrokerId]) -> int:
    """On how many machines they stand."""
    return len({image.brokers[each].host_name for each in replicas})


def held(placing: Placed) -> dict[BrokerId, int]:
    """Replicas by broker."""
    counts: dict[BrokerId, int] = {}
    for replicas in placing.values():
        for each in replicas:
            counts[each] = counts.get(each, 0) + 1
    return counts


@settings(max_examples=60, deadline=None)
@given(shapes())
def test_no_plan_doubles_a_replica_loses_a_rack_or_machine_or_uses_a_broker_that_takes_none(
    shape: Shape,
) -> None:
    image = shape.image()
    before = placed(image)
    for key, after in targets(plan_reassignments(image)).items():
        was = before[key]
        assert len(set(after)) == len(was), "as many replicas, each on a broker of its own"
        for each in after:
            assert each in was or may_take_replicas(image.brokers[each])
        if not any(image.brokers[each].is_draining for each in was):
            assert rack_count(image, after) >= rack_count(image, was)
            assert host_count(image, after) >= host_count(image, was)


@settings(max_examples=60, deadline=None)
@given(shapes(), st.integers(1, 4))
def test_a_plan_touches_no_more_partitions_than_it_may_and_the_controller_takes_it(
    shape: Shape, most: int
) -> None:
    image = shape.image()
    plan = plan_reassignments(image, moves_max=most)
    assert len(targets(plan)) == len(plan.reassignments) <= most
    assert set(alter_reassignments(image, plan.reassignments).answer) <= {None}


@settings(max_examples=60, deadline=None)
@given(shapes())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(shape: Shape) -> None:
    image = shape.image()
    moved = targets(plan_reassignments(image))
    after = shape.image({**placed(image), **moved})
    assert targets(plan_reassignments(after)) == {}


@settings(max_examples=60, deadline=None)
@given(shapes())
def test_on_machines_of_their_own_brokers_hold_as_many_replicas_but_one(
    shape: Shape,
) -> None:
    alone = [f"m{number}" for number in range(len(shape.hosts))]
    shape = shape._replace(racks=[""] * len(shape.racks), hosts=alone)
    image = shape.image()
    able = [each.broker_id for each in image.brokers.values() if may_take_replicas(each)]
    counts = held({**placed(image), **targets(plan_reassignments(image))})
    found = [counts.get(each, 0) for each in able]
    assert not found or max(found) - min(found) <= 1


@settings(max_examples=60, deadline=None)
@given(shapes())
def test_a_plan_evens_out_and_never_the_other_way(shape: Shape) -> None:
    image = shape.image()
    able = [each.broker_id for each in image.brokers.values() if may_take_replicas(each)]
    before, after = placed(image), {**placed(image), **targets(plan_reassignments(image))}

    def spread(placing: Placed) -> int:
        return sum(held(placing).get(each, 0) ** 2 for each in able)

    if not shape.drained and not shape.fenced:
        assert spread(after) <= spread(before)
