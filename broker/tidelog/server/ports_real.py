"""The real ports of one node, made and closed together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidelog.ports import AllowAll
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk import RealDisk, open_disk
from tidelog.ports.real.host import RealHost
from tidelog.ports.real.network import GrpcNetwork
from tidelog.ports.real.random import RealRandom
from tidelog.server.node_ports import NodePorts
from tidelog.server.storage_format import QUORUM_DIRECTORY


@asynccontextmanager
async def real_ports(data_dir: Path, *, is_controller: bool) -> AsyncIterator[NodePorts]:
    """Locks the data directory; lets everything go at the end, in the opposite order."""
    clock = RealClock()
    disk = await open_disk(data_dir)
    try:
        async with _quorum_disk(data_dir, is_controller=is_controller) as quorum_disk:
            network = GrpcNetwork(clock)
            try:
                yield NodePorts(
                    clock=clock,
                    random=RealRandom(),
                    disk=disk,
                    quorum_disk=quorum_disk,
                    network=network,
                    host=RealHost(),
                    authorizer=AllowAll(),
                )
            finally:
                await network.close()
    finally:
        await disk.shutdown()


@asynccontextmanager
async def _quorum_disk(data_dir: Path, *, is_controller: bool) -> AsyncIterator[RealDisk | None]:
    """A directory of its own in the data directory, with a lock and flush rounds of its own."""
    if not is_controller:
        yield None
        return
    disk = await open_disk(data_dir / QUORUM_DIRECTORY)
    try:
        yield disk
    finally:
        await disk.shutdown()
