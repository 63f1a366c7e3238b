"""What only the quorum's leader may answer, while it is not sure that it leads or has committed."""

import pytest

from tests.metadata_quorum.active.controller_world import Scene, run
from tests.metadata_quorum.active.fake_quorum import member_id
from tidelog.metadata_quorum.admin.brokers import BrokerExecution
from tidelog.metadata_quorum.admin.quorum import QuorumAdmin
from tidelog.metadata_quorum.controller.brokers.clock import ClockShown
from tidelog.metadata_quorum.raft.types import Member, Members
from tidelog.ports import RequestContext
from tidelog.v1 import broker_admin_pb2, quorum_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

CONTEXT = RequestContext(
    principal="p", listener="client", client_id="c", address="a:1", deadline_ns=0
)


def _members(*voters: int, learners: tuple[int, ...] = ()) -> Members:
    return Members(
        tuple(
            Member(id=member_id(each), address=f"n{each}:1", is_learner=each in learners)
            for each in (*voters, *learners)
        )
    )


async def _add(scene: Scene, node_id: int) -> None:
    request = quorum_admin_pb2.AddVoterRequest(
        node_id=node_id, directory_uuid=member_id(node_id).directory_uuid
    )
    admin = QuorumAdmin(scene.controller, lambda: ())
    await admin.add_voter(CONTEXT, request.SerializeToString(), 1_000)


async def _remove(scene: Scene, node_id: int) -> None:
    request = quorum_admin_pb2.RemoveVoterRequest(
        node_id=node_id, directory_uuid=member_id(node_id).directory_uuid
    )
    admin = QuorumAdmin(scene.controller, lambda: ())
    await admin.remove_voter(CONTEXT, request.SerializeToString(), 1_000)


def test_a_voter_whose_promotion_is_not_committed_is_not_confirmed_before_it_is() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        scene.quorum.members = _members(1, 2, 3, 4)
        scene.quorum.committed_members = _members(1, 2, 3, learners=(4,))
        await _add(scene, 4)
        assert "promote" in scene.quorum.calls, "the quorum answers when it is committed"

    run(work)


def test_a_removal_that_is_not_committed_may_be_asked_for_again_and_waits_for_it() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        scene.quorum.members = _members(1, 2)
        scene.quorum.committed_members = _members(1, 2, 3)
        await _remove(scene, 3)
        assert "remove_member" in scene.quorum.calls, "the quorum answers when it is committed"

    run(work)


def test_a_voter_that_nobody_knows_is_not_removed() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        for ask in (_add, _remove):
            with pytest.raises(TidelogError) as caught:
                await ask(scene, 9)
            assert caught.value.code is ErrorCode.UNKNOWN_VOTER
            assert "The members are 1:" in caught.value.hint

    run(work)


def test_a_leader_that_nobody_hears_lists_no_brokers() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        brokers = BrokerExecution(scene.controller, lambda _: -1, lambda _: ClockShown())
        request = broker_admin_pb2.ListBrokersRequest().SerializeToString()
        listed = await brokers.list_brokers(CONTEXT, request, 1_000)
        assert listed.applied_index == scene.controller.image().version
        scene.quorum.is_cut_off = True
        with pytest.raises(TidelogError) as caught:
            await brokers.list_brokers(CONTEXT, request, 1_000)
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED

    run(work)
