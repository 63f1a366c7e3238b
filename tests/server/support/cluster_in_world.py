"""Whole nodes of a cluster, in roles of choice, each on a simulated machine of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.broker.support.node_in_world import PlainClient
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.ports.network import SimulatedNetwork
from tidelog.chaos.sim.world.process import Process
from tidelog.ports import AllowAll, Disk
from tidelog.server.node.node import Node, NodePorts
from tidelog.server.settings.loading import load
from tidelog.server.storage.format import is_formatted
from tidelog.server.storage.formatting import FormatOptions, InitialVoter, format_disks
from tidelog.v1 import admin_pb2, quorum_admin_pb2
from tidelog.wire.errors import TidelogError

CLUSTER_ID = "0123456789abcdef"


class ClusterNode:
    """One node over all its lives; machine `n<number>`, ports 1 (client) and 2 (cluster)."""

    def __init__(self, cluster: "Cluster", number: int, roles: str, settings: dict[str, str]):
        self.cluster = cluster
        self.number = number
        self.roles = roles
        self.settings = settings
        self.file_text = ""
        """Settings that only a file can hold."""
        self.node: Node | None = None
        self.ready = 0
        self.ended = 0
        self.error: TidelogError | None = None
        self.process: Process | None = None
        self.wrapped: Callable[[Disk], Disk] = _as_it_is
        """What stands between the node and its data directory."""
        self.ports_as_given: Callable[[NodePorts], NodePorts] = _same_ports
        """What stands between the node and all of its ports."""

    @property
    def address(self) -> str:
        return f"n{self.number}:1"

    def start(self) -> None:
        self.process = self.cluster.world.machine(f"n{self.number}").start(
            f"n{self.number}", self._live
        )

    async def restart(self) -> None:
        """Start again, until it is ready."""
        before = self.ready
        self.start()
        await self.cluster.wait(lambda: self.ready > before)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()

    async def _live(self, ports: SimulatedPorts) -> None:
        is_controller = "controller" in self.roles
        node_ports = NodePorts(
            clock=ports.clock,
            random=ports.random,
            disk=self.wrapped(ports.open_disk()),
            quorum_disk=ports.open_disk("quorum") if is_controller else None,
            worker=ports.worker,
            sealer=ports.sealer,
            network=ports.network,
            host=ports.host,
            authorizer=AllowAll(),
        )
        if not await is_formatted(node_ports.disk):
            await format_disks(
                node_ports.disk,
                node_ports.quorum_disk,
                ports.random,
                FormatOptions(
                    data_dir="",
                    node_id=self.number,
                    cluster_id=CLUSTER_ID,
                    is_controller=is_controller,
                    voters=self.cluster.voters if self._is_first() else (),
                    broker_count=self.cluster.brokers_expected,
                ),
            )
        configuration = load(
            file_text=self.file_text,
            flags={
                "node_id": str(self.number),
                "roles": self.roles,
                "listeners.client.bind": self.address,
                "listeners.cluster.bind": f"n{self.number}:2",
                "allow_plaintext": "true",
                "quorum.bootstrap_servers": ",".join(
                    voter.address for voter in self.cluster.voters
                ),
                **self.settings,
            },
        )
        self.node = Node(configuration, self.ports_as_given(node_ports))
        try:
            await self.node.run(self._on_ready)
        except TidelogError as error:
            self.error = error
        self.ended += 1
        self.node = None

    def _is_first(self) -> bool:
        return any(voter.node_id == self.number for voter in self.cluster.voters)

    def _on_ready(self, node: Node) -> None:
        del node
        self.ready += 1


class Cluster:
    """`controllers` are the first voters, as `roles` says combined or not; then brokers alone."""

    def __init__(
        self,
        *,
        controllers: int,
        brokers: int = 0,
        roles: str = "controller",
        seed: int = 3,
        brokers_expected: int = 1,
        **settings: str,
    ) -> None:
        self.world = World(seed)
        self.brokers_expected = brokers_expected
        """By the formatting: internal topics get as many replicas, at most three."""
        self.voters = tuple(
            InitialVoter(
                node_id=number, address=f"n{number}:2", directory_uuid=bytes([number]) * 16
            )
            for number in range(1, controllers + 1)
        )
        named = {name.replace("__", "."): value for name, value in settings.items()}
        self.nodes = {
            number: ClusterNode(self, number, roles if number <= controllers else "broker", named)
            for number in range(1, controllers + brokers + 1)
        }

    def run(self, work: Callable[["Cluster"], Coroutine[Any, Any, None]]) -> None:
        """Start all, do the work, look for bugs that nobody saw."""

        async def main() -> None:
            client = self.world.machine("client").start("client", _forever)
            self.network: SimulatedNetwork = client.ports.network
            for node in self.nodes.values():
                node.start()
            await self.wait(lambda: all(node.ready for node in self.nodes.values()))
            await work(self)
            self._check()

        try:
            self.world.run(main())
            assert self.world.findings() == []
        finally:
            self.world.close()

    async def wait(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Until it holds."""
        for _ in range(int(seconds * 100)):
            self._check()
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came to that")

    def _check(self) -> None:
        for each in self.nodes.values():
            if each.node is not None:
                each.node.view().check_subscriptions()

    def client(self) -> PlainClient:
        """Of the first node's address; `call` of this class takes any."""
        return PlainClient(self.network)

    async def call(self, number: int, method: str, message: bytes, seconds: float = 60) -> bytes:
        """One unary call at a node."""
        address = self.nodes[number].address
        return await self.network.call(
            address, f"/tidelog.v1.{method}", message, timeout_ms=int(seconds * 1000)
        )

    async def create(self, number: int, name: str, partitions: int = 1) -> None:
        """A topic, by way of this node."""
        new = admin_pb2.NewTopic(name=name, partition_count=partitions)
        request = admin_pb2.CreateTopicsRequest(topics=[new])
        answer = await self.call(number, "AdminService/CreateTopics", request.SerializeToString())
        (result,) = admin_pb2.CreateTopicsResponse.FromString(answer).results
        assert not result.HasField("error"), result

    async def topics(self, number: int) -> list[str]:
        """As this node sees them."""
        answer = await self.call(number, "TopicAdminService/ListTopics", b"")
        from tidelog.v1 import topic_admin_pb2

        return [each.name for each in topic_admin_pb2.ListTopicsResponse.FromString(answer).topics]

    async def quorum(self, number: int) -> quorum_admin_pb2.DescribeQuorumResponse:
        """As the leader sees it, asked at this node."""
        answer = await self.call(number, "QuorumAdminService/DescribeQuorum", b"")
        return quorum_admin_pb2.DescribeQuorumResponse.FromString(answer)


def three(*, seed: int = 3, brokers_expected: int = 1, **settings: str) -> Cluster:
    """Brokers that are controllers as well."""
    return Cluster(
        controllers=3,
        brokers=0,
        roles="broker,controller",
        seed=seed,
        brokers_expected=brokers_expected,
        **settings,
    )


def _as_it_is(disk: Disk) -> Disk:
    return disk


def _same_ports(ports: NodePorts) -> NodePorts:
    return ports


async def _forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()
