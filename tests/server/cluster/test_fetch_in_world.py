"""Reading beside leader changes on whole nodes: parked streams, followers, who is sent where."""

import asyncio

import pytest

from tests.broker.support.node_in_world import position, values_of
from tests.server.cluster.test_replicas_in_world import isolate
from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.ports import Stream
from tidelog.v1 import fetch_pb2, metadata_pb2
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow

CREDIT = 1_000_000


def three_racks() -> Cluster:
    """Node n stands in rack rn."""
    cluster = three()
    for number, node in cluster.nodes.items():
        node.settings = {**node.settings, "rack": f"r{number}"}
    return cluster


class Reader:
    """One fetch stream of the topic's partition at one broker."""

    def __init__(self, topic: ReplicatedTopic, number: int, rack: str = "") -> None:
        address = topic.cluster.nodes[number].address
        self.topic = topic
        self.rack = rack
        self.epoch = 0
        self.stream: Stream = topic.cluster.network.stream(
            address, "/tidelog.v1.FetchService/FetchStream"
        )

    async def name(self, offset: int, *, leader_epoch: int = -1, credit: int = CREDIT) -> None:
        """Read from here on."""
        self.epoch += 1
        position = fetch_pb2.FetchPosition(
            topic_id=self.topic.key.topic_id,
            leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=-1,
        )
        request = fetch_pb2.FetchStreamRequest(
            positions=[position],
            credit_bytes=credit,
            session_epoch=self.epoch,
            client_rack=self.rack,
        )
        await self.stream.send(request.SerializeToString())

    async def answer(self) -> fetch_pb2.PartitionBatches:
        """The next one, waited for."""
        async with asyncio.timeout(60):
            message = await self.stream.receive()
        assert message is not None
        (part,) = fetch_pb2.FetchStreamResponse.FromString(message).partitions
        return part


@pytest.mark.parametrize("credit", [CREDIT, 0])
def test_a_parked_reader_of_a_leader_that_is_none_any_more_is_sent_to_the_new_one(
    credit: int,
) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        reader = Reader(topic, old)
        await reader.name(5, leader_epoch=topic.now().leader_epoch, credit=credit)
        parked = asyncio.ensure_future(reader.answer())
        isolate(cluster, old)
        new = await topic.led_by_other_than(old)
        assert not parked.done(), "it does not know yet"
        cluster.world.heal()
        answer = await parked
        assert answer.error.code == ErrorCode.NOT_LEADER.value
        assert (answer.leader_id, answer.leader_epoch) == (new, topic.now().leader_epoch)
        follower = Reader(topic, answer.leader_id)
        await follower.name(5, leader_epoch=answer.leader_epoch)
        await topic.produce(1)
        assert [place for place, _ in values_of((await follower.answer()).batches)] == [5]

    three_racks().run(work)


def test_a_reader_is_sent_to_the_replica_of_its_rack_and_parked_there_gets_what_is_committed() -> (
    None
):
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.in_sync(1, 2, 3)
        await topic.produce(3)
        now = topic.now()
        near = next(each for each in (1, 2, 3) if each != now.leader_id)
        first = Reader(topic, now.leader_id, f"r{near}")
        await first.name(0, leader_epoch=now.leader_epoch)
        told = await first.answer()
        assert (told.preferred_replica, told.batches) == (near, b"")
        reader = Reader(topic, near, f"r{near}")
        await reader.name(0, leader_epoch=told.leader_epoch)
        seen: list[int] = []
        for count in (3, 4, 5, 6):
            if count > 3:
                await topic.produce(1)
            while len(seen) < count:
                part = await reader.answer()
                assert not part.HasField("error"), part.error
                seen += [place for place, _ in values_of(part.batches)]
                assert seen[-1] < part.high_watermark
        assert seen == list(range(6))

    three_racks().run(work)


def test_a_follower_serves_nobody_who_does_not_say_where_he_is_nor_when_it_is_out_of_sync() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.in_sync(1, 2, 3)
        await topic.produce(3)
        leader = topic.now().leader_id
        near = next(each for each in (1, 2, 3) if each != leader)
        stranger = Reader(topic, near)
        await stranger.name(0)
        refused = await stranger.answer()
        assert refused.error.code == ErrorCode.NOT_LEADER.value
        assert refused.leader_id == leader
        neighbour = Reader(topic, near, f"r{near}")
        await neighbour.name(3)
        parked = asyncio.ensure_future(neighbour.answer())
        isolate(cluster, near)
        await topic.in_sync(*(each for each in (1, 2, 3) if each != near))
        await topic.produce(2)
        # It knows of nothing new, nor whether it still follows whom it takes for the leader.
        answer = await parked
        assert answer.error.code == ErrorCode.UNAVAILABLE.value
        assert not answer.batches
        cluster.world.heal()

    three_racks().run(work)


def test_the_end_that_a_new_leader_tells_is_never_below_what_was_acknowledged() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.in_sync(1, 2, 3)
        await topic.produce(10)
        old = topic.now().leader_id
        cluster.nodes[old].kill()
        new = await topic.led_by_other_than(old)
        query = metadata_pb2.OffsetQuery(
            topic_id=topic.key.topic_id, leader_epoch=-1, spec=metadata_pb2.OFFSET_SPEC_LATEST
        )
        request = metadata_pb2.ListOffsetsRequest(queries=[query]).SerializeToString()
        for _ in range(500):
            data = await cluster.call(new, "MetadataService/ListOffsets", request)
            (answer,) = metadata_pb2.ListOffsetsResponse.FromString(data).answers
            if not answer.HasField("error"):
                assert answer.offset == 10, answer
                return
            assert answer.error.retriable, answer.error
            await asyncio.sleep(0.01)
        raise AssertionError("no end was told")

    three_racks().run(work)


def test_an_old_leader_never_calls_out_of_range_what_was_acknowledged_elsewhere() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        isolate(cluster, old)
        await topic.led_by_other_than(old)
        await topic.produce(3)
        end = max(topic.acknowledged) + 1
        codes = [await refusal(topic, old, end)]
        cluster.world.heal()
        while codes[-1] is not ErrorCode.NOT_LEADER:
            codes.append(await refusal(topic, old, end))
            await asyncio.sleep(0.01)
        assert set(codes) == {ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER}

    three_racks().run(work)


def test_a_leader_calls_out_of_range_what_nobody_has_written() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        answered = await refusal(topic, topic.now().leader_id, 99)
        assert answered is ErrorCode.OFFSET_OUT_OF_RANGE

    three_racks().run(work)


async def refusal(topic: ReplicatedTopic, number: int, offset: int) -> ErrorCode | None:
    """What a reader without an epoch is refused with at this broker."""
    request = fetch_pb2.FetchRequest(positions=[position(topic.key.topic_id, 0, offset)])
    data = await topic.cluster.call(number, "FetchService/Fetch", request.SerializeToString())
    parts = fetch_pb2.FetchResponse.FromString(data).partitions
    return ErrorCode(parts[0].error.code) if parts and parts[0].HasField("error") else None
