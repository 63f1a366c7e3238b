"""Damaged replicas on whole nodes: others take over, the bytes are kept, a copy is made anew."""

import asyncio

import pytest

from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.broker.log.names import directory_name
from tidelog.broker.replicas.directory import DAMAGED_INFIX, DAMAGED_KEPT_MAX
from tidelog.broker.replicas.replicas import Replica
from tidelog.chaos.sim.ports.medium import Directory, Inode
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow
BAD = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="read", happened="a byte is another one")


def replica(topic: ReplicatedTopic, number: int) -> Replica:
    """What the broker holds."""
    node = topic.cluster.nodes[number].node
    assert node is not None
    assert node._broker is not None
    found = node._broker.replicas.get(topic.key.topic_id, topic.key.partition)
    assert found is not None
    return found


def damage(topic: ReplicatedTopic, number: int) -> None:
    """As the scrubber tells it."""
    replica(topic, number).directory.owner.fail(topic.key, BAD)


def kept(topic: ReplicatedTopic, number: int) -> list[str]:
    """What was set aside on the broker's disk."""
    names = topic.cluster.world.machine(f"n{number}").medium("data").root.seen
    prefix = directory_name(topic.key) + DAMAGED_INFIX
    return sorted(name for name in names if name.startswith(prefix))


async def until_kept(topic: ReplicatedTopic, number: int, count: int) -> None:
    """Wait until so many were set aside."""
    await topic.cluster.wait(lambda: len(kept(topic, number)) == count)


def flip(topic: ReplicatedTopic, number: int, byte_position: int) -> None:
    """Let a byte of the first segment rot on the disk."""
    root = topic.cluster.world.machine(f"n{number}").medium("data").root
    directory = root.seen[directory_name(topic.key)]
    assert isinstance(directory, Directory)
    name = min(each for each in directory.seen if each.endswith(".log"))
    inode = directory.seen[name]
    assert isinstance(inode, Inode)
    before = inode.seen[byte_position]
    assert inode.replace_byte(byte_position, before, before ^ 0x10)


def test_a_damaged_leader_lets_another_lead_and_is_copied_anew() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(20)
        old = topic.now().leader_id
        damage(topic, old)
        await topic.led_by_other_than(old)
        await topic.produce(20)
        await cluster.wait(lambda: kept(topic, old) != [])
        await topic.in_sync(1, 2, 3)
        await cluster.wait(lambda: replica(topic, old).log.failure is None)
        await topic.produce(5)
        await topic.holds_all()
        await cluster.wait(lambda: len(dict.fromkeys(topic.ends())) == 1)
        assert not topic.now().is_recovered_unclean
        assert kept(topic, old) == [f"{directory_name(topic.key)}{DAMAGED_INFIX}1"]

    three().run(work)


def test_a_damaged_follower_leaves_the_set_and_comes_back_into_it() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(20)
        leader = topic.now().leader_id
        follower = next(each for each in topic.now().replicas if each != leader)
        damage(topic, follower)
        await cluster.wait(lambda: kept(topic, follower) != [])
        await topic.in_sync(1, 2, 3)
        assert topic.now().leader_id == leader
        await topic.produce(5)
        cluster.nodes[leader].kill()
        await topic.led_by_other_than(leader)
        await topic.holds_all()

    three().run(work)


def test_a_byte_that_rots_below_the_watermark_of_the_leader_costs_no_record() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(20)
        old = topic.now().leader_id
        flip(topic, old, 100)
        cluster.nodes[old].kill()
        await topic.led_by_other_than(old)
        await cluster.nodes[old].restart()
        await topic.in_sync(1, 2, 3)
        await topic.produce(5)
        cluster.nodes[topic.now().leader_id].kill()
        await topic.led_by_other_than(topic.now().leader_id)
        await topic.holds_all()
        assert len(kept(topic, old)) == 1, "it was found at the start"

    three().run(work)


def test_clients_are_told_to_come_back_until_another_leads() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        damage(topic, old)
        await asyncio.sleep(0.05)
        assert await topic.try_produce(old) is ErrorCode.NOT_LEADER
        with pytest.raises(AssertionError, match="NOT_LEADER"):
            await topic.read(old)
        await topic.produce(1)
        await topic.holds_all()

    three().run(work)


def test_a_disk_that_fails_under_a_leader_costs_no_record() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        cluster.world.machine(f"n{old}").medium("data").is_read_only = True
        await topic.try_produce(old)
        await topic.led_by_other_than(old)
        await topic.produce(10)
        await topic.holds_all()

    three().run(work)


def test_the_last_replica_that_holds_everything_stays_as_it_is() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, settings={"min.insync.replicas": "1"})
        await topic.produce(5)
        leader = topic.now().leader_id
        for number in topic.now().replicas:
            if number != leader:
                cluster.nodes[number].kill()
        await topic.in_sync(leader)
        await topic.produce(5)
        damage(topic, leader)
        await asyncio.sleep(15)
        assert topic.now().leader_id == leader
        assert kept(topic, leader) == []
        assert await topic.try_produce(leader) is ErrorCode.STORAGE_CORRUPT

    Cluster(controllers=3, brokers=3).run(work)


def test_an_only_replica_stays_stopped() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1)
        await topic.produce(5)
        leader = topic.now().leader_id
        damage(topic, leader)
        await asyncio.sleep(15)
        assert kept(topic, leader) == []
        assert replica(topic, leader).log.failure is not None

    three().run(work)


def test_a_disk_that_damages_a_replica_again_and_again_is_not_filled_with_it() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        leader = topic.now().leader_id
        follower = next(each for each in topic.now().replicas if each != leader)
        for count in range(1, DAMAGED_KEPT_MAX + 1):
            damage(topic, follower)
            await until_kept(topic, follower, count)
            await topic.in_sync(1, 2, 3)
            await topic.produce(1)
        damage(topic, follower)
        await asyncio.sleep(30)
        assert len(kept(topic, follower)) == DAMAGED_KEPT_MAX
        assert replica(topic, follower).log.failure is not None
        await topic.produce(5)
        await topic.holds_all()

    three().run(work)


def test_damaged_files_are_no_partition_at_the_next_start() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        damage(topic, old)
        await cluster.wait(lambda: kept(topic, old) != [])
        await topic.in_sync(1, 2, 3)
        node = cluster.nodes[old]
        node.kill()
        await node.restart()
        await topic.in_sync(1, 2, 3)
        await topic.holds_all()
        assert len(kept(topic, old)) == 1
        assert replica(topic, old).log.failure is None

    three().run(work)
