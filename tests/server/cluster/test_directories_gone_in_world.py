"""Data directories that are unmounted, renamed or replaced while a node runs."""

import asyncio
import contextlib

import pytest

from tests.server.cluster.test_damage_in_world import kept, replica
from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.ports import DirectoryGone
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow


def names(cluster: Cluster, number: int, medium: str = "data") -> list[str]:
    return sorted(cluster.world.machine(f"n{number}").medium(medium).root.seen)


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_data_directory_that_is_gone_stops_as_a_whole_and_none_is_made_in_its_place(
    is_leader: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, settings={"segment.bytes": "2048"})
        await topic.produce(20)
        await topic.in_sync(1, 2, 3)
        leader = topic.now().leader_id
        victim = leader if is_leader else next(each for each in (1, 2, 3) if each != leader)
        medium = cluster.world.machine(f"n{victim}").medium("data")
        before = names(cluster, victim)
        medium.is_away = True
        others = [each for each in (1, 2, 3) if each != victim]
        await topic.produce(20)
        await topic.in_sync(*others)
        failure = replica(topic, victim).directory.failure
        assert isinstance(failure, DirectoryGone)
        assert "unmounted" in failure.happened
        for _ in range(10):
            await topic.produce(10)
            await asyncio.sleep(1)
        assert sorted(topic.now().in_sync_replicas) == others
        assert names(cluster, victim) == before
        assert kept(topic, victim) == []
        # Found gone, it stays so: only a start looks at what lies there.
        medium.is_away = False
        await asyncio.sleep(5)
        assert sorted(topic.now().in_sync_replicas) == others
        cluster.nodes[victim].kill()
        await cluster.nodes[victim].restart()
        await topic.in_sync(1, 2, 3)
        await topic.holds_all()
        assert kept(topic, victim) == []

    three().run(work)
    assert any("storage_stopped" in each for each in caplog.messages)


def test_a_directory_that_is_gone_is_noticed_although_nothing_is_written() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1)
        await topic.produce(5)
        leader = topic.now().leader_id
        cluster.world.machine(f"n{leader}").medium("data").is_away = True
        held = replica(topic, leader)
        await cluster.wait(lambda: isinstance(held.directory.failure, DirectoryGone))
        assert await topic.try_produce(leader) is ErrorCode.STORAGE_FAILED

    three().run(work)


def test_a_quorum_directory_that_is_gone_ends_its_node_and_none_is_made_in_its_place() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        leader = (await cluster.quorum(1)).leader_id
        medium = cluster.world.machine(f"n{leader}").medium("quorum")
        before = names(cluster, leader, "quorum")
        medium.is_away = True
        other = next(each for each in (1, 2, 3) if each != leader)
        with contextlib.suppress(TidelogError):
            # It may or may not be told before another one leads.
            await cluster.create(other, "later")
        await cluster.wait(lambda: cluster.nodes[leader].error is not None)
        error = cluster.nodes[leader].error
        assert isinstance(error, DirectoryGone)
        assert "unmounted" in error.happened
        assert names(cluster, leader, "quorum") == before
        medium.is_away = False
        await cluster.nodes[leader].restart()
        await topic.in_sync(1, 2, 3)
        await topic.produce(5)
        await topic.holds_all()

    three().run(work)
