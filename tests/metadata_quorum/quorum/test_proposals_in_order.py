"""Proposals of one proposer build upon each other: none is taken after one that was refused."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.metadata_quorum.quorum.quorum_world import (
    BOOTSTRAP,
    Life,
    SimulatedQuorum,
    member_id,
    options,
)
from tidelog.chaos.sim.world.world import World
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.wire.errors import ErrorCode, TidelogError

Outcome = int | ErrorCode


@pytest.fixture
def world() -> Iterator[World]:
    made = World(1)
    yield made
    assert made.findings() == []
    made.close()


async def _propose(leader: Life, data: bytes, proposer: int) -> Outcome:
    try:
        return await leader.up.propose(data, term=leader.up.describe().term, proposer=proposer)
    except TidelogError as error:
        return error.code


async def _propose_in_turn(leader: Life, commands: list[bytes], proposer: int) -> list[Outcome]:
    """Each is with the quorum before the next one comes, and has no outcome yet."""
    under_way: list[asyncio.Task[Outcome]] = []
    for command in commands:
        entered = asyncio.Event()

        async def one(command: bytes = command, entered: asyncio.Event = entered) -> Outcome:
            entered.set()
            return await _propose(leader, command, proposer)

        under_way.append(asyncio.create_task(one()))
        await entered.wait()
    return [await each for each in under_way]


async def _elected(quorum: SimulatedQuorum) -> Life:
    """So soon that nothing but the election has happened."""
    for _ in range(50_000):
        if (leader := quorum.leader_now()) is not None:
            return leader
        await asyncio.sleep(0.0002)
    raise AssertionError("no leader was elected")


TOO_MUCH = [b"first", b"x" * 900, b"third"]
"""The second one is more than the leader takes while the first one is not committed."""


def test_what_follows_on_a_refused_proposal_is_refused_as_well(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3, options=options(uncommitted_bytes_max=500))

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        first, second, third = await _propose_in_turn(leader, TOO_MUCH, 1)
        assert isinstance(first, int)
        assert (second, third) == (ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.UNAVAILABLE)
        assert await _propose(leader, b"late", proposer=1) is ErrorCode.UNAVAILABLE
        assert isinstance(await _propose(leader, b"anew", proposer=2), int)
        assert leader.machine.commands == [BOOTSTRAP, b"first", b"anew"]

    world.run(story())


def test_proposals_that_stand_alone_are_taken_each_for_itself(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3, options=options(uncommitted_bytes_max=500))

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        first, second, third = await _propose_in_turn(leader, TOO_MUCH, 0)
        assert isinstance(first, int)
        assert second is ErrorCode.RESOURCE_EXHAUSTED
        assert isinstance(third, int)

    world.run(story())


def test_a_first_command_that_is_refused_is_proposed_again(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> None:
        for node in (1, 2):
            quorum.lives[node].start()
        leader = await _elected(quorum)
        term = leader.up.describe().term
        assert leader.machine.commands == [], "the first command is not proposed yet"
        with pytest.raises(TidelogError) as caught:
            await leader.up.transfer(member_id(3), timeout_ms=5_000)
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
        await asyncio.sleep(1)
        assert leader.up.describe().term == term
        assert leader.machine.commands == [BOOTSTRAP]

    world.run(story())


def test_a_proposal_that_does_not_even_reach_the_queue_cuts_off_those_after_it(
    world: World,
) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3, limits=QuorumLimits(requests_waiting_max=1))

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        outcomes = await _propose_in_turn(leader, [b"x", b"x"], 1)
        assert isinstance(outcomes[0], int)
        assert outcomes[1] is ErrorCode.RESOURCE_EXHAUSTED
        assert await _propose(leader, b"y", 1) is ErrorCode.UNAVAILABLE

    world.run(story())
