"""Each metric moves when its cause happens, on whole simulated nodes."""

import asyncio

import pytest

from tests.broker.support.node_in_world import partition_batch, sealed
from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.metrics_in_world import histograms, read, scrape, value
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.v1 import produce_pb2
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow
LAG = "tidelog_replication_follower_lag_records_max"


def test_what_is_produced_and_read_is_counted_by_the_leader() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        await topic.produce(7)
        await topic.holds_all()
        found = await scrape(cluster, leader)
        assert value(found, "tidelog_produce_batches") == 7
        assert value(found, "tidelog_produce_records") == 7
        stored = value(found, "tidelog_produce_bytes")
        assert stored > 0
        assert value(found, "tidelog_fetch_bytes") == stored
        assert value(found, "tidelog_requests", "client", "Produce", "OK") == 7
        durations = histograms(found, "tidelog_request_duration_seconds")
        assert durations["client", "Produce"].count == 7
        assert value(found, "tidelog_request_bytes", "client", "Produce") > stored
        assert value(found, "tidelog_response_bytes", "client", "Fetch") > stored
        assert value(found, "tidelog_log_size_bytes", _directory(cluster, leader)) == stored
        assert value(found, "tidelog_log_segments", _directory(cluster, leader)) == 1

    three().run(work)


def _directory(cluster: Cluster, number: int) -> str:
    node = cluster.nodes[number].node
    assert node is not None
    assert node._broker is not None
    return node._broker.directories[0].name


def test_each_flush_round_is_counted_and_timed() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        before = histograms(await scrape(cluster, leader), "tidelog_disk_flush_seconds")
        counts = {labels: each.count for labels, each in before.items()}
        await topic.produce(5)
        after = histograms(await scrape(cluster, leader), "tidelog_disk_flush_seconds")
        place = (_directory(cluster, leader),)
        assert after[place].count >= counts[place] + 5
        assert after[place].sum_ns > 0
        assert len(after) == 2, "the quorum's directory has rounds of its own"

    three().run(work)


def test_what_a_broker_refuses_is_counted_by_its_code() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        follower = next(number for number in (1, 2, 3) if number != leader)
        assert await topic.try_produce(follower) is ErrorCode.NOT_LEADER
        found = await scrape(cluster, follower)
        assert value(found, "tidelog_produce_refusals", "NOT_LEADER") == 1
        assert value(found, "tidelog_produce_batches") == 0
        # The call as a whole was answered.
        assert value(found, "tidelog_requests", "client", "Produce", "OK") == 1

    three().run(work)


def test_a_call_that_is_refused_as_a_whole_is_counted_by_its_code() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        batch = partition_batch(topic.key.topic_id, 0, sealed([b"x"]))
        request = produce_pb2.ProduceRequest(batches=[batch, batch]).SerializeToString()
        with pytest.raises(Exception, match="INVALID_ARGUMENT"):
            await cluster.call(1, "ProduceService/Produce", request)
        assert await read(cluster, 1, "tidelog_requests", "client", "Produce", "INVALID_ARGUMENT")

    three().run(work)


def test_leader_counts_move_with_the_leaders() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        old = await topic.led_by_other_than()
        found = await scrape(cluster, old)
        assert value(found, "tidelog_replication_leaders") == 1
        assert value(found, "tidelog_replication_replicas") == 1
        cluster.nodes[old].kill()
        new = await topic.led_by_other_than(old)
        await topic.produce()
        found = await scrape(cluster, new)
        assert value(found, "tidelog_replication_leaders") == 1
        assert value(found, "tidelog_replication_leaderships_begun") == 1
        third = next(number for number in (1, 2, 3) if number not in (old, new))
        assert await read(cluster, third, "tidelog_replication_leaders") == 0

    three().run(work)


def test_a_dead_follower_shrinks_the_in_sync_set_and_joins_it_again() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        await topic.produce(3)
        dead = next(number for number in (1, 2, 3) if number != leader)
        cluster.nodes[dead].kill()
        await topic.in_sync(*(number for number in (1, 2, 3) if number != dead))
        await topic.produce(2)
        found = await scrape(cluster, leader)
        assert value(found, "tidelog_replication_in_sync_shrinks") == 1
        assert value(found, "tidelog_replication_under_replicated_partitions") == 1
        assert value(found, "tidelog_replication_under_min_isr_partitions") == 0
        await cluster.nodes[dead].restart()
        await topic.in_sync(1, 2, 3)
        found = await scrape(cluster, leader)
        assert value(found, "tidelog_replication_in_sync_expands") == 1
        assert value(found, "tidelog_replication_under_replicated_partitions") == 0
        copied = await scrape(cluster, dead)
        lanes = copied.values["tidelog_replication_copied_bytes"]
        assert sum(lanes.values()) > 0

    three().run(work)


