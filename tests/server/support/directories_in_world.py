"""One node with several data directories in a simulated world, over all its lives."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from tests.broker.support.node_in_world import (
    PlainClient,
    configuration,
    formatted,
    partition_batch,
    sealed,
)
from tidelog.broker.log.names import parse_directory_name
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.ports.medium import Medium
from tidelog.chaos.sim.world.process import Process
from tidelog.metadata.image.image import BrokerImage, Image
from tidelog.server.node.node import Node
from tidelog.server.ports.node import FurtherDisk, NodePorts
from tidelog.server.storage.format import read_identity
from tidelog.server.storage.log_directories import format_log_disks
from tidelog.v1 import common_pb2, partition_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

DATA: Final = "data"
FURTHER: Final = ("disk1", "disk2")
SETTINGS: Final = {
    "housekeeping__check_interval_ms": "200",
    "housekeeping__free_check_interval_ms": "200",
}


class Directories:
    """A node on `data`, `disk1` and `disk2`; a new process by `start`."""

    def __init__(self, world: World, client: PlainClient, settings: Mapping[str, str]) -> None:
        self.world = world
        self.client = client
        self.machine = world.machine("node")
        self.missing: dict[str, None] = {}
        """Further directories that cannot be opened: their disks are not mounted."""
        self.unformatted: dict[str, None] = {}
        """Further directories that the harness does not format."""
        self.log_dirs: tuple[str, ...] = FURTHER
        self.node: Node | None = None
        self.error: TidelogError | None = None
        self.process: Process | None = None
        self._settings = configuration(**{**SETTINGS, **settings})

    async def start(self, *, waits: bool = True) -> None:
        """Until it is ready, unless it is to be refused."""
        self.node, self.error = None, None
        self.process = self.machine.start("node", self._live)
        if waits:
            await self.wait(lambda: self.node is not None and self.node.is_ready)

    def kill(self) -> None:
        """As kill -9."""
        assert self.process is not None
        self.process.kill()

    async def stop(self) -> None:
        """In order."""
        assert self.node is not None
        assert self.process is not None
        process = self.process
        self.node.request_stop()
        await self.wait(lambda: process.is_dead)
        assert process.exit_error is None, process.exit_error

    async def refused(self) -> TidelogError:
        """Why a start is refused; no directory is touched by it."""
        before = self.content()
        await self.start(waits=False)
        await self.wait(lambda: self.error is not None)
        assert self.process is not None
        self.process.kill()
        assert self.content() == before
        assert self.error is not None
        return self.error

    async def _live(self, ports: SimulatedPorts) -> None:
        try:
            self.node = Node(self._settings, await self._ports(ports))
            await self.node.run(lambda ready: None)
        except TidelogError as error:
            self.error = error

    async def _ports(self, ports: SimulatedPorts) -> NodePorts:
        disk = ports.open_disk(DATA)
        node_ports = await formatted(ports, disk, ports.open_disk("quorum"))
        further = [self._further(ports, name) for name in self.log_dirs]
        own = [each.disk for each in further if each.disk and each.path not in self.unformatted]
        if own:
            await format_log_disks(own, await read_identity(disk, 1), ports.random)
        return msgspec.structs.replace(node_ports, further_disks=tuple(further))

    def _further(self, ports: SimulatedPorts, name: str) -> FurtherDisk:
        if name in self.missing:
            error = TidelogError(
                ErrorCode.STORAGE_FAILED, tried=f"open {name}", happened="it is not there"
            )
            return FurtherDisk(path=name, failure=error)
        return FurtherDisk(path=name, disk=ports.open_disk(name))

    # -- what is there ---------------------------------------------------------------------------

    def medium(self, name: str) -> Medium:
        """A directory's disk."""
        return self.machine.medium(name)

    def content(self) -> dict[str, bytes]:
        """Every byte of every directory."""
        return {
            f"{name}/{path}": bytes(inode.seen)
            for name, medium in self.machine.media.items()
            for path, inode in medium.files()
        }

    def partitions_in(self, name: str, topic_id: bytes) -> list[int]:
        """The numbers of the topic's partitions that have files in a directory."""
        keys = [
            parse_directory_name(path.partition("/")[0] + "/")
            for path, _ in self.medium(name).files()
            if "/" in path
        ]
        return sorted({key.partition for key in keys if key and key.topic_id == topic_id})

    def image(self) -> Image:
        """As the node sees the metadata."""
        assert self.node is not None
        image = self.node.view().image
        assert image is not None
        return image

    def broker(self) -> BrokerImage:
        """As the controller knows it."""
        (broker,) = self.image().brokers.values()
        return broker

    def online(self) -> list[bool]:
        """Of each directory that the controller knows."""
        return [each.is_online for each in self.broker().directories]

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Until it holds."""
        for _ in range(3_000):
            if condition():
                return
            assert self.error is None or self.node is None, self.error
            await asyncio.sleep(0.01)
        raise AssertionError("it never came to that")

    async def elect_unclean(self, topic_id: bytes, partition: int) -> None:
        """The operator gives up what the partition had."""
        request = partition_admin_pb2.ElectLeadersRequest(
            kind=partition_admin_pb2.ELECTION_KIND_UNCLEAN,
            topics=[common_pb2.TopicPartitions(topic_id=topic_id, partitions=[partition])],
            broker_id=-1,
        )
        answer = await self.client.call(
            "PartitionAdminService/ElectLeaders", request.SerializeToString()
        )
        (result,) = partition_admin_pb2.ElectLeadersResponse.FromString(answer).results
        assert not result.HasField("error"), result

    async def write(self, topic_id: bytes, partition: int, value: bytes) -> int:
        """The error's code; 0: it was stored."""
        (answer,) = await self.client.produce(partition_batch(topic_id, partition, sealed([value])))
        return answer.error.code

    async def values(self, topic_id: bytes, partition: int) -> list[bytes]:
        """Of every record, in order."""
        return [value for _, value in await self.client.read_all(topic_id, partition)]


def run_directories(
    work: Callable[[Directories], Coroutine[Any, Any, None]], *, seed: int = 7, **settings: str
) -> None:
    """In a world without faults; nothing that went wrong inside stays unseen."""
    world = World(seed)

    async def forever(ports: SimulatedPorts) -> None:
        del ports
        await asyncio.Event().wait()

    async def main() -> None:
        process = world.machine("client").start("client", forever)
        await work(Directories(world, PlainClient(process.ports.network), settings))

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()
