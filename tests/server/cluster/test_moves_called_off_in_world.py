"""Moves that are called off or replaced, on whole nodes: nothing acknowledged is left to one
memory alone."""

import pytest

from tests.server.cluster.test_moves_to_one_in_world import REPLICATED, crash, ends, is_moving
from tests.server.support.cluster_in_world import Cluster
from tests.server.support.replicas_in_world import ReplicatedTopic

pytestmark = pytest.mark.slow


async def grown_to_two(cluster: Cluster) -> tuple[ReplicatedTopic, int]:
    """One replica and another one that came, and a third one that is dead: the move is under way.
    With who stays."""
    topic = await ReplicatedTopic.create(cluster, 1, settings=REPLICATED)
    (here,) = topic.now().replicas
    other, dead = (each for each in (4, 5, 6) if each != here)
    cluster.nodes[dead].kill()
    await topic.move(here, other, dead)
    await topic.in_sync(here, other)
    await topic.produce(20)
    assert topic.now().is_reassigning
    return topic, here


def test_the_machine_that_is_left_alone_by_a_call_off_may_crash_at_once() -> None:
    async def work(cluster: Cluster) -> None:
        topic, here = await grown_to_two(cluster)
        await topic.move(here)
        await cluster.wait(lambda: topic.now().replicas == (here,))
        assert ends(topic, here) == [(20, 20)], "the other one's memory was as good as its own"
        await crash(cluster, here)
        await topic.holds_all()

    Cluster(controllers=3, brokers=3).run(work)


def test_a_growth_that_was_called_off_leaves_one_replica_that_serves() -> None:
    async def work(cluster: Cluster) -> None:
        topic, here = await grown_to_two(cluster)
        await topic.move(here)
        await cluster.wait(lambda: topic.now().replicas == (here,))
        await cluster.wait(lambda: not is_moving(topic, here))
        await topic.produce(10)
        await topic.holds_all()

    Cluster(controllers=3, brokers=3).run(work)


@pytest.mark.parametrize("how", ["called_off", "replaced"])
def test_who_came_and_was_counted_on_stays_until_as_many_others_are_in_sync(how: str) -> None:
    async def work(cluster: Cluster) -> None:
        settings = {**REPLICATED, "min.insync.replicas": "2"}
        topic = await ReplicatedTopic.create(cluster, 2, settings=settings)
        here = topic.now().replicas
        await topic.in_sync(*here)
        leader = topic.now().leader_id
        (second,) = (each for each in here if each != leader)
        came, dead = (each for each in range(4, 8) if each not in here)
        cluster.nodes[dead].kill()
        await topic.move(came, dead)
        await topic.in_sync(*here, came)
        cluster.nodes[second].kill()
        await topic.in_sync(leader, came)
        await topic.produce(20)
        target = () if how == "called_off" else (leader, second)
        await topic.move(*target)
        await cluster.wait(lambda: dead not in topic.now().replicas)
        await crash(cluster, leader)
        await topic.holds_all()
        await topic.in_sync(leader, came)
        await topic.produce(20)
        await cluster.nodes[second].restart()
        await cluster.wait(lambda: not topic.now().is_reassigning)
        assert sorted(topic.now().replicas) == sorted(here)
        await crash(cluster, leader)
        await topic.holds_all()

    Cluster(controllers=3, brokers=4).run(work)
