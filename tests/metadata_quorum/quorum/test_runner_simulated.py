"""The runner over simulated ports: several processes, one network, virtual time."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.metadata_quorum.quorum.quorum_world import (
    BOOTSTRAP,
    SimulatedQuorum,
    address,
    member_id,
    members,
)
from tidelog.chaos.sim import SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.metadata_quorum.quorum.wire import messages
from tidelog.metadata_quorum.quorum.wire.route import Identity
from tidelog.metadata_quorum.raft.bounds import NUMBER_MAX, TERM_STEP_MAX
from tidelog.metadata_quorum.raft.messages import AppendRequest, VoteRequest
from tidelog.metadata_quorum.raft.types import NO_INDEX, NO_TERM
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Term


@pytest.fixture(params=[1, 2, 3])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    assert made.findings() == []
    made.close()


def test_a_single_voter_leads_within_milliseconds(world: World) -> None:
    quorum = SimulatedQuorum(world, 1)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        assert leader.machine.commands == [BOOTSTRAP]

    begun_ns = world.loop.now_ns
    world.run(story())
    assert world.loop.now_ns - begun_ns < 100_000_000


def test_three_voters_elect_a_leader_and_replicate_to_all(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> list[bytes]:
        quorum.start()
        await quorum.leader()
        for number in range(20):
            await quorum.propose(b"%d" % number)
        return await quorum.agree()

    assert world.run(story()) == [BOOTSTRAP, *(b"%d" % number for number in range(20))]


def test_writes_go_on_soon_after_the_leader_is_killed(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> float:
        quorum.start()
        leader = await quorum.leader()
        await quorum.propose(b"before")
        leader.kill()
        begun_s = world.loop.time()
        await quorum.propose(b"after")
        took_s = world.loop.time() - begun_s
        leader.start()
        assert await quorum.agree() == [BOOTSTRAP, b"before", b"after"]
        return took_s

    assert world.run(story()) < 1.0


def test_a_restarted_quorum_finds_everything_again(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> list[bytes]:
        quorum.start()
        await quorum.leader()
        for number in range(5):
            await quorum.propose(b"%d" % number)
        for life in quorum.lives.values():
            life.kill()
        quorum.start()
        await quorum.leader()
        await quorum.propose(b"again")
        return await quorum.agree()

    assert world.run(story())[-1] == b"again"
    assert quorum.lives[1].storage.bootstrap == members(1, 2, 3)


@pytest.mark.parametrize("number", [TERM_STEP_MAX * 2, NUMBER_MAX, 1 << 63, (1 << 64) - 1])
def test_forged_terms_are_refused_and_every_node_goes_on(world: World, number: int) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)
    stranger = world.machine("stranger").start("stranger", _idle).ports.network
    codes: list[ErrorCode] = []

    async def forge(node: int) -> None:
        sender, receiver = member_id(node % 3 + 1), member_id(node)
        here = Identity(cluster_id=quorum.lives[node].storage.cluster_id, member_id=sender)
        vote = VoteRequest(
            sender=sender,
            receiver=receiver,
            term=Term(number),
            last_index=NO_INDEX,
            last_term=NO_TERM,
            is_pre_vote=False,
            is_leadership_transfer=True,
        )
        append = AppendRequest(
            sender=sender,
            receiver=receiver,
            term=Term(number),
            previous_index=NO_INDEX,
            previous_term=NO_TERM,
            entries=(),
            commit_index=NO_INDEX,
            round=1,
        )
        with pytest.raises(TidelogError) as caught:
            await stranger.call(
                address(node),
                "/tidelog.v1.QuorumService/RequestVote",
                messages.encode_vote_request(here, vote),
                timeout_ms=2_000,
            )
        codes.append(caught.value.code)
        stream = stranger.stream(address(node), "/tidelog.v1.QuorumService/AppendEntries")
        await stream.send(messages.encode_append_request(here, append))
        with pytest.raises(TidelogError) as caught:
            await stream.receive()
        codes.append(caught.value.code)

    async def story() -> None:
        quorum.start()
        await quorum.leader()
        for node in (1, 2, 3):
            await forge(node)
        await quorum.propose(b"after")
        await quorum.agree()

    world.run(story())
    assert codes == [ErrorCode.INVALID_ARGUMENT] * 6
    assert {life.up.describe().term for life in quorum.lives.values()} <= {1, 2, 3}


async def _idle(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()
