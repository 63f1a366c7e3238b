"""One replica is left, or is in sync alone, on whole nodes: nothing acknowledged is in its memory
alone."""

import asyncio

import pytest

from tests.server.cluster.test_damage_in_world import replica
from tests.server.support.cluster_in_world import Cluster
from tests.server.support.replicas_in_world import ReplicatedTopic
from tests.server.support.watched_disk import Sight
from tidelog.chaos.sim import World
from tidelog.chaos.sim.base.faults import FaultKind

pytestmark = pytest.mark.slow

FLUSHED_BY_ITSELF_SECONDS = 2
REPLICATED = {"flush": "replicated", "min.insync.replicas": "1"}


async def crash(cluster: Cluster, number: int) -> None:
    """The machine goes down with all that it has not flushed, and comes back."""
    cluster.world.machine(f"n{number}").crash()
    await cluster.nodes[number].restart()


def is_moving(topic: ReplicatedTopic, number: int) -> bool:
    """As the node has heard."""
    seen = topic.seen_by(number)
    return seen is not None and seen.is_reassigning


@pytest.mark.parametrize("stays", [0, 1], ids=["the_leader_stays", "a_follower_stays"])
@pytest.mark.parametrize("replicas", [2, 3])
def test_the_machine_that_is_left_alone_may_crash_at_once(stays: int, replicas: int) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas, settings=REPLICATED)
        last = topic.now().replicas[stays]
        await topic.produce(20)
        producing = asyncio.ensure_future(topic.produce(20))
        await topic.move(last)
        await cluster.wait(lambda: topic.now().replicas == (last,))
        await crash(cluster, last)
        await producing
        await topic.holds_all()

    Cluster(controllers=3, brokers=3).run(work)


def test_an_only_replica_that_moves_takes_everything_with_it_to_the_other_disk() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, 1, settings=REPLICATED)
        (here,) = topic.now().replicas
        other = 4 if here != 4 else 5
        await topic.produce(20)
        producing = asyncio.ensure_future(topic.produce(40))
        await topic.move(other)
        await cluster.wait(lambda: topic.now().replicas == (other,))
        await crash(cluster, other)
        await producing
        await topic.holds_all()

    Cluster(controllers=3, brokers=3).run(work)


def test_while_it_moves_the_machine_that_leads_may_crash() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, 1, settings=REPLICATED)
        (here,) = topic.now().replicas
        other = 4 if here != 4 else 5
        cluster.nodes[other].kill()
        await topic.move(other)
        await cluster.wait(lambda: is_moving(topic, here))
        await topic.produce(20)
        await crash(cluster, here)
        await topic.holds_all()
        await cluster.nodes[other].restart()
        await cluster.wait(lambda: topic.now().replicas == (other,))
        await topic.holds_all()

    Cluster(controllers=3, brokers=3).run(work)


def test_a_move_that_is_called_off_leaves_the_partition_as_it_was() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, 2, settings=REPLICATED)
        here = topic.now().replicas
        (other,) = [each for each in (4, 5, 6) if each not in here]
        cluster.nodes[other].kill()
        await topic.move(other)
        await cluster.wait(lambda: topic.now().is_reassigning)
        await topic.produce(10)
        await topic.move(*here)
        await cluster.wait(lambda: not topic.now().is_reassigning)
        await topic.produce(10)
        await topic.in_sync(*here)
        await topic.holds_all()

    Cluster(controllers=3, brokers=3).run(work)


def cut_off(cluster: Cluster, number: int) -> None:
    """The node hears nothing from the controllers; what it says is heard."""
    for controller in (1, 2, 3):
        cluster.world.fabric.cut(f"n{controller}", f"n{number}", FaultKind.PARTITION_ONE_WAY)


def test_what_both_have_in_memory_as_the_move_ends_is_acknowledged_after_the_flush() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, 2, settings=REPLICATED)
        sights = [Sight().of(cluster, number) for number in topic.now().replicas]
        for number in topic.now().replicas:
            cluster.nodes[number].kill()
            await cluster.nodes[number].restart()
            await topic.in_sync(*topic.now().replicas)
        await topic.produce(20)
        await asyncio.sleep(FLUSHED_BY_ITSELF_SECONDS)
        last = topic.now().leader_id
        (other,) = [each for each in topic.now().replicas if each != last]
        await topic.move(last)
        await cluster.wait(lambda: is_moving(topic, last))
        cut_off(cluster, last)
        for sight in sights:
            sight.hold_flushes()
        producing = asyncio.ensure_future(topic.produce())
        await cluster.wait(lambda: ends(topic, last, other) == [(21, 20), (21, 20)])
        await cluster.wait(lambda: topic.now().replicas == (last,))
        assert is_moving(topic, last), "it has not heard that it is alone"
        cluster.world.heal()
        await cluster.wait(lambda: not is_moving(topic, last))
        await asyncio.sleep(0.2)
        assert ends(topic, last) == [(21, 20)]
        assert not producing.done(), "it is on no disk"
        for sight in sights:
            sight.may_flush.set()
        await producing
        await topic.holds_all()

    Cluster(controllers=3, brokers=2).run(work)


def ends(topic: ReplicatedTopic, *numbers: int) -> list[tuple[int, int]]:
    """Where each log ends, and what is flushed of it."""
    logs = [replica(topic, number).log for number in numbers]
    return [(log.log_end_offset, log.flushed_offset) for log in logs]


def of_forgetful_machines() -> Cluster:
    """A crash takes all that is not flushed, not only some of it."""
    cluster = Cluster(controllers=3, brokers=3)
    lost = FaultKind.LOST_WRITE
    cluster.world.close()
    cluster.world = World(3, enabled=[lost], probabilities={lost: 1.0})
    return cluster


@pytest.mark.parametrize("grows", [False, True], ids=["as_it_was", "grows"])
def test_an_only_replica_that_others_are_to_join_acknowledges_what_is_on_its_disk(
    grows: bool,
) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, 1, settings=REPLICATED)
        (here,) = topic.now().replicas
        others = [each for each in (4, 5, 6) if each != here]
        await topic.produce(5)
        for each in others:
            cluster.nodes[each].kill()
        if grows:
            await topic.move(here, *others)
            await cluster.wait(lambda: is_moving(topic, here))
        await topic.produce(20)
        assert topic.now().in_sync_replicas == (here,)
        await crash(cluster, here)
        await topic.holds_all()

    of_forgetful_machines().run(work)


def test_a_leader_that_the_others_have_left_acknowledges_what_is_on_its_disk() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, 3, settings=REPLICATED)
        leader = topic.now().leader_id
        await topic.produce(5)
        for each in (4, 5, 6):
            if each != leader:
                cluster.nodes[each].kill()
        await topic.in_sync(leader)
        await topic.produce(20)
        await crash(cluster, leader)
        await topic.holds_all()

    of_forgetful_machines().run(work)
