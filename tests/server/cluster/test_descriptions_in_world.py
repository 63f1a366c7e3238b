"""What operators are told of replicas and directories, by each broker for itself and for others."""

import pytest

from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.v1 import admin_pb2, log_dirs_pb2

pytestmark = pytest.mark.slow


async def described(cluster: Cluster, number: int) -> admin_pb2.PartitionDescription:
    """The only partition, as the node knows it."""
    request = admin_pb2.DescribeTopicsRequest(with_replica_states=True).SerializeToString()
    answer = await cluster.call(number, "AdminService/DescribeTopics", request)
    (topic,) = admin_pb2.DescribeTopicsResponse.FromString(answer).topics
    return topic.partitions[0]


async def directories(
    cluster: Cluster, number: int, **asked: object
) -> list[log_dirs_pb2.BrokerLogDirs]:
    """Of all brokers that are asked for, by way of this one."""
    request = log_dirs_pb2.DescribeLogDirsRequest()
    for name, value in asked.items():
        if isinstance(value, bool):
            setattr(request, name, value)
        else:
            getattr(request, name).extend(value)
    answer = await cluster.call(
        number, "LogDirService/DescribeLogDirs", request.SerializeToString()
    )
    return list(log_dirs_pb2.DescribeLogDirsResponse.FromString(answer).brokers)


def test_a_leader_tells_of_itself_and_how_far_behind_each_follower_is() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        await topic.produce(3)
        deaf = next(number for number in (1, 2, 3) if number != leader)
        cluster.world.fabric.cut(f"n{leader}", f"n{deaf}", FaultKind.PARTITION_ONE_WAY)
        for _ in range(2):
            await topic.try_produce(leader, timeout_ms=200)
        found = await described(cluster, leader)
        states = {each.broker_id: each for each in found.replica_states}
        assert sorted(states) == [1, 2, 3]
        assert states[leader].is_own
        assert (states[leader].lag, states[leader].log_end_offset) == (0, 5)
        assert states[leader].size_bytes == found.size_bytes > 0
        assert not states[deaf].is_own
        assert states[deaf].lag == 2
        assert states[deaf].caught_up_ago_ms >= 0
        assert list(found.eligible_replicas) == [1, 2, 3]

    three().run(work)


def test_a_follower_tells_of_itself_only_and_leaves_offsets_to_the_leader() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        await topic.produce(3)
        follower = next(number for number in (1, 2, 3) if number != leader)
        found = await described(cluster, follower)
        assert (found.high_watermark, found.size_bytes) == (-1, -1)
        (own,) = found.replica_states
        assert (own.broker_id, own.is_own, own.log_end_offset) == (follower, True, 3)
        assert own.lag == -1
        assert not own.HasField("failure")

    three().run(work)


def test_without_being_asked_nobody_tells_of_single_replicas() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        answer = await cluster.call(leader, "AdminService/DescribeTopics", b"")
        (found,) = admin_pb2.DescribeTopicsResponse.FromString(answer).topics
        assert list(found.partitions[0].replica_states) == []

    three().run(work)


def test_any_broker_tells_of_the_directories_of_all_and_a_dead_one_costs_its_part_only() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.led_by_other_than()
        await topic.produce(4)
        found = await directories(cluster, 2)
        assert [each.broker_id for each in found] == [1, 2, 3]
        for each in found:
            (directory,) = each.directories
            (replica,) = directory.replicas
            assert (replica.topic_name, replica.log_end_offset, replica.lag) == ("t", 4, 0)
            assert replica.partition.topic_id == topic.key.topic_id
            assert replica.size_bytes > 0
            assert directory.free_bytes > 0
        cluster.nodes[3].kill()
        await topic.led_by_other_than(3)
        alive, _, dead = await directories(cluster, 1)
        assert not alive.HasField("error")
        assert dead.HasField("error")
        assert list(dead.directories) == []

    three().run(work)


def test_one_broker_one_topic_or_the_directories_alone_may_be_asked_for() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await cluster.create(1, "other")
        (only,) = await directories(cluster, 1, broker_ids=[3])
        assert only.broker_id == 3
        bare = await directories(cluster, 1, directories_only=True)
        assert [len(each.directories[0].replicas) for each in bare] == [0, 0, 0]
        wanted = log_dirs_pb2.DescribeLogDirsRequest().topics.add(topic_id=topic.key.topic_id)
        chosen = await directories(cluster, 1, topics=[wanted])
        names = {
            replica.topic_name
            for each in chosen
            for directory in each.directories
            for replica in directory.replicas
        }
        assert names == {"t"}
        (unknown,) = await directories(cluster, 1, broker_ids=[9])
        assert unknown.error.happened == "no such broker is registered"

    three().run(work)


def test_a_description_of_the_cluster_counts_partitions_that_need_a_look() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        dead = next(number for number in (1, 2, 3) if number != leader)
        cluster.nodes[dead].kill()
        await topic.in_sync(*(number for number in (1, 2, 3) if number != dead))
        answer = await cluster.call(leader, "AdminService/DescribeCluster", b"")
        counts = admin_pb2.DescribeClusterResponse.FromString(answer).partitions
        assert (counts.topic_count, counts.partition_count) == (1, 1)
        assert (counts.under_replicated_count, counts.under_min_in_sync_count) == (1, 0)
        assert counts.offline_count == 0

    three().run(work)
