"""Streams between whole nodes on a simulated network: lanes, breaks, refusals at the leader."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.broker.support.node_in_world import partition_batch, sealed
from tests.server.support.cluster_in_world import CLUSTER_ID, Cluster, three
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.broker.replicas.replicas import Replica
from tidelog.broker.replication.leader.lanes import has_behind
from tidelog.broker.replication.shared.messages import (
    DEFAULT_REPLICATION_LIMITS,
    FetchAsk,
    FollowerPosition,
    Lane,
)
from tidelog.broker.replication.tasks.wire import REPLICA_FETCH, decode_answer, encode_ask
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.ports.exchange import Exchange
from tidelog.metadata.image.image import BrokerImage
from tidelog.metadata.settings.catalogue import REASSIGNMENT_THROTTLE
from tidelog.ports import Stream
from tidelog.v1 import config_admin_pb2, produce_pb2, replica_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset

Work = Callable[[Cluster, ReplicatedTopic], Coroutine[Any, Any, None]]


def on_three_brokers(work: Work) -> None:
    """Three nodes in both roles, and a topic with three replicas that are in sync."""

    async def main(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.in_sync(1, 2, 3)
        await work(cluster, topic)

    three().run(main)


def replica_of(cluster: Cluster, topic: ReplicatedTopic, number: int) -> Replica:
    node = cluster.nodes[number].node
    assert node is not None
    assert node._broker is not None
    replica = node._broker.replicas.get(topic.key.topic_id, 0)
    assert replica is not None
    return replica


def broker_of(cluster: Cluster, number: int) -> BrokerImage:
    node = cluster.nodes[1].node
    assert node is not None
    image = node.view().image
    assert image is not None
    return image.brokers[BrokerId(number)]


def lanes_of(cluster: Cluster, number: int) -> dict[tuple[int, Lane], int]:
    node = cluster.nodes[number].node
    assert node is not None
    assert node._broker is not None
    return {
        (each.leader_id, each.lane): each.partitions
        for each in node._broker.replication.fetchers.describe()
    }


async def bytes_of(replica: Replica) -> bytes:
    """The whole log, also what is not committed."""
    log, data, offset = replica.log, b"", replica.log.log_start_offset
    while offset < log.log_end_offset:
        found = await replica.directory.reader.read(
            log, offset, 1 << 20, upper_bound=log.log_end_offset
        )
        data += found.data
        offset = found.next_offset
    return data


async def are_alike(cluster: Cluster, topic: ReplicatedTopic) -> None:
    """Wait until all three are at the same end, then compare them byte by byte."""
    replicas = [replica_of(cluster, topic, number) for number in (1, 2, 3)]

    def ends() -> set[tuple[int, int]]:
        return {(each.log.log_end_offset, each.log.high_watermark) for each in replicas}

    await cluster.wait(lambda: len(ends()) == 1)
    assert len({await bytes_of(each) for each in replicas}) == 1


def follower_of(topic: ReplicatedTopic) -> int:
    return next(number for number in (1, 2, 3) if number != topic.now().leader_id)


# -- the way of a record -------------------------------------------------------------------------


def test_copies_are_the_leaders_bytes_and_the_watermark_follows() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        await topic.produce(20)
        await are_alike(cluster, topic)
        assert replica_of(cluster, topic, follower_of(topic)).log.high_watermark == 20

    on_three_brokers(work)


def test_batches_a_few_milliseconds_apart_take_the_watermarks_along() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        with_batches, alone = 0, 0

        def look(exchange: Exchange, direction: str, message: bytes) -> None:
            nonlocal with_batches, alone
            if exchange.method == REPLICA_FETCH and direction == "reply":
                has_batches = any(each.batches for each in decode_answer(message).partitions)
                with_batches += has_batches
                alone += not has_batches

        await topic.produce(1)
        await are_alike(cluster, topic)
        cluster.world.fabric.taps.append(look)
        for _ in range(40):
            await topic.produce(1)
            await asyncio.sleep(0.003)
        assert with_batches >= 80
        # Each batch would bring one of its own; how many come between depends on the seed: 0 to 20.
        assert alone <= with_batches * 3 // 8, (
            f"{alone} answers told numbers only, {with_batches} held batches"
        )
        await are_alike(cluster, topic)

    on_three_brokers(work)


@pytest.mark.slow
def test_streams_that_break_again_and_again_lose_and_double_nothing() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        fabric = cluster.world.fabric
        for _ in range(10):
            await topic.produce(2)
            for exchange in fabric.exchanges():
                if exchange.method == REPLICA_FETCH:
                    exchange.break_off("the connection was reset")
        await topic.produce(1)
        await are_alike(cluster, topic)
        await topic.holds_all()

    on_three_brokers(work)


@pytest.mark.slow
def test_a_follower_that_a_silent_link_held_up_is_heard_again_once_it_is_healed() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        await topic.produce(1)
        leader, follower = f"n{topic.now().leader_id}", f"n{follower_of(topic)}"
        cluster.world.fabric.cut(leader, follower, FaultKind.PARTITION_ONE_WAY)
        await asyncio.sleep(15)
        cluster.world.fabric.heal()
        await topic.produce(3)
        await topic.in_sync(1, 2, 3)
        await are_alike(cluster, topic)

    on_three_brokers(work)


@pytest.mark.slow
def test_a_follower_that_comes_back_catches_up() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        follower = follower_of(topic)
        cluster.nodes[follower].kill()
        await topic.produce(30)
        await cluster.nodes[follower].restart()
        await topic.in_sync(1, 2, 3)
        await are_alike(cluster, topic)

    on_three_brokers(work)


@pytest.mark.slow
def test_a_follower_far_behind_catches_up_on_the_other_lane_and_comes_back() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        follower = follower_of(topic)
        cluster.nodes[follower].kill()
        await topic.in_sync(*(number for number in (1, 2, 3) if number != follower))
        log = replica_of(cluster, topic, topic.now().leader_id).log
        while not has_behind(log, 0, 2 * DEFAULT_REPLICATION_LIMITS.far_behind_bytes):
            await produce_bytes(cluster, topic, 900_000)
        # Slow enough to be seen on its way.
        await set_throttle(cluster, 5_000_000)
        cluster.nodes[follower].start()
        key = (topic.now().leader_id, Lane.CATCH_UP)

        def is_catching_up() -> bool:
            node = cluster.nodes[follower].node
            has_begun = node is not None and node._broker is not None
            return has_begun and lanes_of(cluster, follower).get(key) == 1

        await cluster.wait(is_catching_up)
        await cluster.wait(lambda: lanes_of(cluster, follower).get(key) == 0)
        await topic.in_sync(1, 2, 3)
        await are_alike(cluster, topic)

    on_three_brokers(work)


@pytest.mark.slow
def test_catching_up_takes_as_long_as_the_throttle_says() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        follower = follower_of(topic)
        cluster.nodes[follower].kill()
        await topic.in_sync(*(number for number in (1, 2, 3) if number != follower))
        log = replica_of(cluster, topic, topic.now().leader_id).log
        while not has_behind(log, 0, 2 * DEFAULT_REPLICATION_LIMITS.far_behind_bytes):
            await produce_bytes(cluster, topic, 900_000)
        await set_throttle(cluster, 1_000_000)
        await cluster.nodes[follower].restart()
        await asyncio.sleep(10)
        copied = replica_of(cluster, topic, follower).log.log_end_offset * 900_000
        assert 6_000_000 <= copied <= 11_000_000
        await set_throttle(cluster, 0)
        await asyncio.sleep(3)
        await topic.in_sync(1, 2, 3)
        await are_alike(cluster, topic)

    on_three_brokers(work)


@pytest.mark.slow
def test_the_throttle_holds_a_small_partition_back_that_is_copied_to_a_new_replica() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        here = topic.now().replicas
        for _ in range(8):
            await produce_bytes(cluster, topic, 900_000)
        assert DEFAULT_REPLICATION_LIMITS.far_behind_bytes > 8 * 900_000
        await set_throttle(cluster, 500_000)
        other = next(each for each in (4, 5, 6, 7) if each not in here)
        await topic.move(*here, other)
        await asyncio.sleep(3)
        assert other not in topic.now().in_sync_replicas, "most of it is paid for first"
        await topic.in_sync(*here, other)

    Cluster(controllers=3, brokers=4).run(work)


async def set_throttle(cluster: Cluster, bytes_per_second: int) -> None:
    alteration = config_admin_pb2.ConfigAlteration(
        target=config_admin_pb2.ConfigTarget(kind=config_admin_pb2.CONFIG_TARGET_KIND_CLUSTER)
    )
    alteration.changes.add(name=REASSIGNMENT_THROTTLE, value=str(bytes_per_second))
    request = config_admin_pb2.AlterConfigsRequest(alterations=[alteration])
    data = await cluster.call(1, "ConfigService/AlterConfigs", request.SerializeToString())
    (result,) = config_admin_pb2.AlterConfigsResponse.FromString(data).results
    assert not result.HasField("error"), result


async def produce_bytes(cluster: Cluster, topic: ReplicatedTopic, size: int) -> None:
    """One large record at the leader."""
    batch = partition_batch(topic.key.topic_id, 0, sealed([bytes(size)]))
    request = produce_pb2.ProduceRequest(batches=[batch], acks=produce_pb2.ACKS_ALL)
    data = await cluster.call(
        topic.now().leader_id, "ProduceService/Produce", request.SerializeToString()
    )
    (result,) = produce_pb2.ProduceResponse.FromString(data).acknowledgements
    assert not result.HasField("error"), result


def test_each_partition_is_on_one_lane() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        await topic.produce(1)
        leader = topic.now().leader_id
        for number in (1, 2, 3):
            if number != leader:
                assert sum(lanes_of(cluster, number).values()) == 1
                assert lanes_of(cluster, number)[leader, Lane.LIVE] == 1

    on_three_brokers(work)


# -- what the leader refuses ---------------------------------------------------------------------


def named_at(
    cluster: Cluster, topic: ReplicatedTopic, follower: int, **changes: object
) -> FetchAsk:
    """The first request of a stream, as the follower would send it from an empty log."""
    position = FollowerPosition(
        key=topic.key,
        leader_epoch=topic.now().leader_epoch,
        log_end_offset=Offset(0),
        flushed_offset=Offset(0),
        last_epoch=LeaderEpoch(-1),
        log_start_offset=Offset(0),
    )
    fields: dict[str, Any] = {
        "session_id": 1 << 60,
        "session_sequence": 1,
        "positions": (position,),
        "cluster_id": CLUSTER_ID,
        "broker_id": BrokerId(follower),
        "broker_epoch": broker_of(cluster, follower).epoch,
        "lane": Lane.CATCH_UP,
    }
    return FetchAsk(**(fields | changes))


async def error_of(cluster: Cluster, topic: ReplicatedTopic, message: bytes) -> ErrorCode | None:
    """What the leader ends a stream with that begins so; None: it answers."""
    stream = cluster.network.stream(f"n{topic.now().leader_id}:2", REPLICA_FETCH)
    try:
        await stream.send(message)
        assert await stream.receive() is not None
    except TidelogError as error:
        return error.code
    finally:
        stream.cancel()
    return None


async def heard_to_the_end(stream: Stream) -> None:
    """At once: one that nobody ends is given up for its silence only much later."""
    async with asyncio.timeout(1):
        while await stream.receive() is not None:
            pass


def test_a_stream_that_is_not_a_followers_is_refused() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        follower = follower_of(topic)
        epoch = broker_of(cluster, follower).epoch

        async def refused(code: ErrorCode, **changes: object) -> None:
            ask = named_at(cluster, topic, follower, **changes)
            assert await error_of(cluster, topic, encode_ask(ask)) is code

        await refused(ErrorCode.WRONG_CLUSTER, cluster_id="another")
        await refused(ErrorCode.STALE_BROKER_EPOCH, broker_epoch=BrokerEpoch(epoch - 1))
        await refused(ErrorCode.INVALID_ARGUMENT, session_sequence=2)
        await refused(ErrorCode.INVALID_ARGUMENT, session_id=0)
        assert await error_of(cluster, topic, b"\xff\xff nonsense") is ErrorCode.INVALID_ARGUMENT
        ask = encode_ask(named_at(cluster, topic, follower))
        assert await error_of(cluster, topic, ask) is None

    on_three_brokers(work)


@pytest.mark.parametrize(
    "changes",
    [
        {"log_end_offset": -1},
        {"flushed_offset": 5},
        {"log_start_offset": 5},
        {"leader_epoch": -1},
        {"last_epoch": -2},
        {"topic_id": b"short"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_position_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        message = replica_pb2.ReplicaFetchRequest.FromString(
            encode_ask(named_at(cluster, topic, follower_of(topic)))
        )
        for name, value in changes.items():
            setattr(message.positions[0], name, value)
        code = await error_of(cluster, topic, message.SerializeToString())
        assert code is ErrorCode.INVALID_ARGUMENT

    on_three_brokers(work)


def test_a_stream_that_comes_late_does_not_take_over_from_a_newer_one() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        follower = follower_of(topic)
        newer = encode_ask(named_at(cluster, topic, follower, session_id=(1 << 60) + 1))
        assert await error_of(cluster, topic, newer) is None
        older = encode_ask(named_at(cluster, topic, follower))
        assert await error_of(cluster, topic, older) is ErrorCode.UNAVAILABLE

    on_three_brokers(work)


def test_messages_of_a_superseded_stream_change_nothing() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        follower = follower_of(topic)
        leader = f"n{topic.now().leader_id}:2"
        older = cluster.network.stream(leader, REPLICA_FETCH)
        await older.send(encode_ask(named_at(cluster, topic, follower)))
        assert await older.receive() is not None
        newer = cluster.network.stream(leader, REPLICA_FETCH)
        ask = named_at(cluster, topic, follower, session_id=(1 << 60) + 1)
        await newer.send(encode_ask(ask))
        assert await newer.receive() is not None
        with pytest.raises(TidelogError):
            await heard_to_the_end(older)
        newer.cancel()

    on_three_brokers(work)


def test_a_new_life_of_a_broker_ends_its_old_streams_on_both_lanes() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        follower = follower_of(topic)
        epoch = broker_of(cluster, follower).epoch
        leader = f"n{topic.now().leader_id}:2"
        older = cluster.network.stream(leader, REPLICA_FETCH)
        await older.send(encode_ask(named_at(cluster, topic, follower)))
        assert await older.receive() is not None
        new_life = {"lane": Lane.LIVE, "broker_epoch": BrokerEpoch(epoch + 1), "session_id": 1}
        newer = cluster.network.stream(leader, REPLICA_FETCH)
        await newer.send(encode_ask(named_at(cluster, topic, follower, **new_life)))
        assert await newer.receive() is not None
        with pytest.raises(TidelogError):
            await heard_to_the_end(older)
        late = encode_ask(named_at(cluster, topic, follower, session_id=(1 << 60) + 1))
        assert await error_of(cluster, topic, late) is ErrorCode.UNAVAILABLE
        newer.cancel()

    on_three_brokers(work)


def test_each_partition_has_its_own_error() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        follower = follower_of(topic)
        ask = named_at(cluster, topic, follower)
        message = replica_pb2.ReplicaFetchRequest.FromString(encode_ask(ask))
        unknown = message.positions.add()
        unknown.CopyFrom(message.positions[0])
        unknown.partition = 7
        message.positions[0].leader_epoch += 1
        stream = cluster.network.stream(f"n{topic.now().leader_id}:2", REPLICA_FETCH)
        await stream.send(message.SerializeToString())
        data = await stream.receive()
        assert data is not None
        codes = [each.error.code for each in decode_answer(data).partitions if each.error]
        assert codes == [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_PARTITION]
        stream.cancel()

    on_three_brokers(work)


def test_nobody_is_measured_by_a_log_that_is_being_cut_or_not_yet_led() -> None:
    async def work(cluster: Cluster, topic: ReplicatedTopic) -> None:
        log = replica_of(cluster, topic, topic.now().leader_id).log
        follower = follower_of(topic)

        async def code_of_naming(session: int) -> ErrorCode | None:
            ask = named_at(cluster, topic, follower, session_id=(1 << 60) + session)
            stream = cluster.network.stream(f"n{topic.now().leader_id}:2", REPLICA_FETCH)
            await stream.send(encode_ask(ask))
            data = await stream.receive()
            stream.cancel()
            assert data is not None
            error = decode_answer(data).partitions[0].error
            return None if error is None else error.code

        log.is_being_cut = True
        assert await code_of_naming(1) is ErrorCode.UNAVAILABLE
        log.is_being_cut = False
        log.leader_epoch = LeaderEpoch(log.leader_epoch - 1)
        assert await code_of_naming(2) is ErrorCode.UNAVAILABLE
        log.leader_epoch = LeaderEpoch(log.leader_epoch + 1)
        assert await code_of_naming(3) is None

    on_three_brokers(work)
