"""Settings that change what an acknowledgement rests on, on whole nodes, a replica being away."""

import asyncio

import pytest

from tests.server.support.cluster_in_world import Cluster
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.metadata.image.image import NO_LEADER
from tidelog.v1 import config_admin_pb2

pytestmark = pytest.mark.slow

CAME_BACK_SECONDS = 3
"""By then a broker that was started again has been elected, if it ever is."""


async def configure(cluster: Cluster, name: str, value: str) -> None:
    """The topic's setting; returns when it is committed."""
    target = config_admin_pb2.ConfigTarget(kind=config_admin_pb2.CONFIG_TARGET_KIND_TOPIC, name="t")
    request = config_admin_pb2.AlterConfigsRequest()
    request.alterations.add(target=target).changes.add(name=name, value=value)
    answer = await cluster.call(1, "ConfigService/AlterConfigs", request.SerializeToString())
    (result,) = config_admin_pb2.AlterConfigsResponse.FromString(answer).results
    assert not result.HasField("error"), result


async def pair(cluster: Cluster, **settings: str) -> tuple[ReplicatedTopic, int, int]:
    """A topic on both brokers, who leads it, and the other one."""
    topic = await ReplicatedTopic.create(
        cluster, 2, settings={"min.insync.replicas": "2", **settings}
    )
    await topic.in_sync(*topic.now().replicas)
    leader = topic.now().leader_id
    (other,) = [each for each in topic.now().replicas if each != leader]
    return topic, leader, other


async def does_not_lead(topic: ReplicatedTopic, number: int) -> None:
    """It is back, and nobody leads."""
    await topic.cluster.nodes[number].restart()
    await asyncio.sleep(CAME_BACK_SECONDS)
    assert topic.now().leader_id == NO_LEADER


def test_who_was_away_when_the_minimum_was_lowered_is_not_elected() -> None:
    async def work(cluster: Cluster) -> None:
        topic, leader, other = await pair(cluster)
        await topic.produce(5)
        cluster.nodes[other].kill()
        await topic.in_sync(leader)
        await configure(cluster, "min.insync.replicas", "1")
        await topic.produce(5)
        cluster.nodes[leader].kill()
        await does_not_lead(topic, other)
        await cluster.nodes[leader].restart()
        await topic.holds_all()

    Cluster(controllers=3, brokers=2).run(work)


def test_who_lost_its_memory_before_the_topic_began_to_flush_is_not_elected() -> None:
    async def work(cluster: Cluster) -> None:
        topic, leader, other = await pair(cluster, flush="replicated")
        await topic.produce(20)
        cluster.world.machine(f"n{other}").crash()
        await topic.in_sync(leader)
        await configure(cluster, "flush", "sync")
        cluster.nodes[leader].kill()
        await does_not_lead(topic, other)
        await cluster.nodes[leader].restart()
        await topic.holds_all()

    Cluster(controllers=3, brokers=2).run(work)
