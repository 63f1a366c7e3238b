"""Logs that could not be read, on whole nodes: others lead meanwhile, and they come back."""

import asyncio

import pytest

from tests.server.cluster.test_damage_in_world import kept, replica
from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.replicas_in_world import ReplicatedTopic
from tests.server.support.watched_disk import UNREAD, Sight
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.replication.tasks.fetch_lane import leader_lacks
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import BrokerId, LeaderEpoch, Offset

pytestmark = pytest.mark.slow


def replicas(cluster: Cluster, number: int) -> Replicas:
    """What the broker holds."""
    node = cluster.nodes[number].node
    assert node is not None
    assert node._broker is not None
    return node._broker.replicas


def stop(topic: ReplicatedTopic, number: int) -> None:
    """As a job tells it that cannot read a segment again and again."""
    replica(topic, number).directory.owner.fail(topic.key, UNREAD)


async def until_served(topic: ReplicatedTopic, number: int) -> None:
    """Wait until the broker's copy is in order."""
    held = replicas(topic.cluster, number)

    def is_served() -> bool:
        found = held.get(topic.key.topic_id, topic.key.partition)
        return found is not None and found.log.failure is None

    await topic.cluster.wait(is_served)


def test_another_leads_while_the_log_of_the_leader_cannot_be_read_and_it_comes_back() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(20)
        old = topic.now().leader_id
        stop(topic, old)
        await topic.led_by_other_than(old)
        await topic.produce(20)
        await topic.in_sync(1, 2, 3)
        assert replica(topic, old).log.failure is None
        await topic.produce(5)
        await topic.holds_all()
        await cluster.wait(lambda: len(dict.fromkeys(topic.ends())) == 1)
        assert kept(topic, old) == [], "no file is set aside"
        assert not topic.now().is_recovered_unclean

    three().run(work)


def test_what_cannot_be_read_still_counts_where_too_few_are_left() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        others = [number for number in (1, 2, 3) if number != old]
        cluster.nodes[others[1]].kill()
        await topic.in_sync(old, others[0])
        await topic.produce(5)
        stop(topic, old)
        await cluster.wait(lambda: topic.now().leader_id == others[0])
        assert topic.now().eligible_replicas == (old,), "it holds all that was acknowledged"
        await topic.produce(5)
        await topic.holds_all()

    three().run(work)


def test_an_only_replica_is_opened_again_with_all_that_it_had() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1)
        await topic.produce(20)
        leader = topic.now().leader_id
        held = replica(topic, leader)
        await held.directory.owner.trim(held.log, Offset(3))
        stop(topic, leader)
        await asyncio.sleep(0.1)
        assert await topic.try_produce(leader) is ErrorCode.STORAGE_FAILED
        await until_served(topic, leader)
        log = replica(topic, leader).log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 20, 20)
        assert log.producers.producers == held.log.producers.producers
        for offset in range(3):
            del topic.acknowledged[offset]
        await topic.produce(5)
        read = await topic.read(leader, offset=3)
        assert read == topic.acknowledged

    three().run(work)


def test_a_log_that_cannot_be_read_at_a_start_is_led_by_others_until_it_can() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(20)
        old = topic.now().leader_id
        sight = Sight().of(cluster, old)
        cluster.nodes[old].kill()
        await topic.led_by_other_than(old)
        sight.is_blind = True
        await cluster.nodes[old].restart()
        await topic.produce(5)
        await asyncio.sleep(20)
        assert replica(topic, old).log.failure is not None
        (failure,) = replicas(cluster, old).failures()
        assert (failure.key, failure.topic_name, failure.is_led) == (topic.key, "t", False)
        assert failure.code is ErrorCode.STORAGE_FAILED
        assert failure.happened == UNREAD.happened
        assert failure.directory
        assert sight.tries <= 7, "the waits grow"
        sight.is_blind = False
        await topic.in_sync(1, 2, 3)
        assert replicas(cluster, old).failures() == ()
        await topic.produce(5)
        await topic.holds_all()
        assert kept(topic, old) == []

    three().run(work)


def test_the_only_one_in_sync_leads_on_once_its_log_can_be_read() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, settings={"min.insync.replicas": "1"})
        await topic.produce(5)
        leader = topic.now().leader_id
        others = [number for number in topic.now().replicas if number != leader]
        for number in others:
            cluster.nodes[number].kill()
        await topic.in_sync(leader)
        await topic.produce(5)
        sight = Sight().of(cluster, leader)
        cluster.nodes[leader].kill()
        sight.is_blind = True
        await cluster.nodes[leader].restart()
        await cluster.wait(lambda: replicas(cluster, leader).irreplaceable != {})
        (failure,) = replicas(cluster, leader).failures()
        assert failure.is_led
        assert "no other replica" in failure.happened
        assert failure.hint
        assert topic.now().leader_id == leader
        assert await topic.try_produce(leader) is ErrorCode.STORAGE_FAILED
        sight.is_blind = False
        await until_served(topic, leader)
        await topic.produce(5)
        for number in others:
            await cluster.nodes[number].restart()
        await topic.in_sync(4, 5, 6)
        await topic.produce(5)
        await topic.holds_all()

    Cluster(controllers=3, brokers=3).run(work)


