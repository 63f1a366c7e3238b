"""A growth that is called off, on whole nodes: one replica is left, with everything on its disk."""

import pytest

from tests.server.cluster_in_world import Cluster
from tests.server.replicas_in_world import ReplicatedTopic
from tests.server.test_moves_to_one_in_world import REPLICATED, crash, ends, is_moving

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
