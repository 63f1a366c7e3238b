"""The runner over simulated ports: several processes, one network, virtual time."""

from collections.abc import Iterator

import pytest

from tests.metadata_quorum.quorum.quorum_world import BOOTSTRAP, SimulatedQuorum, members
from tidelog.chaos.sim.world.world import World


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
