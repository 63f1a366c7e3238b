"""Producer ids for coordinators: each once, in ascending order, however the controller fares."""

import asyncio

from tests.broker.support.transaction_glue import Ids
from tidelog.broker.transactions.coordinator.id_blocks import ProducerIdBlocks
from tidelog.chaos.sim import World
from tidelog.chaos.sim.ports.clock import SimulatedClock


def test_ids_are_shared_out_once_and_a_controller_that_is_gone_is_asked_again() -> None:
    world = World(1)
    clock = SimulatedClock(world.loop, world.machine("node"))

    async def work() -> None:
        ids = Ids(count=150)
        ids.seconds = [2.0, 1.0, 0.5, 0.2]
        blocks = ProducerIdBlocks(ids, clock)
        granted = await asyncio.gather(*(blocks.take(100) for _ in range(4)))
        assert sorted(granted) == [(5_000, 100), (5_100, 50), (5_150, 100), (5_250, 50)]
        ids.is_there = False
        waiting = asyncio.ensure_future(blocks.take(10))
        await asyncio.sleep(60)
        assert not waiting.done()
        ids.is_there = True
        assert await waiting == (5_300, 10)
        # One that gives up waiting takes nothing along.
        ids.is_there = False
        assert await blocks.take(200) == (5_310, 140)
        waiting = asyncio.ensure_future(blocks.take(10))
        await asyncio.sleep(1)
        waiting.cancel()
        ids.is_there = True
        assert await blocks.take(10) == (5_450, 10)

    try:
        world.run(work())
    finally:
        world.close()
