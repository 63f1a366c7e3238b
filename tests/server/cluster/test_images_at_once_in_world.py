"""Brokers that take several images over at once: each rule holds with the set that it came with."""

import asyncio

import pytest

from tests.server.cluster.test_damage_in_world import replica
from tests.server.cluster.test_moves_to_one_in_world import (
    FLUSHED_BY_ITSELF_SECONDS,
    REPLICATED,
    ends,
    is_moving,
)
from tests.server.support.cluster_in_world import Cluster
from tests.server.support.late_metadata import hold
from tests.server.support.replicas_in_world import ReplicatedTopic
from tests.server.support.watched_disk import Sight
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.v1 import config_admin_pb2

pytestmark = pytest.mark.slow


async def configure(
    topic: ReplicatedTopic, name: str, value: str, *, of_cluster: bool = False
) -> None:
    """A setting of the topic, or one of the cluster that its topics inherit."""
    request = config_admin_pb2.AlterConfigsRequest()
    wanted = request.alterations.add(
        changes=[config_admin_pb2.ConfigChange(name=name, value=value)]
    )
    wanted.target.kind = config_admin_pb2.CONFIG_TARGET_KIND_TOPIC
    wanted.target.name = "t"
    if of_cluster:
        wanted.target.kind = config_admin_pb2.CONFIG_TARGET_KIND_CLUSTER
        wanted.target.name = ""
    answer = await topic.cluster.call(1, "ConfigService/AlterConfigs", request.SerializeToString())
    (result,) = config_admin_pb2.AlterConfigsResponse.FromString(answer).results
    assert not result.HasField("error"), result


def part(topic: ReplicatedTopic, first: int, second: int) -> None:
    """Nothing gets from one to the other, either way."""
    for source, target in ((first, second), (second, first)):
        topic.cluster.world.fabric.cut(f"n{source}", f"n{target}", FaultKind.PARTITION_ONE_WAY)


async def hold_back(topic: ReplicatedTopic, number: int) -> asyncio.Event:
    """The broker takes nothing over until the event is set."""
    late = hold(topic, number)
    # One image is waited for already.
    await configure(topic, "retention.bytes", "99999999")
    await topic.cluster.wait(lambda: replica(topic, number).settings.retention_bytes == 99999999)
    return late.may_follow


def test_a_smaller_set_and_a_higher_minimum_come_at_once_and_one_copy_is_not_enough() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, 2, settings=REPLICATED)
        await topic.in_sync(*topic.now().replicas)
        await topic.produce(5)
        leader = topic.now().leader_id
        (other,) = [each for each in topic.now().replicas if each != leader]
        may_follow = await hold_back(topic, leader)
        part(topic, leader, other)
        producing = asyncio.ensure_future(topic.try_produce(leader, timeout_ms=60_000))
        await configure(topic, "min.insync.replicas", "2")
        cluster.nodes[other].kill()
        await topic.in_sync(leader)
        assert topic.now().eligible_replicas == (other,)
        cluster.world.heal()
        may_follow.set()
        await cluster.wait(lambda: replica(topic, leader).settings.in_sync_replicas_min == 2)
        await asyncio.sleep(0.3)
        log = replica(topic, leader).log
        assert (log.log_end_offset, log.high_watermark) == (6, 5)
        assert not producing.done(), "it is in one memory, and the other one may be elected"
        await cluster.nodes[other].restart()
        await topic.in_sync(leader, other)
        await producing
        await topic.holds_all()

    Cluster(controllers=3, brokers=2).run(work)


def test_the_end_of_a_move_to_one_and_an_inherited_setting_come_at_once() -> None:
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
        may_follow = await hold_back(topic, last)
        for sight in sights:
            sight.hold_flushes()
        producing = asyncio.ensure_future(topic.produce())
        await cluster.wait(lambda: ends(topic, last, other) == [(21, 20), (21, 20)])
        await cluster.wait(lambda: topic.now().replicas == (last,))
        await configure(topic, "delete.retention.ms", "3600000", of_cluster=True)
        await cluster.wait(lambda: inherits(cluster, last))
        may_follow.set()
        await asyncio.sleep(0.2)
        assert replica(topic, last).settings.delete_retention_ms == 3_600_000
        assert ends(topic, last) == [(21, 20)]
        assert not producing.done(), "it is on no disk"
        for sight in sights:
            sight.may_flush.set()
        await producing
        await topic.holds_all()

    Cluster(controllers=3, brokers=2).run(work)


def inherits(cluster: Cluster, number: int) -> bool:
    """Whether the node has heard of the setting, if not taken it over."""
    node = cluster.nodes[number].node
    assert node is not None
    image = node.view().image
    assert image is not None
    return "delete.retention.ms" in image.cluster_configuration


@pytest.mark.parametrize("flush", ["replicated", "sync"])
def test_what_topics_inherit_comes_at_once_with_a_lower_minimum_and_another_leader(
    flush: str,
) -> None:
    async def work(cluster: Cluster) -> None:
        other_flush = {"replicated": "sync", "sync": "replicated"}[flush]
        settings = {"flush": flush, "min.insync.replicas": "2"}
        topic = await ReplicatedTopic.create(cluster, 2, settings=settings)
        await topic.in_sync(*topic.now().replicas)
        await topic.produce(5)
        leader = topic.now().leader_id
        (other,) = [each for each in topic.now().replicas if each != leader]
        part(topic, leader, other)
        producing = asyncio.ensure_future(topic.try_produce(leader, timeout_ms=300_000))
        await asyncio.sleep(0.2)
        cluster.nodes[other].kill()
        await topic.in_sync(leader)
        # What else the death brings about is taken over first.
        await asyncio.sleep(1)
        may_follow = await hold_back(topic, leader)
        for controller in (1, 2, 3):
            part(topic, leader, controller)
        await cluster.nodes[other].restart()
        await cluster.wait(lambda: topic.now().leader_id == other)
        await configure(topic, "min.insync.replicas", "1")
        await configure(topic, "flush", other_flush)
        await configure(topic, "delete.retention.ms", "3600000", of_cluster=True)
        await topic.produce(3)
        cluster.world.heal()
        newest = topic.image_of(1)
        assert newest is not None

        def knows_all() -> bool:
            known = topic.image_of(leader)
            return known is not None and known.version >= newest.version

        await cluster.wait(knows_all)
        assert not producing.done()
        may_follow.set()
        await asyncio.sleep(3)
        assert not (producing.done() and producing.result() is None), "acknowledged, and lost"
        assert replica(topic, leader).log.failure is None
        await topic.holds_all()

    Cluster(controllers=3, brokers=2).run(work)
