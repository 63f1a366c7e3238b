"""One node of a test cluster over all its lives: what keeps its directory and its ports.

Owns how a life ends: in order, by a kill (sockets and tasks drop, nothing is flushed, no marker is
written), by a crash (a kill, and what no flush covered is gone, under another boot id). It must
never leave a thread, a file or a socket of a life behind.
"""

import asyncio
import contextvars
import enum
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelog.ports import AllowAll, Listener, Method
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk.disk import RealDisk, open_disk
from tidelog.ports.real.disk.flush import Flusher
from tidelog.ports.real.host import RealHost
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.network.server import GrpcServer
from tidelog.ports.real.random import RealRandom
from tidelog.ports.real.worker.worker import ProcessWorker
from tidelog.server.node.node import Node, NodePorts
from tidelog.server.settings.configuration import Listeners, ListenerSettings, NodeConfiguration
from tidelog.server.storage.format import QUORUM_DIRECTORY, is_formatted
from tidelog.server.storage.formatting import FormatOptions, format_disks
from tidelog.testing.disk import Flushed, RememberingDisk
from tidelog.testing.loop import OWNER, ClusterLoop, Owner
from tidelog.testing.ports import HeldPort, break_connections
from tidelog.wire.errors import ErrorCode, TidelogError

_log: Final = logging.getLogger(__name__)

KILL_S: Final = 10.0
STOP_S: Final = 20.0
DIRECTORIES_PER_NODE: Final = 2
"""Data and quorum."""


class NodeState(enum.Enum):
    """How a node is."""

    NEW = "not started"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    KILLED = "killed"
    CRASHED = "crashed"
    FAILED = "ended by itself"


class TestHost:
    """The machine's facts, but for the boot id, which a crash changes."""

    __test__ = False

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self._host = RealHost()

    def boot_id(self) -> str:
        """Changes with each crash of the node."""
        return self._boot_id

    def host_name(self) -> str:
        """For placement and messages only; never an address."""
        return self._host.host_name()


class TestNetwork(GrpcNetwork):
    """Knows its listeners: a node that is killed may not come to the end of stopping them."""

    __test__ = False

    def __init__(self, clock: RealClock) -> None:
        super().__init__(clock)
        self._servers: list[GrpcServer] = []

    async def serve(self, listener: Listener, methods: Mapping[str, Method]) -> GrpcServer:
        """Serve methods by full name."""
        server = await super().serve(listener, methods)
        self._servers.append(server)
        return server

    async def stop_servers(self) -> None:
        """Whatever has been stopped before."""
        servers, self._servers = self._servers, []
        await let_go(*(partial(server.stop, 0) for server in servers))