def test_a_follower_whose_leader_lacks_what_is_committed_is_let_be() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        leader = topic.now().leader_id
        follower = next(each for each in topic.now().replicas if each != leader)
        owner = replica(topic, follower).directory.owner
        owner.fail(topic.key, UNREAD, kept_apart_at=topic.now().leader_epoch)
        await asyncio.sleep(40)
        assert replica(topic, follower).log.failure is not None
        assert follower not in topic.now().in_sync_replicas, "its leader goes on without it"
        assert kept(topic, follower) == []
        await topic.produce(5)
        await topic.holds_all()

    three().run(work)


def test_a_follower_that_one_leader_lacked_records_of_goes_on_with_the_next_leader() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        leader = topic.now().leader_id
        kept_apart, next_one = [each for each in topic.now().replicas if each != leader]
        owner = replica(topic, kept_apart).directory.owner
        owner.fail(topic.key, UNREAD, kept_apart_at=topic.now().leader_epoch)
        await topic.in_sync(leader, next_one)
        await topic.produce(5)
        cluster.nodes[leader].kill()
        assert await topic.led_by_other_than(leader) == next_one
        await topic.in_sync(next_one, kept_apart)
        await topic.produce(5)
        await topic.holds_all()
        assert kept(topic, kept_apart) == []

    three().run(work)


def test_what_was_judged_of_a_leader_that_leads_no_more_stops_nothing() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        now = topic.now()
        follower = next(each for each in now.replicas if each != now.leader_id)
        owner = replica(topic, follower).directory.owner
        owner.fail(topic.key, UNREAD, kept_apart_at=LeaderEpoch(now.leader_epoch - 1))
        await owner.turn()
        assert replica(topic, follower).log.failure is None

    three().run(work)


def test_a_copy_that_keeps_away_from_its_leader_says_which_broker_lacks_what() -> None:
    error = leader_lacks(
        "orders:2", BrokerId(3), BrokerId(1), parted_at=Offset(29), high_watermark=Offset(44)
    )
    assert "broker 3, which leads, lacks committed records that broker 1 has" in error.happened
    assert "at offset 29, below the high watermark 44 of broker 1" in error.happened
    assert error.hint.startswith("Stop broker 3:")
    arguments = error.hint.partition("`tidelog ")[2].partition("`")[0].split()
    assert arguments == [
        *("partition", "elect-leaders", "orders:2"),
        *("--unclean", "--broker", "1", "--execute"),
    ]


def test_a_topic_that_is_deleted_while_its_log_is_opened_leaves_nothing() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1)
        await topic.produce(5)
        leader = topic.now().leader_id
        sight = Sight().of(cluster, leader)
        cluster.nodes[leader].kill()
        await cluster.nodes[leader].restart()
        await until_served(topic, leader)
        sight.read_seconds = 3
        stop(topic, leader)
        held = replicas(cluster, leader)
        await cluster.wait(lambda: held.get(topic.key.topic_id, topic.key.partition) is None)
        await topic.delete()
        await cluster.wait(lambda: not topic.has_files(leader))
        assert held.failures() == ()

    three().run(work)


async def left_behind(cluster: Cluster) -> ReplicatedTopic:
    """A topic on brokers 1 and 2, of which broker 3 has files: it was away when it was moved."""
    topic = await ReplicatedTopic.create(cluster)
    await topic.produce(10)
    await cluster.wait(lambda: len(dict.fromkeys(topic.ends())) == 1)
    cluster.nodes[3].kill()
    await topic.led_by_other_than(3)
    await topic.produce(5)
    await topic.move(1, 2)
    await cluster.wait(lambda: topic.now().replicas == (1, 2))
    await cluster.nodes[3].restart()
    await topic.produce(5)
    assert topic.has_files(3), "an orphan is kept"
    return topic


def test_a_replica_that_is_placed_again_where_its_files_were_left_takes_them_up() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await left_behind(cluster)
        await topic.move(1, 2, 3)
        await topic.in_sync(1, 2, 3)
        assert replicas(cluster, 3).failures() == ()
        await topic.produce(5)
        await topic.holds_all()
        await cluster.wait(lambda: len(dict.fromkeys(topic.ends())) == 1)
        assert kept(topic, 3) == []
        await topic.move(3)
        await cluster.wait(lambda: topic.now().replicas == (3,))
        await topic.holds_all()

    three().run(work)


@pytest.mark.parametrize("seconds", [0.01, 0.1, 0.5, 1.0])
def test_a_node_that_dies_while_it_takes_left_files_up_loses_none(seconds: float) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await left_behind(cluster)
        await topic.move(1, 2, 3)
        await asyncio.sleep(seconds)
        cluster.nodes[3].kill()
        await topic.produce(5)
        await cluster.nodes[3].restart()
        await topic.in_sync(1, 2, 3)
        await topic.produce(5)
        await topic.holds_all()
        await cluster.wait(lambda: len(dict.fromkeys(topic.ends())) == 1)

    three().run(work)


def test_left_files_that_cannot_be_read_are_tried_again() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        sight = Sight().of(cluster, 3)
        await topic.produce(10)
        cluster.nodes[3].kill()
        await topic.led_by_other_than(3)
        await topic.move(1, 2)
        await cluster.wait(lambda: topic.now().replicas == (1, 2))
        await cluster.nodes[3].restart()
        sight.is_blind = True
        await topic.move(1, 2, 3)
        await cluster.wait(lambda: sight.tries > 1)
        (failure,) = replicas(cluster, 3).failures()
        assert failure.happened == UNREAD.happened
        sight.is_blind = False
        await topic.in_sync(1, 2, 3)
        await topic.produce(5)
        await topic.holds_all()

    three().run(work)
