"""Replicas of a partition on whole nodes: deaths, moves, stops, cuts, an operator who forces."""

import asyncio

import pytest

from tests.server.cluster.test_files_gone_in_world import stop_in_order
from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.broker.replication.shared.messages import Lane
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.metadata.image.image import NO_LEADER
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow


def isolate(cluster: Cluster, number: int) -> None:
    """Nothing gets through between the node and the others; clients still reach it."""
    for other in cluster.nodes:
        if other != number:
            for source, target in ((number, other), (other, number)):
                cluster.world.fabric.cut(f"n{source}", f"n{target}", FaultKind.PARTITION_ONE_WAY)


def test_what_was_acknowledged_outlives_its_leader_which_comes_back_into_sync() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(20)
        old = topic.now().leader_id
        cluster.nodes[old].kill()
        await topic.led_by_other_than(old)
        await topic.produce(20)
        await topic.holds_all()
        await cluster.nodes[old].restart()
        await topic.in_sync(1, 2, 3)
        await topic.produce(5)
        await topic.holds_all()

    three().run(work)


def test_one_of_three_in_sync_takes_no_record_and_serves_what_is_committed() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(10)
        leader = topic.now().leader_id
        for number in topic.now().replicas:
            if number != leader:
                cluster.nodes[number].kill()
        await topic.in_sync(leader)
        code = await topic.try_produce(leader, timeout_ms=1_000)
        assert code is ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS
        assert len(await topic.read(leader)) == 10

    Cluster(controllers=3, brokers=3).run(work)


def test_a_leader_that_is_cut_off_acknowledges_nothing_and_gives_up_what_it_took() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(10)
        old = topic.now().leader_id
        isolate(cluster, old)
        assert await topic.try_produce(old, timeout_ms=1_000) is not None
        await topic.led_by_other_than(old)
        await topic.produce(10)
        for _ in range(3):
            assert await topic.try_produce(old, timeout_ms=1_000) is not None
        assert len(await topic.read(old)) == 10, "what it shows it has committed before"
        cluster.world.heal()
        await topic.in_sync(1, 2, 3)
        await topic.produce(1)
        await topic.holds_all()
        await cluster.wait(lambda: len(dict.fromkeys(topic.ends())) == 1)
        assert topic.ends()[0] == len(await topic.read(topic.now().leader_id))

    three().run(work)


def test_a_stop_in_order_hands_the_lead_over_and_loses_no_time() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        node = cluster.nodes[old]
        assert node.node is not None
        node.node.request_stop()
        since = asyncio.get_running_loop().time()
        await topic.led_by_other_than(old)
        await topic.produce(1)
        assert asyncio.get_running_loop().time() - since < 1.0
        await cluster.wait(lambda: node.ended == 1)
        await node.restart()
        await topic.in_sync(1, 2, 3)
        await topic.holds_all()

    three().run(work)


def test_a_replica_moves_away_and_back_and_begins_anew_each_time() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        here = topic.now().replicas
        (other,) = [each for each in (4, 5, 6, 7) if each not in here]
        await topic.produce(10)
        gone = here[0]
        await topic.move(other, *here[1:])
        await cluster.wait(lambda: not topic.now().is_reassigning)
        await topic.in_sync(other, *here[1:])
        await cluster.wait(lambda: not topic.has_files(gone))
        await topic.produce(10)
        await topic.move(*here)
        await cluster.wait(lambda: not topic.now().is_reassigning)
        await topic.produce(10)
        await topic.in_sync(*here)
        await topic.holds_all()
        cluster.nodes[gone].kill()
        await cluster.nodes[gone].restart()
        await topic.in_sync(*here)
        await topic.holds_all()
        await cluster.wait(lambda: len(dict.fromkeys(topic.ends())) == 1)

    Cluster(controllers=3, brokers=4).run(work)


def test_a_replica_that_comes_back_while_its_files_go_waits_for_that() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        here = topic.now().replicas
        (other,) = [each for each in (4, 5, 6, 7) if each not in here]
        await topic.produce(5)
        for _ in range(4):
            await topic.move(other, *here[1:])
            await cluster.wait(lambda: not topic.now().is_reassigning)
            await topic.move(*here)
            await cluster.wait(lambda: not topic.now().is_reassigning)
            await topic.produce(3)
        await topic.in_sync(*here)
        await topic.holds_all()

    Cluster(controllers=3, brokers=4).run(work)


def test_the_preferred_leader_leads_again_once_it_is_in_sync() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        preferred = topic.now().replicas[0]
        cluster.nodes[preferred].kill()
        await topic.led_by_other_than(preferred)
        await cluster.nodes[preferred].restart()
        await topic.in_sync(1, 2, 3)
        await cluster.wait(lambda: topic.now().leader_id == preferred, seconds=900)
        await topic.produce(5)
        await topic.holds_all()

    three().run(work)


def test_records_are_given_up_on_an_operator_s_explicit_wish_only() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, settings={"min.insync.replicas": "1"})
        await topic.produce(10)
        first, *others = topic.now().replicas
        leader = topic.now().leader_id
        followers = [each for each in (first, *others) if each != leader]
        for number in followers:
            cluster.nodes[number].kill()
        await topic.in_sync(leader)
        await topic.produce(10)
        cluster.nodes[leader].kill()
        for number in followers:
            await cluster.nodes[number].restart()
        await asyncio.sleep(20)
        assert topic.now().leader_id == -1
        await topic.elect_unclean(1, followers[0])
        assert await topic.led_by_other_than() == followers[0]
        kept = await topic.read(followers[0])
        assert len(kept) == 10
        topic.acknowledged = kept
        await topic.produce(3)
        await cluster.nodes[leader].restart()
        await topic.in_sync(leader, *followers)
        await topic.produce(3)
        await topic.holds_all()
        cluster.nodes[topic.now().leader_id].kill()
        await topic.led_by_other_than(topic.now().leader_id)
        await topic.holds_all()

    Cluster(controllers=3, brokers=3).run(work)


