"""Plain records at any broker of a cluster: each gets to the leader of its partition."""

import asyncio

import pytest

from tests.server.support.cluster_in_world import Cluster, three
from tidelog.v1 import metadata_pb2, records_pb2
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitioner import partition_for_key

pytestmark = pytest.mark.slow

PARTITIONS = 12
RECORDS = 63


async def produce(
    cluster: Cluster, number: int, keys: list[bytes | None]
) -> list[records_pb2.RecordPlace]:
    """Where the broker says that records with these keys went."""
    request = records_pb2.ProduceRecordsRequest(topic="t", timeout_ms=2_000)
    for place, key in enumerate(keys):
        request.records.add(key=key, value=b"%d" % place)
    answer = await cluster.call(
        number, "RecordsService/ProduceRecords", request.SerializeToString()
    )
    return list(records_pb2.ProduceRecordsResponse.FromString(answer).places)


async def known_everywhere(cluster: Cluster) -> None:
    """A leader that has not heard of a topic yet refuses what is passed on to it, retriable."""
    for number in cluster.nodes:
        for _ in range(1_000):
            if len(await leaders(cluster, number)) == PARTITIONS:
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError(f"node {number} never heard of the topic")


async def leaders(cluster: Cluster, number: int) -> dict[int, int]:
    """Partition → broker, as the node sees it."""
    request = metadata_pb2.GetMetadataRequest(topic_names=["t"])
    answer = await cluster.call(number, "MetadataService/GetMetadata", request.SerializeToString())
    (topic,) = metadata_pb2.GetMetadataResponse.FromString(answer).topics
    return {each.partition: each.leader_id for each in topic.partitions}


def cluster_of_three() -> Cluster:
    return three(brokers_expected=3)


def test_keyed_records_are_passed_on_to_the_leaders_of_their_partitions() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create(1, "t", PARTITIONS)
        keys: list[bytes | None] = [b"key %d" % number for number in range(RECORDS)]
        await known_everywhere(cluster)
        for number in cluster.nodes:
            places = await produce(cluster, number, keys)
            assert [each.error.code for each in places if each.HasField("error")] == []
            told = [each.partition for each in places]
            assert told == [partition_for_key(key, PARTITIONS) for key in keys if key is not None]
            assert len({(each.partition, each.offset) for each in places}) == RECORDS

    cluster_of_three().run(work)


def test_records_without_a_key_stay_with_the_broker_that_is_asked() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create(1, "t", PARTITIONS)
        for number in cluster.nodes:
            led = await leaders(cluster, number)
            for _ in range(8):
                (place,) = await produce(cluster, number, [None])
                assert not place.HasField("error")
                assert led[place.partition] == number

    cluster_of_three().run(work)


def test_what_a_dead_leader_was_to_get_is_told_and_the_rest_is_stored() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create(1, "t", PARTITIONS)
        led = await leaders(cluster, 1)
        keys: list[bytes | None] = [b"key %d" % number for number in range(RECORDS)]
        cluster.nodes[3].kill()
        places = await produce(cluster, 1, keys)
        failed = {each.partition for each in places if each.HasField("error")}
        assert failed
        assert failed <= {each for each, leader in led.items() if leader == 3}
        for each in places:
            if each.HasField("error"):
                # A connection that is refused stored nothing; silence leaves it open.
                assert each.error.code in (
                    ErrorCode.UNAVAILABLE.value,
                    ErrorCode.DEADLINE_EXCEEDED.value,
                )
                assert each.error.retriable

    cluster_of_three().run(work)
