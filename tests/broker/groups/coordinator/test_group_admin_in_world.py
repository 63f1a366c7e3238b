"""Groups for operators: any broker answers, whoever coordinates and leads."""

import asyncio

import pytest
from google.protobuf.message import Message

from tests.broker.support.group_world import Groups, Member, settle
from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.metrics_in_world import scrape, value
from tidelog.v1 import common_pb2, group_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow
EMPTY = group_admin_pb2.GROUP_STATE_EMPTY
STABLE = group_admin_pb2.GROUP_STATE_STABLE


async def altered(
    groups: Groups, group: str, offsets: dict[int, int], *, number: int = 1, dry: bool = False
) -> group_admin_pb2.AlterGroupOffsetsResponse:
    """Set offsets of partitions of `t`, by way of a node."""
    request = group_admin_pb2.AlterGroupOffsetsRequest(group=group, validate_only=dry)
    for partition, offset in offsets.items():
        request.offsets.add(
            topic_id=groups.topic_ids["t"],
            partition=partition,
            committed_offset=offset,
            leader_epoch=-1,
        )
    data = await groups.admin("AlterGroupOffsets", request, number)
    return group_admin_pb2.AlterGroupOffsetsResponse.FromString(data)


def test_every_broker_describes_a_group_with_members_offsets_and_lag() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 3, replicas=2)
        for partition in range(3):
            await groups.produce("t", partition, 10 + partition)
        members = [Member(groups, "g", f"m{number}", ["t"]) for number in (1, 2)]
        for each in members:
            await each.join()
        await settle(members)
        for each in members:
            await groups.commit("g", dict.fromkeys(each.owned, 4), member=each)
        coordinator = await groups.coordinator("g")
        for number in (1, 2, 3):
            found = await groups.described("g", number)
            assert not found.HasField("error"), found.error
            assert (found.state, found.coordinator_id) == (STABLE, coordinator)
            assert [each.member_id for each in found.members] == ["m1", "m2"]
            assert {each.member_epoch for each in found.members} == {found.group_epoch}
            assert [
                (each.topic_name, each.partition, each.committed_offset)
                for each in found.partitions
            ] == [("t", 0, 4), ("t", 1, 4), ("t", 2, 4)]
            assert [(each.high_watermark, each.lag) for each in found.partitions] == [
                (10, 6),
                (11, 7),
                (12, 8),
            ]
            assert {each.member_id for each in found.partitions} == {"m1", "m2"}
            missing = await groups.described("none", number)
            assert int(missing.error.code) == ErrorCode.GROUP_NOT_FOUND
        await groups.trim("t", 0, 8)
        (trimmed, *_) = (await groups.described("g")).partitions
        assert (trimmed.log_start_offset, trimmed.lag) == (8, 2), "what is gone is no lag"

    three(brokers_expected=3).run(work)


def test_a_thousand_groups_are_listed_in_pages_and_outlive_a_restart() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 1)
        await groups.produce("t", 0, 3)
        names = sorted(f"group-{number:04}" for number in range(1_000))
        await asyncio.gather(*(groups.commit(name, {("t", 0): 1}) for name in names))
        assert [each.group for each in await groups.listed()] == names
        await asyncio.sleep(6)
        listed = await groups.listed()
        assert {(each.state, each.lag) for each in listed} == {(EMPTY, 2)}
        found = await scrape(cluster, 1)
        assert value(found, "tidelog_groups", "empty") == 1_000
        assert value(found, "tidelog_group_commits") == 1_000
        assert value(found, "tidelog_group_coordinators", "loaded") == 16
        assert value(found, "tidelog_group_lag_records", "group-0999") == 2
        assert value(found, "tidelog_group_partition_lag_records", "group-0000", "t", "0") == 2
        cluster.nodes[1].kill()
        await cluster.nodes[1].restart()
        await groups.committed(names[0])
        page = group_admin_pb2.ListGroupsResponse()
        for _ in range(100):
            data = await groups.admin("ListGroups", group_admin_pb2.ListGroupsRequest())
            page = group_admin_pb2.ListGroupsResponse.FromString(data)
            if not page.missing_coordinators:
                break
            await asyncio.sleep(0.1)
        assert [each.group for each in page.groups] == names

    Cluster(controllers=1, roles="controller,broker").run(work)


