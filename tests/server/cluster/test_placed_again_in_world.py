"""Replicas that come into sync while their partition changes, on whole nodes."""

import asyncio

import pytest

from tests.server.support.cluster_in_world import Cluster
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.v1 import admin_pb2

pytestmark = pytest.mark.slow

SILENT_SECONDS = 2
"""So long does the leader hear nothing: less than it takes to give a follower up."""

SAID_SECONDS = 1
"""By then a follower has said where it stands, on the lane where it belongs."""


async def _create_another_topic(cluster: Cluster) -> None:
    """Streams stay open that have nothing else to pull."""
    new = admin_pb2.NewTopic(name="u", partition_count=6, replication_factor=3)
    request = admin_pb2.CreateTopicsRequest(topics=[new]).SerializeToString()
    answer = await cluster.call(1, "AdminService/CreateTopics", request)
    (result,) = admin_pb2.CreateTopicsResponse.FromString(answer).results
    assert not result.HasField("error"), result


def test_it_comes_into_sync_with_a_new_copy_of_what_was_acknowledged() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await _create_another_topic(cluster)
        here = topic.now().replicas
        await topic.in_sync(*here)
        await topic.produce(5)
        leader = topic.now().leader_id
        again, third = (each for each in here if each != leader)

        def all_see(*replicas: int) -> bool:
            seen = [topic.seen_by(number) for number in here]
            return all(each is not None and each.replicas == replicas for each in seen)

        async def hear_again() -> None:
            await asyncio.sleep(SILENT_SECONDS)
            cluster.world.heal()

        # That its old replica is gone, the leader does not hear from it.
        cluster.world.fabric.cut(f"n{again}", f"n{leader}", FaultKind.PARTITION_ONE_WAY)
        await topic.move(leader, third)
        await cluster.wait(lambda: all_see(leader, third))
        await cluster.wait(lambda: not topic.has_files(again))
        await topic.move(leader, third, again)
        await cluster.wait(lambda: again in topic.now().replicas)
        healing = asyncio.ensure_future(hear_again())
        await topic.in_sync(*here)
        for number in (leader, third):
            cluster.nodes[number].kill()
        await cluster.wait(lambda: topic.now().leader_id == again)
        await topic.holds_all()
        await healing

    Cluster(controllers=3, brokers=3).run(work)


def test_who_is_caught_up_comes_though_the_partition_changes_meanwhile_and_nobody_writes() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        here = topic.now().replicas
        await topic.in_sync(*here)
        await topic.produce(5)
        leader = topic.now().leader_id
        first, second = (each for each in range(4, 9) if each not in here)
        for controller in (1, 2, 3):
            cluster.world.fabric.cut(f"n{leader}", f"n{controller}", FaultKind.PARTITION_ONE_WAY)
        await topic.move(*here, first)
        await cluster.wait(lambda: topic.ends() == [5, 5, 5, 5])
        await asyncio.sleep(SAID_SECONDS)
        assert first not in topic.now().in_sync_replicas, "its leader cannot ask for it"
        await topic.move(*here, first, second)
        await cluster.wait(lambda: topic.ends() == [5, 5, 5, 5, 5])
        cluster.world.heal()
        await topic.in_sync(*here, first, second)

    Cluster(controllers=3, brokers=5).run(work)
