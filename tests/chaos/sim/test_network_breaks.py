"""A stream that breaks never looks to its caller like one that its handler ended."""

import asyncio

import pytest

from tidelog.chaos.sim import FaultKind, SimulatedPorts, World
from tidelog.ports import Listener, PeerUnreachable, RequestContext, Stream, StreamMethod

METHOD = "/toy.v1.ToyService/Talk"
ADDRESS = "node:9000"


async def wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


def talk_over_a_cut(seed: int, source: str, target: str) -> list[bytes | None]:
    """What the caller receives on a stream of which one direction is cut."""
    world = World(seed)
    node = world.machine("node").start("node", wait_forever)
    client = world.machine("client").start("client", wait_forever)

    async def handler(_: RequestContext, stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            await stream.send(message)

    async def scene() -> list[bytes | None]:
        listener = Listener(name="client", bind=ADDRESS)
        await node.ports.network.serve(listener, {METHOD: StreamMethod(handler)})
        stream = client.ports.network.stream(ADDRESS, METHOD)
        await stream.send(b"x")
        received = [await stream.receive()]
        world.fabric.cut(source, target, FaultKind.PARTITION_ONE_WAY)
        with pytest.raises(PeerUnreachable):
            received.append(await stream.receive())
        return received

    try:
        return world.run(scene())
    finally:
        world.close()


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("client", "node"), ("node", "client")])
def test_a_cut_in_one_direction_breaks_a_stream_and_does_not_end_it(
    source: str, target: str
) -> None:
    for seed in range(200):
        assert talk_over_a_cut(seed, source, target) == [b"x"]