def test_a_replica_that_is_far_behind_by_the_node_s_settings_is_copied_apart() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        cluster.nodes[3].kill()
        await topic.led_by_other_than(3)
        await topic.in_sync(1, 2)
        await topic.produce(200)
        seen: dict[Lane, None] = {}

        def is_in_sync_by_both_lanes() -> bool:
            node = cluster.nodes[3].node
            if node is not None and node._broker is not None:
                lanes = node._broker.replication.fetchers.describe()
                seen.update((each.lane, None) for each in lanes if each.partitions)
            return len(seen) == 2 and 3 in topic.now().in_sync_replicas

        cluster.nodes[3].start()
        for _ in range(60_000):
            # One answer may hold all that is missing: the lane has work for a moment only.
            if is_in_sync_by_both_lanes():
                break
            await asyncio.sleep(0.001)
        assert len(seen) == 2
        await topic.holds_all()

    three(replication__far_behind_bytes="2000").run(work)


def test_after_all_machines_went_down_the_longest_log_leads_once_all_are_back() -> None:
    async def work(cluster: Cluster) -> None:
        settings = {"flush": "replicated", "min.insync.replicas": "1"}
        topic = await ReplicatedTopic.create(cluster, settings=settings)
        await topic.produce(10)
        brokers = topic.now().replicas
        # What a disk has flushed by itself is left, which may be all.
        for number in brokers:
            cluster.world.machine(f"n{number}").crash()
        for number in brokers[1:]:
            await cluster.nodes[number].restart()
        await asyncio.sleep(10)
        assert topic.now().leader_id == NO_LEADER, "the one that is away may have the most"
        await cluster.nodes[brokers[0]].restart()
        await topic.led_by_other_than()
        assert topic.now().is_recovered_unclean
        topic.acknowledged.clear()
        await topic.produce(5)
        await topic.in_sync(*brokers)
        assert not topic.now().is_recovered_unclean
        await topic.holds_all()
        await cluster.wait(lambda: len(dict.fromkeys(topic.ends())) == 1)

    Cluster(controllers=3, brokers=3).run(work)


@pytest.mark.parametrize("is_written_to", [True, False])
def test_a_directory_from_before_an_unclean_election_goes_on_from_what_was_left(
    is_written_to: bool,
) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, settings={"min.insync.replicas": "1"})
        away = next(each for each in topic.now().replicas if each != topic.now().leader_id)
        cluster.nodes[away].kill()
        victim, other = [each for each in topic.now().replicas if each != away]
        await topic.in_sync(victim, other)
        await topic.produce(5)
        await stop_in_order(cluster, victim)
        copied = cluster.world.machine(f"n{victim}").medium("data").copy()
        await cluster.nodes[victim].restart()
        await topic.in_sync(victim, other)
        for number in (victim, other):
            cluster.nodes[number].kill()
        await cluster.nodes[away].restart()
        await cluster.wait(lambda: topic.now().leader_id == NO_LEADER)
        await topic.elect_unclean(away, away)
        topic.acknowledged.clear()
        if is_written_to:
            await topic.produce(7)
        for number in (victim, other):
            await cluster.nodes[number].restart()
        await topic.in_sync(away, victim, other)
        assert not topic.now().is_recovered_unclean
        cluster.nodes[victim].kill()
        cluster.world.machine(f"n{victim}").put_back("data", copied)
        await cluster.nodes[victim].restart()
        await topic.produce(1)
        await topic.in_sync(away, victim, other)
        await topic.holds_all()
        await cluster.wait(lambda: len(dict.fromkeys(topic.ends())) == 1)

    Cluster(controllers=3, brokers=3).run(work)


@pytest.mark.parametrize(("replicas", "records"), [(3, 0), (1, 5)])
def test_a_new_replica_of_an_idle_partition_joins_though_its_leader_learns_of_it_late(
    replicas: int, records: int
) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas)
        here, leader = topic.now().replicas, topic.now().leader_id
        await topic.in_sync(*here)
        await topic.produce(records)
        other = next(each for each in (4, 5, 6, 7) if each not in here)
        fabric = cluster.world.fabric
        for controller in (1, 2, 3):
            fabric.cut(f"n{controller}", f"n{leader}", FaultKind.PARTITION_ONE_WAY)
        await topic.move(*here, other)
        await cluster.wait(lambda: holds(cluster, topic, other), seconds=2)
        await asyncio.sleep(0.5)
        await topic.produce(records)
        await asyncio.sleep(0.2)
        seen = topic.seen_by(leader)
        assert seen is not None
        assert other not in seen.replicas, "the new one has named itself to a leader that knows it"
        cluster.world.heal()
        await topic.in_sync(*here, other)
        await cluster.wait(lambda: not topic.now().is_reassigning)
        assert topic.ends() == [2 * records] * (replicas + 1), "nothing was written meanwhile"

    Cluster(controllers=3, brokers=4).run(work)


def holds(cluster: Cluster, topic: ReplicatedTopic, number: int) -> bool:
    """Whether the node has taken its replica up."""
    node = cluster.nodes[number].node
    assert node is not None
    assert node._broker is not None
    return node._broker.replicas.get(topic.key.topic_id, topic.key.partition) is not None
