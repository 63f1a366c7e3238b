"""The real ports of one node, made and closed together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidelog.ports import AllowAll
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk import open_disk
from tidelog.ports.real.host import RealHost
from tidelog.ports.real.network import GrpcNetwork
from tidelog.ports.real.random import RealRandom
from tidelog.server.node import NodePorts


@asynccontextmanager
async def real_ports(data_dir: Path) -> AsyncIterator[NodePorts]:
    """Locks the data directory; lets everything go at the end, in the opposite order."""
    clock = RealClock()
    disk = await open_disk(data_dir)
    try:
        network = GrpcNetwork(clock)
        try:
            yield NodePorts(
                clock=clock,
                random=RealRandom(),
                disk=disk,
                network=network,
                host=RealHost(),
                authorizer=AllowAll(),
            )
        finally:
            await network.close()
    finally:
        await disk.shutdown()
