"""Groups on whole nodes: members share partitions, commits outlive coordinators."""

import asyncio

import pytest

from tests.broker.support.group_world import Groups, Member, settle
from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.metrics_in_world import scrape, value
from tidelog.broker.coordination.log import CoordinatorLog
from tidelog.v1 import groups_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.partitioner import coordinator_partition


@pytest.mark.slow
def test_two_members_share_the_partitions_and_a_leaver_s_part_moves() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 4)
        first, second = Member(groups, "g", "m1", ["t"]), Member(groups, "g", "m2", ["t"])
        await first.join()
        await settle([first])
        assert sorted(first.owned) == [("t", number) for number in range(4)]
        await second.join()
        await settle([first, second])
        assert (len(first.owned), len(second.owned)) == (2, 2)
        assert not first.owned.keys() & second.owned.keys()
        await first.leave()
        await settle([second])
        assert len(second.owned) == 4

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
def test_a_commit_counts_for_the_owner_only_and_is_read_back() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 2)
        first, second = Member(groups, "g", "m1", ["t"]), Member(groups, "g", "m2", ["t"])
        await first.join()
        await second.join()
        await settle([first, second])
        (own,), (foreign,) = first.owned, second.owned
        codes = await groups.commit("g", {own: 5, foreign: 6}, member=first)
        assert codes == [0, ErrorCode.STALE_ASSIGNMENT]
        assert await groups.committed("g") == {(topic_id, own[1]): 5}
        with pytest.raises(TidelogError) as caught:
            await groups.commit("g", {own: 7})
        assert caught.value.code is ErrorCode.UNKNOWN_MEMBER

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
def test_a_silent_member_is_removed_and_told_so_when_it_comes_back() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 2)
        silent, lively = Member(groups, "g", "silent", ["t"]), Member(groups, "g", "lively", ["t"])
        await silent.join()
        await lively.join()
        await settle([silent, lively])
        for _ in range(40):
            await lively.beat()
            await asyncio.sleep(0.25)
        assert len(lively.owned) == 2
        with pytest.raises(TidelogError) as caught:
            await silent.beat()
        assert caught.value.code is ErrorCode.UNKNOWN_MEMBER
        await lively.leave()
        found = await scrape(cluster, 1)
        assert value(found, "tidelog_group_departures", "silent") == 1
        assert value(found, "tidelog_group_departures", "left") == 1
        assert value(found, "tidelog_group_rebalances") >= 3
        assert value(found, "tidelog_group_heartbeats") > 40
        assert value(found, "tidelog_groups", "empty") == 1

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
def test_groups_outlive_a_restart_of_their_only_broker() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 3)
        member = Member(groups, "g", "m", ["t"])
        await member.join()
        await settle([member])
        assert await groups.commit("g", {("t", 0): 10, ("t", 1): 20}, member=member) == [0, 0]
        await groups.commit("loose", {("t", 2): 30})
        epoch = member.epoch
        cluster.nodes[1].kill()
        await cluster.nodes[1].restart()
        await member.beat()
        assert member.epoch == epoch, "it goes on as the same member"
        assert await groups.committed("g") == {(topic_id, 0): 10, (topic_id, 1): 20}
        assert await groups.committed("loose") == {(topic_id, 2): 30}
        assert await groups.commit("g", {("t", 0): 11}, member=member) == [0]

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_coordinator_killed_amid_commits_loses_no_acknowledged_one(seed: int) -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 4, replicas=3)
        members = [Member(groups, "g", f"m{number}", ["t"]) for number in (1, 2)]
        for each in members:
            await each.join()
        await settle(members)
        acknowledged: dict[tuple[bytes, int], int] = {}
        is_over = False

        async def commit_all(member: Member) -> None:
            offset = 0
            while not is_over:
                offset += 1
                wanted = dict.fromkeys(member.owned, offset)
                codes = await groups.commit("g", wanted, member=member)
                assert codes == [0] * len(wanted), codes
                for _, partition in wanted:
                    acknowledged[topic_id, partition] = offset

        async def beat_all() -> None:
            while not is_over:
                for each in members:
                    await each.beat()
                await asyncio.sleep(0.5)

        tasks = [asyncio.create_task(commit_all(each)) for each in members]
        tasks.append(asyncio.create_task(beat_all()))
        await asyncio.sleep(0.5 + seed * 0.037)
        first = await groups.coordinator("g")
        cluster.nodes[first].kill()
        at_kill = dict(acknowledged)
        await cluster.wait(
            lambda: all(acknowledged[key] > offset + 2 for key, offset in at_kill.items())
        )
        is_over = True
        for task in tasks:
            await task
        assert await groups.coordinator("g") != first
        assert await groups.committed("g") == acknowledged
        owned = [set(each.owned) for each in members]
        assert not owned[0] & owned[1]
        await cluster.nodes[first].restart()
        assert await groups.committed("g") == acknowledged

    three(brokers_expected=3, seed=seed).run(work)


