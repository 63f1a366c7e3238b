"""A cluster in this process: `async with AsyncTestCluster(brokers=3) as cluster: ...`.

Owns the calls of a test and the clients that it was asked for, which end with it. Real nodes on
real sockets and files, on a loop in a thread of their own: what blocks the test leaves them alone.
What a call does to a node, `tidelog.testing.node` says.
"""

from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from tidelog.client import NewTopic
from tidelog.client.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer
from tidelog.client.arguments.options import AdminArguments, ConsumerArguments, ProducerArguments
from tidelog.client.shared.checked import checked
from tidelog.testing.base import (
    CHANGE_S,
    CLIENT_CLOSE_S,
    START_S,
    ClusterBase,
    Settings,
    raise_failures,
)


class AsyncTestCluster(ClusterBase):
    """Real nodes in one process; every call returns when what it asked for has happened.

    `async with AsyncTestCluster(brokers=3) as cluster:
         await cluster.producer().send_and_wait("t", b"value")`
    """

    @checked
    def __init__(self, brokers: int = 1, settings: Settings | None = None) -> None:
        super().__init__(brokers, settings)
        self._clients: list[AsyncProducer | AsyncConsumer | AsyncAdminClient] = []
        self._own_admin: AsyncAdminClient | None = None

    async def start(self) -> None:
        """Returns when every node serves."""
        thread, work = self._begin()
        try:
            self._running = await thread.run_beside(work, START_S, "start the test cluster")
        except BaseException:
            self._become_closed()
            self._end_thread()
            raise

    async def close(self) -> None:
        """Ends clients, nodes and thread, and removes the directory."""
        if self.is_closed:
            return
        core, thread = self._running, self._thread
        try:
            while self._clients:
                await _close(self._clients.pop())
        finally:
            self._become_closed()
            try:
                if core is not None and thread is not None:
                    await thread.run_beside(core.close(), CHANGE_S, "end the test cluster")
            finally:
                self._end_thread()
        if core is not None:
            raise_failures(core)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- what is done to nodes -----------------------------------------------------------------

    @checked
    async def kill(self, node: int) -> None:
        """As kill -9: its sockets break, its tasks end, nothing is flushed, no marker is left.

        What it wrote to its files is there when it is started again, as the page cache keeps it.
        """
        await self._change(f"kill node {node}", self._core("kill a node").kill(node))

    @checked
    async def crash(self, node: int) -> None:
        """As a power failure of its machine: a kill, and every byte that no flush covered is gone.

        `tidelog.testing.disk` says exactly what is left.
        """
        await self._change(f"crash node {node}", self._core("crash a node").crash(node))

    @checked
    async def pause(self, node: int) -> None:
        """It stands still, and answers nothing; its connections stay open, as do its sockets."""
        await self._change(f"pause node {node}", self._core("pause a node").pause(node))

    @checked
    async def resume(self, node: int) -> None:
        """A paused node goes on, late."""
        await self._change(f"resume node {node}", self._core("resume a node").resume(node))

    @checked
    async def stop(self, node: int) -> None:
        """In order: it hands over what it leads, flushes, and leaves."""
        await self._change(f"stop node {node}", self._core("stop a node").stop(node))

    @checked
    async def restart(self, node: int) -> None:
        """Starts a node that is down, at its old addresses; one that is up is stopped first."""
        await self._change(f"restart node {node}", self._core("restart a node").restart(node))

    async def heal(self) -> None:
        """Whatever was done to nodes: all of them serve again."""
        await self._change("heal the test cluster", self._core("heal the test cluster").heal())

    # -- what tests need -----------------------------------------------------------------------

    @checked
    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 0,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Creates a topic, and returns its name; 0 replicas: the smaller of 3 and all nodes."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        await self._admin().create_topics([topic])
        return name

    @checked
    async def delete_topic(self, name: str) -> None:
        """With all its records."""
        await self._admin().delete_topics([name])

    def producer(self, **arguments: Unpack[ProducerArguments]) -> AsyncProducer:
        """A producer of this cluster, closed at its end at the latest."""
        arguments.setdefault("bootstrap_servers", self.bootstrap)
        arguments.setdefault("security_protocol", "PLAINTEXT")
        made = AsyncProducer(**arguments)
        self._keep(made)
        return made

    def consumer(self, *topics: str, **arguments: Unpack[ConsumerArguments]) -> AsyncConsumer:
        """A consumer of this cluster, closed at its end at the latest."""
        arguments.setdefault("bootstrap_servers", self.bootstrap)
        arguments.setdefault("security_protocol", "PLAINTEXT")
        made = AsyncConsumer(*topics, **arguments)
        self._keep(made)
        return made

    def admin(self, **arguments: Unpack[AdminArguments]) -> AsyncAdminClient:
        """An admin client of this cluster, closed at its end at the latest."""
        arguments.setdefault("bootstrap_servers", self.bootstrap)
        arguments.setdefault("security_protocol", "PLAINTEXT")
        made = AsyncAdminClient(**arguments)
        self._keep(made)
        return made

    # -- inside --------------------------------------------------------------------------------

    async def _change(self, tried: str, work: Coroutine[Any, Any, None]) -> None:
        assert self._thread is not None, "a cluster with a core has a thread"
        await self._thread.run_beside(work, CHANGE_S, tried)

    def _admin(self) -> AsyncAdminClient:
        if self._own_admin is None:
            self._own_admin = self.admin()
        return self._own_admin

    def _keep(self, client: AsyncProducer | AsyncConsumer | AsyncAdminClient) -> None:
        self._clients = [each for each in self._clients if not each.is_closed]
        self._clients.append(client)


async def _close(client: AsyncProducer | AsyncConsumer | AsyncAdminClient) -> None:
    """What a producer could not send is the test's affair; it must not keep the cluster."""
    if isinstance(client, AsyncProducer):
        await client.stop(timeout=CLIENT_CLOSE_S)
    else:
        await client.close()
