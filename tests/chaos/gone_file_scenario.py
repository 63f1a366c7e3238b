"""The scene of a file that another program takes away; beside the others for its length alone."""

from tests.chaos.support.fault_scenarios import flushed_file, listed_again
from tidelog.chaos.sim import FaultKind, World


async def gone_file(world: World) -> bool:
    """What was flushed has no name any more, also after a crash of the machine."""
    process = await flushed_file(world)
    if world.faults.is_active(FaultKind.GONE_FILE):
        process.machine.medium().take_away("log", world.faults)
    process.machine.crash()
    return "log" not in await listed_again(process)
