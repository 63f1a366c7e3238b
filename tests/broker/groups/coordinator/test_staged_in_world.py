"""Offsets in transactions on whole nodes: sent, decided, kept through failovers."""

import asyncio
from collections.abc import Mapping

import pytest

from tests.broker.support.group_world import Groups, Member, refusal, settle
from tests.broker.support.transaction_world import ABORT, COMMIT, Transactions, sent
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.broker.coordination.log import CoordinatorLog
from tidelog.broker.transactions.state.answers import Identity
from tidelog.metadata.internal_topics import GROUPS_TOPIC
from tidelog.metadata_quorum.controller.topics import internal
from tidelog.v1 import metadata_admin_pb2, transactions_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.partitioner import coordinator_partition

TRIES = 200


async def send_offsets(
    groups: Groups,
    name: str,
    identity: Identity,
    offsets: Mapping[int, int],
    *,
    group: str = "g",
    member: Member | None = None,
) -> None:
    """Of topic t; again while that may help, the error otherwise."""
    request = transactions_pb2.SendOffsetsRequest(
        transactional_id=name, identity=sent(identity), group=group, member_epoch=-1
    )
    if member is not None:
        request.member_id, request.member_epoch = member.member_id, member.epoch
    for partition, offset in offsets.items():
        request.offsets.add(
            topic_id=await groups.topic_id("t"),
            partition=partition,
            committed_offset=offset,
            leader_epoch=-1,
        )
    for _ in range(TRIES):
        data = await groups.call(group, "SendOffsets", request, "TransactionService")
        answer = transactions_pb2.SendOffsetsResponse.FromString(data)
        if not answer.HasField("error"):
            return
        error = refusal(answer.error)
        if not error.retriable:
            raise error
        await asyncio.sleep(0.1)
    raise AssertionError(f"offsets of {name} are never taken")


async def decided(groups: Groups, group: str = "g") -> dict[int, int]:
    """What counts once every transaction is decided, by partition."""
    for _ in range(TRIES):
        found = await groups.stable(group)
        values = {at[1]: offset for at, offset in found.items()}
        if ErrorCode.CONCURRENT_TRANSACTIONS not in values.values():
            return {at: int(offset) for at, offset in values.items()}
        await asyncio.sleep(0.1)
    raise AssertionError(f"a transaction of {group} is never decided")


@pytest.mark.slow
def test_offsets_count_with_their_transaction_and_readers_wait_for_it() -> None:
    async def work(cluster: Cluster) -> None:
        groups, producer = Groups(cluster), Transactions(cluster)
        topic_id = await groups.topic("t", 3)
        member = Member(groups, "g", "m", ["t"])
        await member.join()
        await settle([member])
        await groups.commit("g", {("t", 0): 1, ("t", 1): 2}, member=member)
        first = await producer.init("x")
        await send_offsets(groups, "x", first, {0: 10}, member=member)
        await send_offsets(groups, "x", first, {2: 12}, member=member)
        assert await groups.stable("g") == {
            (topic_id, 0): ErrorCode.CONCURRENT_TRANSACTIONS,
            (topic_id, 1): 2,
            (topic_id, 2): ErrorCode.CONCURRENT_TRANSACTIONS,
        }
        assert await groups.committed("g") == {(topic_id, 0): 1, (topic_id, 1): 2}
        described = await groups.described("g")
        assert [each.undecided.transactional_id for each in described.partitions] == ["x", "", "x"]
        assert [each.undecided.offset for each in described.partitions] == [10, 0, 12]
        second = await producer.end("x", first, COMMIT)
        assert await decided(groups) == {0: 10, 1: 2, 2: 12}
        await send_offsets(groups, "x", second, {0: 20, 1: 21}, member=member)
        await producer.end("x", second, ABORT)
        assert await decided(groups) == {0: 10, 1: 2, 2: 12}

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
def test_a_stale_member_and_a_zombie_send_nothing() -> None:
    async def work(cluster: Cluster) -> None:
        groups, producer = Groups(cluster), Transactions(cluster)
        await groups.topic("t", 2)
        members = [Member(groups, "g", name, ["t"]) for name in ("m1", "m2")]
        for each in members:
            await each.join()
        await settle(members)
        identity = await producer.init("x")
        own = {partition: 5 for _, partition in members[0].owned}
        foreign = {partition: 5 for _, partition in members[1].owned}
        with pytest.raises(TidelogError) as caught:
            await send_offsets(groups, "x", identity, own | foreign, member=members[0])
        assert caught.value.code is ErrorCode.STALE_ASSIGNMENT
        assert f"t-{next(iter(foreign))}" in caught.value.happened, "in the words of people"
        await producer.init("x")
        with pytest.raises(TidelogError) as caught:
            await send_offsets(groups, "x", identity, own, member=members[0])
        assert caught.value.code is ErrorCode.FENCED_PRODUCER_EPOCH
        assert await groups.stable("g") == {}

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
@pytest.mark.parametrize("decision", [COMMIT, ABORT])
def test_what_is_staged_outlives_a_restart_and_is_decided_after_it(
    decision: transactions_pb2.TransactionDecision.ValueType,
) -> None:
    async def work(cluster: Cluster) -> None:
        groups, producer = Groups(cluster), Transactions(cluster)
        topic_id = await groups.topic("t", 2)
        identity = await producer.init("x")
        await groups.commit("g", {("t", 0): 1})
        await send_offsets(groups, "x", identity, {0: 10, 1: 11})
        await groups.commit("g", {("t", 1): 3})
        cluster.nodes[1].kill()
        await cluster.nodes[1].restart()
        held = ErrorCode.CONCURRENT_TRANSACTIONS
        assert await groups.stable("g") == {(topic_id, 0): held, (topic_id, 1): held}
        await producer.end("x", identity, decision)
        expected = {0: 10, 1: 11} if decision == COMMIT else {0: 1, 1: 3}
        assert await decided(groups) == expected
        cluster.nodes[1].kill()
        await cluster.nodes[1].restart()
        assert await decided(groups) == expected, "a load replays markers and folds in their order"

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_coordinator_killed_amid_transactions_tears_none_and_loses_none(seed: int) -> None:
    """Each transaction sends the same offset for both partitions: they never part."""

    async def work(cluster: Cluster) -> None:
        groups, producer = Groups(cluster), Transactions(cluster)
        await groups.topic("t", 2, replicas=3)
        identity = await producer.init("x")
        committed, is_over = 0, False
        tears: list[object] = []

        async def transact() -> None:
            nonlocal identity, committed
            number = 0
            while not is_over:
                number += 1
                await send_offsets(groups, "x", identity, {0: number, 1: number})
                decision = ABORT if number % 3 == 0 else COMMIT
                identity = await producer.end("x", identity, decision)
                if decision == COMMIT:
                    committed = number

        async def look() -> None:
            while not is_over:
                found = await groups.stable("g")
                values = {at[1]: offset for at, offset in found.items()}
                is_torn = len({*values.values()}) > 1
                is_aborted = any(int(each) % 3 == 0 for each in values.values())
                if ErrorCode.CONCURRENT_TRANSACTIONS in values.values():
                    pass
                elif is_torn or is_aborted:
                    tears.append(values)
                await asyncio.sleep(0.05)

        tasks = [asyncio.create_task(transact()), asyncio.create_task(look())]
        await cluster.wait(lambda: committed > 4)
        await asyncio.sleep(seed * 0.037)
        first = await groups.coordinator("g")
        cluster.nodes[first].kill()
        at_kill = committed
        await cluster.wait(lambda: committed > at_kill + 3)
        is_over = True
        for task in tasks:
            await task
        assert await decided(groups) == {0: committed, 1: committed}
        assert not tears
        await cluster.nodes[first].restart()
        assert await decided(groups) == {0: committed, 1: committed}

    three(brokers_expected=3, seed=seed).run(work)