def test_offsets_are_set_within_what_the_partitions_hold_all_or_none() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 2, replicas=2)
        await groups.produce("t", 0, 5)
        told = await altered(groups, "g", {0: 5, 1: 1})
        assert int(told.error.code) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert [int(each.error.code) for each in told.results] == [0, ErrorCode.OFFSET_OUT_OF_RANGE]
        assert "from 0 to the high watermark 0" in told.results[1].error.happened
        assert await groups.committed("g") == {}
        assert not (await altered(groups, "g", {0: 5}, dry=True)).HasField("error")
        assert await groups.committed("g") == {}
        for number in (1, 2, 3):
            told = await altered(groups, "g", {0: number}, number=number)
            assert not told.HasField("error"), told
            assert told.results[0].previous_offset == (number - 1 or -1)
        assert await groups.committed("g") == {(topic_id, 0): 3}
        member = Member(groups, "g", "m", ["t"])
        await member.join()
        told = await altered(groups, "g", {0: 1})
        assert int(told.error.code) == ErrorCode.GROUP_NOT_EMPTY

    three(brokers_expected=3).run(work)


def test_offsets_and_groups_are_forgotten_and_members_removed_from_any_broker() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 2)
        await groups.commit("g", {("t", 0): 0, ("t", 1): 0})
        forget = group_admin_pb2.DeleteGroupOffsetsRequest(
            group="g", topics=[common_pb2.TopicPartitions(topic_id=topic_id, partitions=[1])]
        )
        for number in (1, 2):
            data = await groups.admin("DeleteGroupOffsets", forget, number)
            (gone,) = group_admin_pb2.DeleteGroupOffsetsResponse.FromString(data).results
            assert not gone.HasField("error"), gone
        assert await groups.committed("g") == {(topic_id, 0): 0}
        member = Member(groups, "g", "m", ["t"])
        await member.join()
        await settle([member])
        delete = group_admin_pb2.DeleteGroupsRequest(groups=["g", "none"])
        data = await groups.admin("DeleteGroups", delete, 3)
        results = group_admin_pb2.DeleteGroupsResponse.FromString(data).results
        assert [int(each.error.code) for each in results] == [
            ErrorCode.GROUP_NOT_EMPTY,
            ErrorCode.GROUP_NOT_FOUND,
        ]
        remove = group_admin_pb2.RemoveMembersRequest(group="g")
        data = await groups.admin("RemoveMembers", remove, 3)
        removed = group_admin_pb2.RemoveMembersResponse.FromString(data)
        assert removed.removed_member_ids == ["m"]
        with pytest.raises(TidelogError) as caught:
            await member.beat()
        assert caught.value.code is ErrorCode.UNKNOWN_MEMBER
        data = await groups.admin("DeleteGroups", delete, 2)
        results = group_admin_pb2.DeleteGroupsResponse.FromString(data).results
        assert not results[0].HasField("error"), results[0]
        assert int((await groups.described("g")).error.code) == ErrorCode.GROUP_NOT_FOUND

    three(brokers_expected=3).run(work)


def test_groups_of_a_coordinator_that_is_not_there_are_left_out_and_counted() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 1)
        names = [f"group-{number}" for number in range(20)]
        for name in names:
            await groups.commit(name, {("t", 0): 0})
        led = [name for name in names if await groups.coordinator(name) == 2]
        assert led
        cluster.nodes[2].kill()
        await asyncio.sleep(3)
        data = await groups.admin("ListGroups", group_admin_pb2.ListGroupsRequest(), 1)
        page = group_admin_pb2.ListGroupsResponse.FromString(data)
        assert page.missing_coordinators == 8
        assert sorted(each.group for each in page.groups) == sorted(set(names) - set(led))
        gone = await groups.described(led[0], 1)
        assert int(gone.error.code) == ErrorCode.COORDINATOR_NOT_AVAILABLE

    Cluster(controllers=1, brokers=1, roles="controller,broker").run(work)


def test_the_list_knows_the_lag_of_a_group_that_has_just_committed() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 1)
        await groups.produce("t", 0, 5)
        assert await groups.commit("g", {("t", 0): 2}) == [0]
        (listed,) = await groups.listed()
        assert listed.lag == 3

    three(brokers_expected=3).run(work)


