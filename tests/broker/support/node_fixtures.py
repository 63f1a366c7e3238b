"""Runs a test's coroutine against one node in a world without faults."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.broker.support.node_in_world import NodeLife, PlainClient
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.ports import Authorizer
from tidelog.server.settings.configuration import NodeConfiguration

Work = Callable[[PlainClient], Awaitable[None]]


def with_node(
    work: Work,
    *,
    settings: NodeConfiguration | None = None,
    authorizer: Authorizer | None = None,
    seed: int = 1,
) -> None:
    """Start a node, do the work as a client, look for anything that went wrong inside."""
    world = World(seed)
    life = NodeLife(settings, authorizer)

    async def main() -> None:
        process = world.machine("node").start("node", life.live)
        client = world.machine("client").start("client", _wait_forever)
        for _ in range(1_000):
            assert process.exit_error is None, process.exit_error
            if life.node is not None and life.node.is_ready:
                break
            await asyncio.sleep(0.01)
        await work(PlainClient(client.ports.network))

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()


async def _wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()
