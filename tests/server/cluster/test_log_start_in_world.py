"""Where copies begin, on whole nodes: by their leader's word, and by no other's."""

import asyncio

import pytest

from tests.server.cluster.test_damage_in_world import kept, replica
from tests.server.support.cluster_in_world import Cluster
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.broker.log.marks.marks import Mark, MarkKind, encode_marks
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.v1 import topic_admin_pb2

pytestmark = pytest.mark.slow
DELETE = "TopicAdminService/DeleteRecords"
RECORDS = 20
BROKERS = (2, 3, 4)


def starts(topic: ReplicatedTopic) -> list[int]:
    """Where each copy begins."""
    return [replica(topic, number).log.log_start_offset for number in BROKERS]


def one_controller() -> Cluster:
    """And three brokers beside it: whoever of these dies, the controller decides."""
    return Cluster(controllers=1, brokers=3)


async def trim(topic: ReplicatedTopic, offset: int) -> None:
    """As an operator asks the leader for it."""
    request = topic_admin_pb2.DeleteRecordsRequest()
    point = request.points.add(before_offset=offset)
    point.partition.topic_id = topic.key.topic_id
    leader = topic.now().leader_id
    answer = await topic.cluster.call(leader, DELETE, request.SerializeToString())
    (result,) = topic_admin_pb2.DeleteRecordsResponse.FromString(answer).results
    assert not result.HasField("error"), result


def trimmed_as_before(topic: ReplicatedTopic, number: int, offset: int) -> None:
    """On the disk of a node that does not run: as an earlier version has trimmed its copy by its
    own clock, which told nobody's epoch."""
    medium = topic.cluster.world.machine(f"n{number}").medium("data")
    for name in ("marks", "starts"):
        inode = medium.find(name)
        assert isinstance(inode, Inode)
        inode.write(encode_marks([Mark(topic.key, MarkKind.LOG_START, offset)]))
        inode.cover(inode.made)


async def on_three(cluster: Cluster) -> ReplicatedTopic:
    topic = await ReplicatedTopic.create(cluster)
    await topic.produce(RECORDS)
    await topic.in_sync(*BROKERS)
    return topic


def test_followers_hear_of_a_trim_though_nobody_writes() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await on_three(cluster)
        await asyncio.sleep(1)
        await trim(topic, 12)
        await cluster.wait(lambda: starts(topic) == [12, 12, 12], seconds=1)
        epochs = {replica(topic, number).log.log_start_epoch for number in BROKERS}
        assert epochs == {topic.now().leader_epoch}

    one_controller().run(work)


@pytest.mark.parametrize("start", [7, RECORDS])
def test_a_copy_that_was_trimmed_by_its_own_clock_comes_into_sync_only_whole(start: int) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await on_three(cluster)
        victim, *others = sorted(BROKERS, key=lambda each: each == topic.now().leader_id)
        cluster.nodes[victim].kill()
        await topic.in_sync(*others)
        trimmed_as_before(topic, victim, start)
        await cluster.nodes[victim].restart()
        await topic.in_sync(*BROKERS)
        assert replica(topic, victim).log.log_start_offset == 0
        assert len(kept(topic, victim)) == 1, "what it had is set aside, not removed"
        for number in others:
            cluster.nodes[number].kill()
        await cluster.wait(lambda: topic.now().leader_id == victim)
        await topic.holds_all()

    one_controller().run(work)


def test_good_copies_outlive_a_leader_that_was_trimmed_by_its_own_clock() -> None:
    """It was the last that was in sync, and leads with nothing when it comes back."""

    async def work(cluster: Cluster) -> None:
        topic = await on_three(cluster)
        victim, *others = BROKERS
        for number in others:
            cluster.nodes[number].kill()
        await topic.in_sync(victim)
        cluster.nodes[victim].kill()
        trimmed_as_before(topic, victim, RECORDS)
        await asyncio.sleep(20)
        await cluster.nodes[victim].restart()
        await cluster.wait(lambda: topic.now().leader_id == victim)
        for number in others:
            await cluster.nodes[number].restart()
        await topic.in_sync(*BROKERS)
        await topic.produce(3)
        assert starts(topic) == [RECORDS, 0, 0], "nothing that is left is trimmed to its start"
        cluster.nodes[victim].kill()
        await topic.led_by_other_than(victim)
        await topic.holds_all()
        await cluster.nodes[victim].restart()
        await topic.in_sync(*BROKERS)
        assert starts(topic) == [0, 0, 0], "it is copied anew from those"

    one_controller().run(work)