@pytest.mark.slow
def test_a_deposed_coordinator_says_so_and_the_next_one_knows_the_members() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 2, replicas=3)
        member = Member(groups, "g", "m", ["t"])
        await member.join()
        await settle([member])
        first = await groups.coordinator("g")
        other = next(number for number in groups.living() if number != first)
        request = groups_pb2.GroupHeartbeatRequest(
            group="g", member_id="m", member_epoch=member.epoch, heartbeat_sequence=1_000
        ).SerializeToString()
        data = await cluster.call(other, "GroupService/GroupHeartbeat", request)
        told = groups_pb2.GroupHeartbeatResponse.FromString(data)
        assert int(told.error.code) == ErrorCode.NOT_COORDINATOR
        epoch = member.epoch
        node = cluster.nodes[first].node
        assert node is not None
        node.request_stop()
        await cluster.wait(lambda: cluster.nodes[first].ended == 1)
        await member.beat()
        assert member.epoch == epoch
        assert await groups.coordinator("g") != first

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_no_commit_is_acknowledged_before_the_other_replicas_have_it() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 1)
        await groups.commit("g", {("t", 0): 1})
        coordinator = await groups.coordinator("g")
        for number in list(groups.living()):
            if number != coordinator:
                cluster.nodes[number].kill()
        request = groups_pb2.CommitOffsetsRequest(group="g", member_epoch=-1)
        request.offsets.add(topic_id=topic_id, committed_offset=2, leader_epoch=-1)
        with pytest.raises(TidelogError) as caught:
            await cluster.call(
                coordinator, "GroupService/CommitOffsets", request.SerializeToString(), 5
            )
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
        asked = groups_pb2.FetchOffsetsRequest(group="g", member_epoch=-1).SerializeToString()
        with pytest.raises(TidelogError) as caught:
            # Nor is it shown: a failover could take it back.
            await cluster.call(coordinator, "GroupService/FetchOffsets", asked, 5)
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_the_next_coordinator_knows_the_very_last_commit_of_each_group() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 1, replicas=3)
        names = [f"group-{number}" for number in range(24)]
        for name in names:
            await groups.commit(name, {("t", 0): 1})
        # A follower hears of the watermark behind the last record with the next one only.
        for offset, name in enumerate(names, 2):
            await groups.commit(name, {("t", 0): offset})
        cluster.nodes[await groups.coordinator(names[-1])].kill()
        for offset, name in enumerate(names, 2):
            assert await groups.committed(name) == {(topic_id, 0): offset}

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_a_record_that_nobody_can_read_stops_the_groups_of_its_partition_only() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 1)
        await groups.commit("whole", {("t", 0): 1})
        await groups.commit("damaged", {("t", 0): 2})
        node = cluster.nodes[1].node
        assert node is not None
        replicas = node.view().replicas
        assert replicas is not None
        number = coordinator_partition("damaged", 16)
        assert number != coordinator_partition("whole", 16)
        replica = next(
            each
            for each in replicas
            if each.topic_name == "__groups" and each.log.key.partition == number
        )
        log = CoordinatorLog(replicas, replica.log.key, replica.leader_epoch)
        await log.append([(b"\xff", b"\xff")], wall_ms=1_000)
        cluster.nodes[1].kill()
        await cluster.nodes[1].restart()
        assert await groups.committed("whole") == {(topic_id, 0): 1}
        request = groups_pb2.FetchOffsetsRequest(group="damaged", member_epoch=-1)
        for _ in range(10):
            data = await cluster.call(1, "GroupService/FetchOffsets", request.SerializeToString())
            told = groups_pb2.FetchOffsetsResponse.FromString(data)
            assert int(told.error.code) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(10)

    Cluster(controllers=1, roles="controller,broker").run(work)
