"""A follower's two streams at once: nothing orders what is said on one and on the other."""

import asyncio
import itertools

import msgspec

from tests.broker.replication.test_streams import (
    follower_of,
    named_at,
    on_three_brokers,
    replica_of,
)
from tests.server.support.cluster_in_world import Cluster
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.broker.replication.shared.messages import Lane
from tidelog.broker.replication.tasks.wire import REPLICA_FETCH, encode_ask
from tidelog.wire.ids import Offset, PartitionEpoch


def test_what_a_lane_says_late_does_not_count_where_the_other_has_said_more() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        await topic.produce(1)
        follower, leader, now = follower_of(topic), topic.now().leader_id, topic.now()
        log = replica_of(cluster, topic, leader).log
        sessions = itertools.count(1 << 60)

        async def name(lane: Lane, end: int, partition_epoch: int) -> None:
            ask = named_at(cluster, topic, follower, lane=lane, session_id=next(sessions))
            position = msgspec.structs.replace(
                ask.positions[0],
                log_end_offset=Offset(end),
                flushed_offset=Offset(end),
                last_epoch=now.leader_epoch,
                partition_epoch=PartitionEpoch(partition_epoch),
            )
            stream = cluster.network.stream(f"n{leader}:2", REPLICA_FETCH)
            await stream.send(encode_ask(msgspec.structs.replace(ask, positions=(position,))))
            assert await stream.receive() is not None

        await name(Lane.LIVE, 1, now.partition_epoch + 1)
        producing = asyncio.ensure_future(topic.try_produce(leader))
        await cluster.wait(lambda: log.flushed_offset == 2)
        await name(Lane.CATCH_UP, 2, now.partition_epoch)
        await asyncio.sleep(0.5)
        assert not producing.done(), "the follower has lost it since"
        await name(Lane.CATCH_UP, 2, now.partition_epoch + 1)
        assert await producing is None

    on_three_brokers(work)
