"""Three voters with the real runner, core and state machine: leaders die while others write."""

import asyncio

import pytest

from tests.metadata_quorum.active.voters_world import CLUSTER_ID, Voters, simulate
from tidelog.chaos.sim import World
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import ClusterConfigurationRecord
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.ports import TaskScope


async def set_once(controller: ActiveController, name: str, value: str) -> str:
    """Set a setting that nobody else sets."""
    record = ClusterConfigurationRecord(changes={name: value})
    written = await controller.write(
        lambda _: Decision(records=(record,), answer=value), tried=f"set {name}", timeout_ms=5_000
    )
    return written.answer


async def add_one(controller: ActiveController) -> int:
    """Count up."""

    def decide(image: Image) -> Decision[int]:
        count = int(image.cluster_configuration.get("count", "0")) + 1
        record = ClusterConfigurationRecord(changes={"count": str(count)})
        return Decision(records=(record,), answer=count)

    written = await controller.write(decide, tried="count", timeout_ms=5_000)
    return written.answer


def test_one_voter_leads_and_decides_after_the_bootstrap_records() -> None:
    async def work(world: World) -> None:
        voters = Voters(world, 1)
        voter = await voters.active()
        assert voter.machine.image().cluster_id == CLUSTER_ID
        assert await voters.at_leader(add_one) == 1

    simulate(work)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_is_there_after_leaders_died(seed: int) -> None:
    acknowledged: dict[str, str] = {}
    counts: list[int] = []

    async def writer(voters: Voters, number: int) -> None:
        for turn in range(40):
            name, value = f"k{number}.{turn}", str(turn)
            acknowledged[name] = await voters.at_leader(lambda c: set_once(c, name, value))  # noqa: B023
            counts.append(await voters.at_leader(add_one))
            await asyncio.sleep(0.03)

    async def killer(voters: Voters) -> None:
        for _ in range(3):
            await asyncio.sleep(0.7)
            leader = await voters.active()
            leader.kill()
            await asyncio.sleep(0.5)
            leader.start()

    async def work(world: World) -> None:
        voters = Voters(world, 3)
        async with TaskScope() as scope:
            for number in range(4):
                scope.start(writer(voters, number), name=f"writer {number}")
            scope.start(killer(voters), name="killer")
        leader = await voters.active()
        image = leader.machine.image()
        for name, value in acknowledged.items():
            assert image.cluster_configuration.get(name) == value, f"{name} is lost"
        assert len(acknowledged) == 160
        assert len(dict.fromkeys(counts)) == len(counts), "two counted to the same number"
        assert int(image.cluster_configuration["count"]) >= len(counts)

    simulate(work, seed=seed)