class ClusterNode:
    """Used on the cluster's loop only, by one task at a time."""

    def __init__(
        self,
        number: int,
        directory: Path,
        loop: ClusterLoop,
        on_failed: Callable[["ClusterNode", BaseException], None],
        descriptors_max: int,
    ) -> None:
        self.number = number
        self.state = NodeState.NEW
        self.node: Node | None = None
        """Of the present life, or of the last one."""
        self.client_port = HeldPort()
        self.cluster_port = HeldPort()
        self.directory = directory
        self._loop = loop
        self._on_failed = on_failed
        self._descriptors_max = descriptors_max
        self._configuration: NodeConfiguration | None = None
        self._options: FormatOptions | None = None
        self._flushed = Flushed(directory), Flushed(directory / QUORUM_DIRECTORY)
        self._crashes = 0
        self._owner = Owner()
        self._disks: list[RememberingDisk] = []
        self._network: TestNetwork | None = None
        self._life: asyncio.Task[None] | None = None
        self._is_ending = False

    @property
    def is_up(self) -> bool:
        """Whether it has a process, so to say."""
        return self.state in (NodeState.RUNNING, NodeState.PAUSED)

    def prepare(self, configuration: NodeConfiguration, options: FormatOptions) -> None:
        """What it starts with, each time."""
        client, cluster = (
            ListenerSettings(bind=port.address) for port in (self.client_port, self.cluster_port)
        )
        self._configuration = msgspec.structs.replace(
            configuration,
            node_id=self.number,
            data_dir=str(self.directory),
            listeners=Listeners(client=client, cluster=cluster),
        )
        self._options = msgspec.structs.replace(
            options, node_id=self.number, data_dir=str(self.directory)
        )

    async def start(self) -> None:
        """Begin a life; returns when it serves."""
        assert not self.is_up, f"node {self.number} has no life"
        self._owner = Owner()
        self._is_ending = False
        context = contextvars.copy_context()
        context.run(OWNER.set, self._owner)
        ready = asyncio.Event()
        for port in (self.client_port, self.cluster_port):
            port.make_room()
        self._life = self._loop.create_task(
            self._live(ready), name=f"node {self.number}", context=context
        )
        self._life.add_done_callback(lambda life: self._on_end(life, ready))
        self.state = NodeState.RUNNING
        await ready.wait()
        if self._life.done():
            # Raises what it ended with.
            await self._life

    async def stop(self) -> None:
        """In order: flushed, handed over, with a marker."""
        self.resume()
        assert self.node is not None, "a node that runs was started"
        self._is_ending = True
        self.node.request_stop()
        await self._ended(STOP_S)
        self.state = NodeState.STOPPED

    async def kill(self) -> None:
        """From this call on it reaches neither disk nor anybody, and nothing is flushed for it."""
        self._is_ending = True
        for disk in self._disks:
            disk.cut()
        break_connections([self.client_port.number, self.cluster_port.number])
        if self._network is not None:
            await self._network.close()
        assert self._life is not None, "a node that runs was started"
        self._life.cancel()
        self._loop.resume(self._owner)
        await self._ended(KILL_S)
        self.state = NodeState.KILLED

    async def crash(self) -> None:
        """A kill, then what no flush had covered is taken from its directories."""
        await self.kill()
        for flushed in self._flushed:
            flushed.crash()
        self._crashes += 1
        self.state = NodeState.CRASHED

    async def pause(self) -> None:
        """It stands still: nothing of it runs, its timers do not go off, connections stay open."""
        self._loop.pause(self._owner)
        self.state = NodeState.PAUSED
        # What was ready before runs once more.
        await asyncio.sleep(0)

    def resume(self) -> None:
        """It goes on, with everything that fell due meanwhile."""
        if self.state is NodeState.PAUSED:
            self._loop.resume(self._owner)
            self.state = NodeState.RUNNING

    def close(self) -> None:
        """Its ports are the system's again."""
        assert not self.is_up, f"node {self.number} has ended"
        self.client_port.close()
        self.cluster_port.close()

    async def _live(self, ready: asyncio.Event) -> None:
        configuration, options = self._configuration, self._options
        assert configuration is not None, "a node is prepared before it starts"
        assert options is not None, "a node is prepared before it starts"
        async with self._ports() as ports:
            if not await is_formatted(ports.disk):
                await format_disks(ports.disk, ports.quorum_disk, ports.random, options)
            self.node = Node(configuration, ports)
            await self.node.run(lambda _: ready.set())

    @asynccontextmanager
    async def _ports(self) -> AsyncGenerator[NodePorts, None]:
        clock, random = RealClock(), RealRandom()
        real = await self._open(self.directory)
        try:
            real_quorum = await self._open(self.directory / QUORUM_DIRECTORY)
            disk = RememberingDisk(real, self._flushed[0])
            quorum_disk = RememberingDisk(real_quorum, self._flushed[1])
            self._disks = [disk, quorum_disk]
            worker, sealer = ProcessWorker(), ProcessWorker()
            network = self._network = TestNetwork(clock)
            try:
                yield NodePorts(
                    clock=clock,
                    random=random,
                    disk=disk,
                    quorum_disk=quorum_disk,
                    worker=worker,
                    sealer=sealer,
                    network=network,
                    host=TestHost(f"node {self.number}, boot {self._crashes}"),
                    authorizer=AllowAll(),
                    certificates=network.certificates,
                )
            finally:
                await to_the_end(
                    let_go(
                        *(sealer.close, worker.close),
                        *(network.stop_servers, network.close, real_quorum.shutdown),
                    )
                )
        finally:
            await to_the_end(real.shutdown())

    async def _open(self, directory: Path) -> RealDisk:
        return await open_disk(
            directory, make_flusher=_flusher, descriptors_max=self._descriptors_max
        )

    async def _ended(self, timeout_s: float) -> None:
        life = self._life
        assert life is not None, "a node that ends was started"
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(_settled(life))
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=f"end node {self.number}",
                happened=f"it took over {timeout_s:g} s",
            ) from None

    def _on_end(self, life: "asyncio.Task[None]", ready: asyncio.Event) -> None:
        error = None if life.cancelled() else life.exception()
        if self._is_ending:
            if error is not None:
                _log.info("node %s failed at its end", self.number, exc_info=error)
            return
        self.state = NodeState.FAILED
        if error is not None:
            self._on_failed(self, error)
        ready.set()


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Whoever is cancelled meanwhile is cancelled afterwards: a kill may come while a life ends
    already, and the next one needs its files, locks and ports."""
    task = asyncio.get_running_loop().create_task(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            is_cancelled = True
    task.result()
    if is_cancelled:
        raise asyncio.CancelledError


async def let_go(*steps: Callable[[], Awaitable[None]]) -> None:
    """One after the other, each also when one before it failed or was cancelled: the next life
    needs what the others hold."""
    async with AsyncExitStack() as stack:
        for step in reversed(steps):
            stack.push_async_callback(step)


async def _settled(life: "asyncio.Task[None]") -> None:
    """However it ended: a node that was killed may have failed at that."""
    await asyncio.gather(life, return_exceptions=True)


def _flusher(root: str) -> Flusher:
    return Flusher(root, flush_file=_account, flush_file_system=_account, flush_directory=_account)


def _account(_: int) -> None:
    """Nothing goes to the drive: what was flushed is remembered above the files."""
