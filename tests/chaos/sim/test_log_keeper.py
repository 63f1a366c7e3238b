"""The keeper of the log suite: which refusals rotten bytes explain."""

import pytest

from tidelog.chaos.sim import SeededRandom, SimulatedPorts, World
from tidelog.chaos.sim.log.keeper import LogKeeper
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.wire.errors import ErrorCode, TidelogError

SIDECAR = "t-0/00000000000000000000.sidecar"
LOG = "t-0/00000000000000000000.log"


@pytest.mark.parametrize(
    ("rotten", "named", "is_told"),
    [
        (SIDECAR, LOG, True),
        (SIDECAR, SIDECAR, False),
        (LOG, LOG, False),
        ("", LOG, False),
        (f"{SIDECAR}.new", LOG, True),
        (f"{LOG}.new", LOG, False),
    ],
)
def test_rot_in_what_is_derived_explains_no_refusal_of_the_log(
    rotten: str, named: str, is_told: bool
) -> None:
    world = World(1)

    async def live(ports: SimulatedPorts) -> None:
        del ports

    async def main() -> None:
        keeper = LogKeeper(world, world.machine("node"), "node", live, lambda: None)
        if rotten:
            keeper.note_rot(rotten)
        error = TidelogError(ErrorCode.STORAGE_CORRUPT, tried=f"read {named}", happened="damage")
        keeper.report(error)
        assert [text.split(":")[0] for text in keeper.violations] == ["false_corruption"] * is_told

    try:
        world.run(main())
    finally:
        world.close()


@pytest.mark.parametrize(("restarts", "is_told"), [(0, False), (1, False), (2, True)])
def test_rot_that_was_cut_off_explains_a_refusal_in_its_life_and_the_next_only(
    restarts: int, is_told: bool
) -> None:
    world = World(1)

    async def live(ports: SimulatedPorts) -> None:
        del ports

    async def main() -> None:
        machine = world.machine("node")
        keeper = LogKeeper(world, machine, "node", live, lambda: None)
        medium, inode = machine.medium(), Inode()
        inode.write(b"batch")
        inode.cover(inode.made)
        medium.flip_bit(LOG, inode, SeededRandom(1, "rot"), world.faults)
        keeper.note_rot(LOG)
        inode.truncate(0)
        inode.cover(inode.made)
        for _ in range(restarts):
            keeper.restart()
        keeper.report(TidelogError(ErrorCode.STORAGE_CORRUPT, tried=f"read {LOG}", happened="rot"))
        keeper.restart()
        assert [text.split(":")[0] for text in keeper.violations] == ["false_corruption"] * is_told

    try:
        world.run(main())
    finally:
        world.close()
