"""A coordinator that hears from no controller answers only what it can still vouch for."""

import asyncio

import pytest

from tests.broker.support.group_world import Groups, Member, settle
from tests.broker.support.hand_log import HandLog, turns
from tests.server.cluster.test_replicas_in_world import isolate
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.broker.coordination.proof import LeadershipProof
from tidelog.broker.groups.state.records import MEANINGLESS, decode_record
from tidelog.metadata_quorum.controller.brokers.sessions import SESSION_TIMEOUT_MS
from tidelog.v1 import errors_pb2, groups_pb2
from tidelog.wire.errors import ErrorCode, TidelogError


def proof_of(log: HandLog) -> LeadershipProof:
    return LeadershipProof(log, lambda: 0, noun="group", meaningless=MEANINGLESS)


def test_an_append_speaks_for_those_only_who_asked_before_it_began() -> None:
    async def work() -> None:
        log = HandLog()
        proof = proof_of(log)
        first = asyncio.ensure_future(proof.wait("asked by a test"))
        await turns()
        late = [asyncio.ensure_future(proof.wait("asked by a test")) for _ in range(3)]
        await turns()
        assert log.appends == [[MEANINGLESS]]
        await log.end(0)
        assert (first.done(), [each.done() for each in late]) == (True, [False] * 3)
        assert len(log.under_way) == 2
        await log.end(1)
        assert all(each.done() and each.exception() is None for each in late)

    asyncio.run(work())


def test_what_is_committed_in_another_epoch_shows_nothing() -> None:
    async def work() -> None:
        log = HandLog()
        asked = asyncio.ensure_future(proof_of(log).wait("asked by a test"))
        await turns()
        await log.end(0, leader_epoch=2)
        with pytest.raises(TidelogError) as caught:
            await asked
        assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "another epoch" in caught.value.happened

    asyncio.run(work())


def test_its_record_is_none_for_whoever_loads_the_log() -> None:
    assert decode_record(MEANINGLESS, None) is None


async def fetched(cluster: Cluster, number: int) -> groups_pb2.FetchOffsetsResponse:
    """What that broker answers about group g."""
    request = groups_pb2.FetchOffsetsRequest(group="g", member_epoch=-1).SerializeToString()
    data = await cluster.call(number, "GroupService/FetchOffsets", request, 5)
    return groups_pb2.FetchOffsetsResponse.FromString(data)


@pytest.mark.slow
def test_a_coordinator_that_was_replaced_behind_its_back_tells_no_old_offset() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 1, replicas=3)
        await groups.commit("g", {("t", 0): 1})
        old = await groups.coordinator("g")
        isolate(cluster, old)
        others = [number for number in cluster.nodes if number != old]
        groups.living = lambda: others  # type: ignore[method-assign]
        await groups.commit("g", {("t", 0): 2})
        assert await groups.committed("g") == {(topic_id, 0): 2}
        answer = await fetched(cluster, old)
        assert answer.error.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
        assert "heard from no controller" in answer.error.tried
        cluster.world.heal()

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_groups_go_on_without_a_controller() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 2, replicas=3)
        member = Member(groups, "g", "m", ["t"])
        await member.join()
        await settle([member])
        for number in (1, 2, 3):
            cluster.nodes[number].kill()
        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + 1)
        with pytest.raises(TidelogError):
            await member.beat()
        await member.join()
        await settle([member])
        for _ in range(20):
            await asyncio.sleep(0.5)
            await member.beat()
        assert await groups.commit("g", {("t", 0): 7}, member=member) == [0]
        assert await groups.committed("g") == {(topic_id, 0): 7}

    Cluster(controllers=3, brokers=3, brokers_expected=3).run(work)
