"""A broker that hears nothing from a controller says so to those who wait."""

from typing import cast

import pytest

from tests.server.cluster_in_world import Cluster
from tests.server.replicas_in_world import ReplicatedTopic
from tests.server.test_fetch_in_world import Reader, three_racks
from tests.server.test_replicas_in_world import isolate
from tidelog.broker.replica_watchers import ReplicaWatchers
from tidelog.metadata_quorum.controller.sessions import SESSION_TIMEOUT_MS
from tidelog.metadata_quorum.stream.session_client import BrokerSession
from tidelog.ports import Clock
from tidelog.server.broker_contact import ContactWatch
from tidelog.wire.errors import ErrorCode, TidelogError


def test_it_is_said_once_in_each_session_s_time_of_silence() -> None:
    watchers, told = ReplicaWatchers(), list[TidelogError]()
    watchers.watch_doubt(told.append)
    watch = ContactWatch(cast("BrokerSession", None), watchers, cast("Clock", None))
    counts = []
    for silent_ms in (0, 8_999, 9_000, 9_500, 18_000, 18_500, 400, 9_000):
        watch.look(silent_ms)
        counts.append(len(told))
    assert SESSION_TIMEOUT_MS == 9_000
    assert counts == [0, 0, 1, 1, 2, 2, 2, 3]
    assert all(each.code is ErrorCode.UNAVAILABLE for each in told)


@pytest.mark.slow
def test_a_reader_that_waits_at_a_leader_without_a_controller_looks_elsewhere() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        reader = Reader(topic, old)
        await reader.name(5, leader_epoch=topic.now().leader_epoch)
        isolate(cluster, old)
        new = await topic.led_by_other_than(old)
        await topic.produce(1)
        answer = await reader.answer()
        assert answer.error.code == ErrorCode.UNAVAILABLE.value
        assert "no controller" in answer.error.happened
        follower = Reader(topic, new)
        await follower.name(5)
        assert (await follower.answer()).batches
        cluster.world.heal()
        await topic.in_sync(1, 2, 3)
        await topic.holds_all()

    three_racks().run(work)


@pytest.mark.slow
def test_a_cluster_without_a_controller_goes_on_serving() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        leader = topic.now().leader_id
        for number in (1, 2, 3):
            cluster.nodes[number].kill()
        reader = Reader(topic, leader)
        await reader.name(5)
        assert (await reader.answer()).error.code == ErrorCode.UNAVAILABLE.value
        assert await topic.try_produce(leader) is None, "its followers are in sync"
        await reader.name(5)
        assert (await reader.answer()).batches

    Cluster(controllers=3, brokers=3).run(work)