def test_in_a_cluster_that_never_had_a_group_none_is_found_and_nobody_is_to_try_again() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        for number in cluster.nodes:
            described = await groups.described("g", number)
            assert described.error.code == ErrorCode.GROUP_NOT_FOUND.value
            assert not described.error.retriable
            request = group_admin_pb2.DeleteGroupsRequest(groups=["g"])
            data = await groups.admin("DeleteGroups", request, number)
            (result,) = group_admin_pb2.DeleteGroupsResponse.FromString(data).results
            assert result.error.code == ErrorCode.GROUP_NOT_FOUND.value
        assert "__groups" not in await cluster.topics(1)

    three(brokers_expected=3).run(work)


def test_before_the_first_group_every_call_answers_as_for_a_group_that_is_not_there() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 2)
        await groups.produce("t", 0, 5)
        removed = group_admin_pb2.RemoveMembersResponse.FromString(
            await groups.admin("RemoveMembers", group_admin_pb2.RemoveMembersRequest(group="g"))
        )
        assert list(removed.removed_member_ids) == []
        forgotten = group_admin_pb2.DeleteGroupOffsetsResponse.FromString(
            await groups.admin(
                "DeleteGroupOffsets",
                group_admin_pb2.DeleteGroupOffsetsRequest(
                    group="g",
                    topics=[common_pb2.TopicPartitions(topic_id=topic_id, partitions=[0, 1])],
                ),
            )
        )
        assert [each.partition.partition for each in forgotten.results] == [0, 1]
        assert not any(each.HasField("error") for each in forgotten.results)
        told = await altered(groups, "g", {0: 3}, dry=True)
        assert not told.HasField("error"), told.error
        assert [each.previous_offset for each in told.results] == [-1]
        assert await groups.listed() == [], "looking makes nothing"
        for _ in range(20):
            told = await altered(groups, "g", {0: 3})
            if not told.error.retriable:
                break
            await asyncio.sleep(0.5)
        assert not told.HasField("error"), told.error
        assert await groups.committed("g") == {(topic_id, 0): 3}

    three(brokers_expected=3).run(work)


def test_without_a_majority_operators_are_answered_in_time_what_is_missing() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 1, replicas=3)
        await groups.produce("t", 0, 5)
        names = [f"g{number}" for number in range(12)]
        for name in names:
            await groups.commit(name, {("t", 0): 1})
        left = await groups.coordinator(names[0])
        # One after the other: the last one leads what the first one led.
        for number in groups.living():
            if number != left:
                cluster.nodes[number].kill()
                await asyncio.sleep(20)

        async def timed(method: str, request: Message) -> bytes:
            began_ns = cluster.world.loop.now_ns
            data = await groups.admin(method, request, left)
            took_ms = (cluster.world.loop.now_ns - began_ns) // 1_000_000
            assert took_ms <= 3_000, f"{method} took {took_ms} ms"
            return data

        listed = group_admin_pb2.ListGroupsResponse.FromString(
            await timed("ListGroups", group_admin_pb2.ListGroupsRequest())
        )
        assert listed.missing_coordinators > 0
        described = group_admin_pb2.DescribeGroupsResponse.FromString(
            await timed("DescribeGroups", group_admin_pb2.DescribeGroupsRequest(groups=names))
        )
        assert [each.group for each in described.groups] == names
        assert all(each.error.retriable for each in described.groups)
        deleted = group_admin_pb2.DeleteGroupsResponse.FromString(
            await timed("DeleteGroups", group_admin_pb2.DeleteGroupsRequest(groups=names))
        )
        assert [each.group for each in deleted.results] == names
        assert all(each.error.retriable for each in deleted.results)
        for method, request in (
            ("RemoveMembers", group_admin_pb2.RemoveMembersRequest(group=names[0])),
            (
                "DeleteGroupOffsets",
                group_admin_pb2.DeleteGroupOffsetsRequest(
                    group=names[0],
                    topics=[common_pb2.TopicPartitions(topic_id=topic_id, partitions=[0])],
                ),
            ),
        ):
            with pytest.raises(TidelogError) as caught:
                await timed(method, request)
            assert caught.value.retriable, method

    three(brokers_expected=3).run(work)