SMALL = {
    "cleanup.policy": "compact",
    "flush": "sync",
    "segment.bytes": "2048",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
"""So that the log of groups is compacted while a test looks."""


async def records_of(cluster: Cluster, group: str) -> int:
    """How many the log of the group's coordinator holds."""
    node = cluster.nodes[1].node
    assert node is not None
    replicas = node.view().replicas
    assert replicas is not None
    number = coordinator_partition(group, 16)
    replica = next(
        each
        for each in replicas
        if each.topic_name == GROUPS_TOPIC and each.log.key.partition == number
    )
    log = CoordinatorLog(replicas, replica.log.key, replica.leader_epoch)
    return await log.load(lambda key, value: None)


@pytest.mark.slow
def test_trap_15_compaction_leaves_what_markers_have_decided_and_what_none_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(internal._SETTINGS, GROUPS_TOPIC, SMALL)

    async def work(cluster: Cluster) -> None:
        groups, producer = Groups(cluster), Transactions(cluster)
        topic_id = await groups.topic("t", 3)
        await groups.commit("g", {("t", 0): 1})
        identity = await producer.init("x", timeout_ms=600_000)
        waiting = await producer.init("y", timeout_ms=600_000)
        await send_offsets(groups, "y", waiting, {2: 77})
        last = 0
        for number in range(1, 60):
            await send_offsets(groups, "x", identity, {0: number})
            await groups.commit("g", {("t", 0): 1_000 + number, ("t", 1): number})
            is_aborted = number % 2 == 0
            identity = await producer.end("x", identity, ABORT if is_aborted else COMMIT)
            last = 1_000 + number if is_aborted else number
        await send_offsets(groups, "x", identity, {1: 88})
        await asyncio.sleep(60)
        held = ErrorCode.CONCURRENT_TRANSACTIONS
        expected = {(topic_id, 0): last, (topic_id, 1): held, (topic_id, 2): held}
        assert await groups.stable("g") == expected
        cluster.nodes[1].kill()
        await cluster.nodes[1].restart()
        assert await groups.stable("g") == expected
        await producer.end("x", identity, COMMIT)
        await producer.end("y", waiting, COMMIT)
        assert await decided(groups) == {0: last, 1: 88, 2: 77}
        await asyncio.sleep(60)
        assert await records_of(cluster, "g") < 150, "it was compacted"
        cluster.nodes[1].kill()
        await cluster.nodes[1].restart()
        assert await decided(groups) == {0: last, 1: 88, 2: 77}

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
def test_transactions_that_are_off_take_no_offsets() -> None:
    async def work(cluster: Cluster) -> None:
        groups, producer = Groups(cluster), Transactions(cluster)
        await groups.topic("t", 1)
        identity = await producer.init("x")
        request = metadata_admin_pb2.FinaliseFeaturesRequest(allow_downgrade=True)
        request.levels.add(name="transaction.version", level=0)
        method = "MetadataAdminService/FinaliseFeatures"
        await cluster.call(1, method, request.SerializeToString())
        with pytest.raises(TidelogError) as caught:
            await send_offsets(groups, "x", identity, {0: 5})
        assert caught.value.code is ErrorCode.NOT_IMPLEMENTED

    Cluster(controllers=1, roles="controller,broker").run(work)
