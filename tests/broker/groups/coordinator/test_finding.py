"""Where the coordinator of a group is, and how its topic comes to be."""

import asyncio

import pytest

from tests.broker.support.group_world import Groups, Member
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.v1 import (
    admin_pb2,
    common_pb2,
    coordinator_pb2,
    errors_pb2,
    groups_pb2,
    metadata_admin_pb2,
    produce_pb2,
    topic_admin_pb2,
)
from tidelog.wire.batch import encode_batch, read_header, route_sum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId
from tidelog.wire.partitioner import coordinator_partition

KEYS = ("alpha", "beta", "gamma")


async def find(cluster: Cluster, number: int, *keys: str) -> list[coordinator_pb2.CoordinatorPlace]:
    """As a client asks this node."""
    request = coordinator_pb2.FindCoordinatorsRequest(
        kind=coordinator_pb2.COORDINATOR_KIND_GROUP, keys=keys
    )
    answer = await cluster.call(
        number, "CoordinatorService/FindCoordinators", request.SerializeToString()
    )
    return list(coordinator_pb2.FindCoordinatorsResponse.FromString(answer).coordinators)


async def groups_topic(cluster: Cluster, number: int) -> admin_pb2.TopicDescription:
    """As the node describes it."""
    request = admin_pb2.DescribeTopicsRequest(topic_names=["__groups"])
    answer = await cluster.call(number, "AdminService/DescribeTopics", request.SerializeToString())
    (topic,) = admin_pb2.DescribeTopicsResponse.FromString(answer).topics
    return topic


@pytest.mark.slow
def test_the_topic_is_made_at_first_use_and_every_broker_names_the_same_coordinator() -> None:
    async def work(cluster: Cluster) -> None:
        assert await cluster.topics(1) == []
        first = await find(cluster, 1, *KEYS)
        assert [each.key for each in first] == list(KEYS)
        assert not any(each.HasField("error") for each in first), first
        topic = await groups_topic(cluster, 1)
        assert topic.is_internal
        assert (len(topic.partitions), topic.replication_factor) == (16, 3)
        for place in first:
            partition = topic.partitions[coordinator_partition(place.key, 16)]
            assert place.broker_id == partition.leader_id
            assert place.address == cluster.nodes[place.broker_id].address
        for number in (2, 3):
            assert await find(cluster, number, *KEYS) == first
        assert await cluster.topics(1) == [], "it is hidden from lists"
        asked = topic_admin_pb2.ListTopicsRequest(include_internal=True).SerializeToString()
        answer = await cluster.call(1, "TopicAdminService/ListTopics", asked)
        (listed,) = topic_admin_pb2.ListTopicsResponse.FromString(answer).topics
        assert (listed.name, listed.is_internal) == ("__groups", True)

    three(brokers_expected=3).run(work)


async def set_group_version(cluster: Cluster, level: int) -> None:
    """As an operator does."""
    request = metadata_admin_pb2.FinaliseFeaturesRequest(allow_downgrade=True)
    request.levels.add(name="group.version", level=level)
    method = "MetadataAdminService/FinaliseFeatures"
    await cluster.call(1, method, request.SerializeToString())


@pytest.mark.slow
def test_groups_are_off_while_their_feature_is() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 1)
        await set_group_version(cluster, 0)
        with pytest.raises(TidelogError) as caught:
            await find(cluster, 1, "g")
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert "group.version=1" in caught.value.hint
        await set_group_version(cluster, 1)
        member = Member(groups, "g", "m", ["t"])
        await member.join()
        await set_group_version(cluster, 0)
        request = groups_pb2.GroupHeartbeatRequest(
            group="g", member_id="m", member_epoch=member.epoch, heartbeat_sequence=2
        ).SerializeToString()
        data = await cluster.call(1, "GroupService/GroupHeartbeat", request)
        told = groups_pb2.GroupHeartbeatResponse.FromString(data)
        assert int(told.error.code) == ErrorCode.UNSUPPORTED_VERSION

    Cluster(controllers=1, roles="controller,broker").run(work)


def test_with_too_few_living_brokers_the_missing_ones_are_named() -> None:
    async def work(cluster: Cluster) -> None:
        (place,) = await find(cluster, 1, "alpha")
        assert place.broker_id == -1
        assert place.address == ""
        assert place.error.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
        assert place.error.retriable
        assert place.error.retry_after_ms > 0
        assert "it needs 3 brokers, 2 take replicas; no other is registered" in place.error.happened
        assert await cluster.topics(1) == []

    Cluster(controllers=1, brokers=1, roles="controller,broker", brokers_expected=3).run(work)


def test_a_group_without_a_leading_broker_is_told_who_has_to_come_back() -> None:
    async def work(cluster: Cluster) -> None:
        names = [f"group-{number}" for number in range(20)]
        places = await find(cluster, 1, *names)
        name = next(each.key for each in places if each.broker_id == 2)
        cluster.nodes[2].kill()
        found = places[0]
        for _ in range(100):
            (found,) = await find(cluster, 1, name)
            if found.HasField("error"):
                break
            await asyncio.sleep(0.1)
        assert found.error.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
        assert "these are missing: 2" in found.error.happened

    Cluster(controllers=1, brokers=1, roles="controller,broker").run(work)


def test_clients_neither_write_nor_trim_nor_create_it_otherwise() -> None:
    async def work(cluster: Cluster) -> None:
        await find(cluster, 1, "alpha")
        topic_id = (await groups_topic(cluster, 1)).topic_id
        batch = encode_batch([(1, b"k", b"v", ())])
        request = produce_pb2.ProduceRequest(
            acks=produce_pb2.ACKS_ALL,
            batches=[
                produce_pb2.PartitionBatch(
                    topic_id=topic_id,
                    leader_epoch=-1,
                    batch=batch,
                    route_sum=route_sum(TopicId(topic_id), 0, read_header(batch).crc),
                )
            ],
        )
        answer = await cluster.call(1, "ProduceService/Produce", request.SerializeToString())
        (produced,) = produce_pb2.ProduceResponse.FromString(answer).acknowledgements
        assert produced.error.code == errors_pb2.ERROR_CODE_INVALID_ARGUMENT
        assert "the cluster itself uses topic __groups" in produced.error.happened
        trim = topic_admin_pb2.DeleteRecordsRequest(
            points=[
                topic_admin_pb2.TrimPoint(
                    partition=common_pb2.TopicPartition(topic_id=topic_id), before_offset=-1
                )
            ]
        )
        answer = await cluster.call(1, "TopicAdminService/DeleteRecords", trim.SerializeToString())
        (trimmed,) = topic_admin_pb2.DeleteRecordsResponse.FromString(answer).results
        assert trimmed.error.code == errors_pb2.ERROR_CODE_INVALID_ARGUMENT

    Cluster(controllers=1, roles="controller,broker").run(work)
