"""The scene of a message that is held: its caller has long given it up when it arrives."""

import asyncio

from tests.chaos.support.fault_scenarios import COUNT, Toy, client, outcome
from tidelog.chaos.sim import World


async def held_message(world: World) -> bool:
    """The caller hears nothing in time, and what it asked for is done all the same."""
    world.fabric.held_methods = frozenset({COUNT.rpartition("/")[2]})
    toy = Toy()
    world.machine("node").start("node", toy.live)
    ports = client(world).ports
    await asyncio.sleep(0.1)
    told = await outcome(ports, COUNT, timeout_ms=1_200)
    await asyncio.sleep(10)
    return told != "answered" and toy.counted == 1
