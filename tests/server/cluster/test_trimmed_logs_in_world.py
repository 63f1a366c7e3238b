"""Replicas that come back to a log that was trimmed meanwhile: what is acknowledged is there."""

import pytest

from tests.broker.support.node_in_world import partition_batch
from tests.server.support.cluster_in_world import Cluster
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.v1 import produce_pb2, topic_admin_pb2
from tidelog.wire.batch import encode_batch
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow

PRODUCER = 7


async def send(topic: ReplicatedTopic, number: int, sequence: int) -> ErrorCode | None:
    """One record of an idempotent producer at this broker; None: acknowledged."""
    batch = encode_batch(
        [(1, None, b"numbered %d" % sequence, ())],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )
    request = produce_pb2.ProduceRequest(
        batches=[partition_batch(topic.key.topic_id, 0, batch)],
        acks=produce_pb2.ACKS_ALL,
        timeout_ms=1_000,
    )
    try:
        answer = await topic.cluster.network.call(
            topic.cluster.nodes[number].address,
            "/tidelog.v1.ProduceService/Produce",
            request.SerializeToString(),
            timeout_ms=2_000,
        )
    except TidelogError as error:
        return error.code
    (result,) = produce_pb2.ProduceResponse.FromString(answer).acknowledgements
    return ErrorCode(result.error.code) if result.HasField("error") else None


async def trim(topic: ReplicatedTopic, number: int, offset: int) -> None:
    """Delete the records below the offset, at this broker."""
    request = topic_admin_pb2.DeleteRecordsRequest()
    point = request.points.add(before_offset=offset)
    point.partition.topic_id = topic.key.topic_id
    answer = await topic.cluster.call(
        number, "TopicAdminService/DeleteRecords", request.SerializeToString()
    )
    (result,) = topic_admin_pb2.DeleteRecordsResponse.FromString(answer).results
    assert not result.HasField("error"), result


def test_what_only_a_deposed_leader_stored_is_not_acknowledged_as_sent_again() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        here = topic.now().replicas
        await topic.in_sync(*here)
        await topic.produce(5)
        old = topic.now().leader_id
        # Ids are handed out, and all brokers know of it.
        await cluster.call(old, "ProducerIdService/AllocateProducerId", b"")
        await topic.produce(1)
        for number in cluster.nodes:
            if number != old:
                cluster.world.fabric.cut(f"n{old}", f"n{number}", FaultKind.PARTITION)
                cluster.world.fabric.cut(f"n{number}", f"n{old}", FaultKind.PARTITION)
        # The producer is on the old leader's side: it hears of no other, and has no answer.
        for sequence in range(4):
            assert await send(topic, old, sequence) is not None
        new = await topic.led_by_other_than(old)
        await topic.produce(6)
        await trim(topic, new, 7)
        cluster.world.heal()
        await topic.in_sync(*here)
        cluster.nodes[new].kill()
        await cluster.wait(lambda: topic.now().leader_id == old)
        await topic.led_by_other_than()
        code = await send(topic, old, 0)
        found = await topic.read(old, 7)
        assert code is None
        assert b"numbered 0" in found.values(), f"acknowledged, and nowhere: {found}"

    Cluster(controllers=3, brokers=3).run(work)


def test_an_emptied_replica_in_sync_holds_all_since_an_unclean_election() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, settings={"min.insync.replicas": "1"})
        here = topic.now().replicas
        await topic.in_sync(*here)
        await topic.produce(2)
        leader = topic.now().leader_id
        behind, gone = (each for each in here if each != leader)
        (new,) = (each for each in range(4, 8) if each not in here)
        cluster.nodes[behind].kill()
        await topic.in_sync(leader, gone)
        await topic.produce(5)
        await trim(topic, leader, 7)
        await topic.move(leader, new, behind)
        await topic.in_sync(leader, new)
        await cluster.wait(lambda: gone not in topic.now().replicas)
        cluster.nodes[leader].kill()
        cluster.nodes[new].kill()
        await cluster.nodes[behind].restart()
        await cluster.wait(lambda: topic.now().leader_id == -1)
        await topic.elect_unclean(behind, behind)
        topic.acknowledged.clear()
        # From here on nobody has decided for any loss.
        await topic.produce(8)
        assert min(topic.acknowledged) == 2, topic.acknowledged
        await cluster.nodes[new].restart()
        await topic.in_sync(behind, new)
        cluster.nodes[behind].kill()
        await cluster.wait(lambda: topic.now().leader_id == new)
        await topic.holds_all()

    Cluster(controllers=3, brokers=4).run(work)