def test_the_lag_of_a_follower_that_hears_nothing_is_how_many_records_it_lacks() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        await topic.produce(3)
        await cluster.wait(lambda: True)
        deaf = next(number for number in (1, 2, 3) if number != leader)
        cluster.world.fabric.cut(f"n{leader}", f"n{deaf}", FaultKind.PARTITION_ONE_WAY)
        for _ in range(4):
            assert await topic.try_produce(leader, timeout_ms=200) is not None
        found = await scrape(cluster, leader)
        assert value(found, LAG) == 4
        assert value(found, "tidelog_replication_follower_lag_records", str(deaf)) == 4

    three().run(work)


def test_the_active_controller_alone_counts_the_cluster() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        active = await _active(cluster)
        found = await scrape(cluster, active)
        assert value(found, "tidelog_controller_partitions") == 1
        assert value(found, "tidelog_controller_topics") == 1
        assert value(found, "tidelog_controller_brokers", "unfenced") == 3
        other = next(number for number in (1, 2, 3) if number != active)
        assert "tidelog_controller_partitions" not in (await scrape(cluster, other)).values
        dead = next(number for number in (1, 2, 3) if number != active)
        cluster.nodes[dead].kill()
        await topic.in_sync(*(number for number in (1, 2, 3) if number != dead))
        found = await scrape(cluster, active)
        assert value(found, "tidelog_controller_brokers", "fenced") == 1
        assert value(found, "tidelog_controller_brokers", "unfenced") == 2
        assert value(found, "tidelog_controller_under_replicated_partitions") == 1
        partition = topic.now()
        is_moved = partition.leader_id != partition.replicas[0]
        assert value(found, "tidelog_controller_preferred_leader_imbalance") == is_moved

    three().run(work)


async def _active(cluster: Cluster) -> int:
    for number in cluster.nodes:
        if await read(cluster, number, "tidelog_controller_is_active"):
            return number
    raise AssertionError("no controller is active")


def test_a_partition_of_one_replica_goes_offline_with_its_broker() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1)
        active = await _active(cluster)
        holder = topic.now().leader_id
        if holder == active:
            await topic.move(next(number for number in (1, 2, 3) if number != active))
            await cluster.wait(lambda: topic.now().leader_id not in (active, -1))
            holder = topic.now().leader_id
        cluster.nodes[holder].kill()
        await cluster.wait(lambda: topic.now().leader_id == -1)
        assert await read(cluster, active, "tidelog_controller_offline_partitions") == 1

    three().run(work)


def test_the_quorum_says_who_leads_and_that_everything_is_applied() -> None:
    async def work(cluster: Cluster) -> None:
        await ReplicatedTopic.create(cluster)
        await asyncio.sleep(1)
        scrapes = [await scrape(cluster, number) for number in (1, 2, 3)]
        assert sum(value(each, "tidelog_quorum_is_leader") for each in scrapes) == 1
        assert sum(value(each, "tidelog_quorum_elections_won") for each in scrapes) >= 1
        for each in scrapes:
            assert value(each, "tidelog_quorum_has_leader") == 1
            assert value(each, "tidelog_quorum_applied_lag_entries") == 0
            assert value(each, "tidelog_quorum_members", "voter") == 3
            assert value(each, "tidelog_quorum_leader_changes") >= 1
            assert value(each, "tidelog_broker_is_fenced") == 0
            assert value(each, "tidelog_node_ready") == 1

    three().run(work)


def test_with_the_setting_each_replica_has_lines_of_its_own() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        await topic.produce(4)
        found = await scrape(cluster, leader)
        assert value(found, "tidelog_partition_log_end_offset", "t", "0") == 4
        assert value(found, "tidelog_partition_high_watermark", "t", "0") == 4
        assert value(found, "tidelog_partition_is_leader", "t", "0") == 1
        lags = found.values["tidelog_partition_follower_lag_records"]
        assert set(lags.values()) == {0}
        assert len(lags) == 2

    three(metrics__per_partition="true").run(work)


def test_a_node_that_stops_says_so_before_it_lets_go_of_anything() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        leader = await topic.led_by_other_than()
        node = cluster.nodes[leader].node
        assert node is not None
        health, seen = node._monitoring.health, []
        node.request_stop()
        while cluster.nodes[leader].node is node:
            seen.append((health.is_stopping, node.is_ready))
            await asyncio.sleep(0.001)
        assert (True, True) in seen, "it hands over while it says that it stops"
        assert (False, False) not in seen

    three().run(work)
