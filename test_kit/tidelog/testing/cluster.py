# Written by `make threads` from test_kit/tidelog/testing/aio.py; do not edit.
"""A cluster in this process: `with TestCluster(brokers=3) as cluster: ...`.

Owns the calls of a test and the clients that it was asked for, which end with it. Real nodes on
real sockets and files, on a loop in a thread of their own: what blocks the test leaves them alone.
What a call does to a node, `tidelog.testing.node` says.
"""

from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from tidelog.client import AdminClient, Consumer, NewTopic, Producer
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


class TestCluster(ClusterBase):
    """Real nodes in one process; every call returns when what it asked for has happened.

    `with TestCluster(brokers=3) as cluster:
         cluster.producer().send("t", b"value").get(10)`
    """

    @checked
    def __init__(self, brokers: int = 1, settings: Settings | None = None) -> None:
        super().__init__(brokers, settings)
        self._clients: list[Producer | Consumer | AdminClient] = []
        self._own_admin: AdminClient | None = None

    def start(self) -> None:
        """Returns when every node serves."""
        thread, work = self._begin()
        try:
            self._running = thread.run(work, START_S, "start the test cluster")
        except BaseException:
            self._become_closed()
            self._end_thread()
            raise

    def close(self) -> None:
        """Ends clients, nodes and thread, and removes the directory."""
        if self.is_closed:
            return
        core, thread = self._running, self._thread
        try:
            while self._clients:
                _close(self._clients.pop())
        finally:
            self._become_closed()
            try:
                if core is not None and thread is not None:
                    thread.run(core.close(), CHANGE_S, "end the test cluster")
            finally:
                self._end_thread()
        if core is not None:
            raise_failures(core)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- what is done to nodes -----------------------------------------------------------------

    @checked
    def kill(self, node: int) -> None:
        """As kill -9: its sockets break, its tasks end, nothing is flushed, no marker is left.

        What it wrote to its files is there when it is started again, as the page cache keeps it.
        """
        self._change(f"kill node {node}", self._core("kill a node").kill(node))

    @checked
    def crash(self, node: int) -> None:
        """As a power failure of its machine: a kill, and every byte that no flush covered is gone.

        `tidelog.testing.disk` says exactly what is left.
        """
        self._change(f"crash node {node}", self._core("crash a node").crash(node))

    @checked
    def pause(self, node: int) -> None:
        """It stands still, and answers nothing; its connections stay open, as do its sockets."""
        self._change(f"pause node {node}", self._core("pause a node").pause(node))

    @checked
    def resume(self, node: int) -> None:
        """A paused node goes on, late."""
        self._change(f"resume node {node}", self._core("resume a node").resume(node))

    @checked
    def stop(self, node: int) -> None:
        """In order: it hands over what it leads, flushes, and leaves."""
        self._change(f"stop node {node}", self._core("stop a node").stop(node))

    @checked
    def restart(self, node: int) -> None:
        """Starts a node that is down, at its old addresses; one that is up is stopped first."""
        self._change(f"restart node {node}", self._core("restart a node").restart(node))

    def heal(self) -> None:
        """Whatever was done to nodes: all of them serve again."""
        self._change("heal the test cluster", self._core("heal the test cluster").heal())

    # -- what tests need -----------------------------------------------------------------------

    @checked
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 0,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Creates a topic, and returns its name; 0 replicas: the smaller of 3 and all nodes."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        self._admin().create_topics([topic])
        return name

    @checked
    def delete_topic(self, name: str) -> None:
        """With all its records."""
        self._admin().delete_topics([name])

    def producer(self, **arguments: Unpack[ProducerArguments]) -> Producer:
        """A producer of this cluster, closed at its end at the latest."""
        arguments.setdefault("bootstrap_servers", self.bootstrap)
        arguments.setdefault("security_protocol", "PLAINTEXT")
        made = Producer(**arguments)
        self._keep(made)
        return made

    def consumer(self, *topics: str, **arguments: Unpack[ConsumerArguments]) -> Consumer:
        """A consumer of this cluster, closed at its end at the latest."""
        arguments.setdefault("bootstrap_servers", self.bootstrap)
        arguments.setdefault("security_protocol", "PLAINTEXT")
        made = Consumer(*topics, **arguments)
        self._keep(made)
        return made

    def admin(self, **arguments: Unpack[AdminArguments]) -> AdminClient:
        """An admin client of this cluster, closed at its end at the latest."""
        arguments.setdefault("bootstrap_servers", self.bootstrap)
        arguments.setdefault("security_protocol", "PLAINTEXT")
        made = AdminClient(**arguments)
        self._keep(made)
        return made

    # -- inside --------------------------------------------------------------------------------

    def _change(self, tried: str, work: Coroutine[Any, Any, None]) -> None:
        assert self._thread is not None, "a cluster with a core has a thread"
        self._thread.run(work, CHANGE_S, tried)

    def _admin(self) -> AdminClient:
        if self._own_admin is None:
            self._own_admin = self.admin()
        return self._own_admin

    def _keep(self, client: Producer | Consumer | AdminClient) -> None:
        self._clients = [each for each in self._clients if not each.is_closed]
        self._clients.append(client)


def _close(client: Producer | Consumer | AdminClient) -> None:
    """What a producer could not send is the test's affair; it must not keep the cluster."""
    if isinstance(client, Producer):
        client.close(timeout=CLIENT_CLOSE_S)
    else:
        client.close()
