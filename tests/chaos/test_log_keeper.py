"""The keeper of the log suite: which refusals rotten bytes explain."""

import pytest

from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.log.keeper import LogKeeper
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
        keeper.rotten_path = rotten
        error = TidelogError(ErrorCode.STORAGE_CORRUPT, tried=f"read {named}", happened="damage")
        keeper.report(error)
        assert [text.split(":")[0] for text in keeper.violations] == ["false_corruption"] * is_told

    try:
        world.run(main())
    finally:
        world.close()
