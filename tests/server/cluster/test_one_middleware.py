"""Every call that a node serves passes the middleware once: on each listener, in each role.

A passage is counted by what it asks: the authorizer about the caller, the room for each message.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec
import pytest
from google.protobuf.descriptor import FileDescriptor

from tests.server.support.cluster_in_world import Cluster
from tidelog.broker.services.metadata.table import METADATA_FILES
from tidelog.broker.services.table import BROKER_FILES
from tidelog.metadata_quorum.admin.access import read_accesses
from tidelog.ports import (
    Listener,
    Method,
    Network,
    RequestContext,
    Server,
    Stream,
    StreamMethod,
    UnaryMethod,
)
from tidelog.ports.request_context import CLIENT_LISTENER, CLUSTER_LISTENER
from tidelog.server.node.cluster_methods import CONTROLLER_FILES, REPLICA_FILES
from tidelog.server.ports.node import NodePorts
from tidelog.wire.errors import TidelogError

CALL_MS = 2_000
PORTS = {CLIENT_LISTENER: 1, CLUSTER_LISTENER: 2}

OF_BROKERS = {
    "/tidelog.v1.AdminService/DescribeCluster",
    "/tidelog.v1.AdminService/DescribeTopics",
}
"""Of the files that every node serves, what a node without partitions does not."""

Place = tuple[int, str, str]
"""A node, a listener, a method."""


class Passages:
    """How often one call, or one stream, has passed; the room of its messages, to be known by."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.asked = 0
        """The authorizer, about the caller."""
        self.messages = 0
        """That came."""
        self.counted = 0
        """Messages whose room was taken."""

    def take(self, more_bytes: int) -> None:
        del more_bytes
        self.counted += 1

    @property
    def is_once(self) -> bool:
        return self.asked == 1 and self.counted == self.messages


class Counting:
    """An authorizer that allows everything, and a place for all calls of a cluster."""

    def __init__(self) -> None:
        self.calls: list[Passages] = []
        self.served: dict[tuple[int, str], set[str]] = {}

    def is_allowed(self, context: RequestContext, resource: str, operation: str) -> bool:
        # The client of a forwarded call has no room of its own: asking about it is no passage.
        del resource, operation
        if isinstance(context.request_room, Passages):
            context.request_room.asked += 1
        return True

    def begin(self, place: Place) -> Passages:
        self.calls.append(Passages(place))
        return self.calls[-1]


class CountingNetwork:
    """A node's network that counts beneath all that the node puts around its handlers."""

    def __init__(self, number: int, network: Network, counting: Counting) -> None:
        self._number = number
        self._network = network
        self._counting = counting

    async def serve(self, listener: Listener, methods: Mapping[str, Method]) -> Server:
        self._counting.served[self._number, listener.name] = set(methods)
        counted = {
            name: self._counted((self._number, listener.name, name), method)
            for name, method in methods.items()
        }
        return await self._network.serve(listener, counted)

    def _counted(self, place: Place, method: Method) -> Method:
        async def answer(context: RequestContext, message: bytes) -> bytes:
            assert isinstance(method, UnaryMethod)
            passages = self._counting.begin(place)
            passages.messages += 1
            return await method.handler(_known_by(context, passages), message)

        async def talk(context: RequestContext, stream: Stream) -> None:
            assert isinstance(method, StreamMethod)
            passages = self._counting.begin(place)
            await method.handler(_known_by(context, passages), CountingStream(stream, passages))

        return UnaryMethod(answer) if isinstance(method, UnaryMethod) else StreamMethod(talk)

    async def call(self, peer: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        return await self._network.call(peer, method, message, timeout_ms=timeout_ms)

    def stream(self, peer: str, method: str) -> Stream:
        return self._network.stream(peer, method)

    async def close(self) -> None:
        await self._network.close()


class CountingStream:
    """A stream whose messages are counted where they come in."""

    def __init__(self, stream: Stream, passages: Passages) -> None:
        self._stream = stream
        self._passages = passages

    async def send(self, message: bytes) -> None:
        await self._stream.send(message)

    async def receive(self) -> bytes | None:
        message = await self._stream.receive()
        self._passages.messages += message is not None
        return message

    def let_go(self) -> None:
        self._stream.let_go()

    async def end_sending(self) -> None:
        await self._stream.end_sending()

    def cancel(self) -> None:
        self._stream.cancel()


def _known_by(context: RequestContext, passages: Passages) -> RequestContext:
    return msgspec.structs.replace(context, request_room=passages)


def counted(cluster: Cluster) -> Counting:
    """Have every node of the cluster count."""
    counting = Counting()
    for number, node in cluster.nodes.items():

        def counting_ports(ports: NodePorts, number: int = number) -> NodePorts:
            network = CountingNetwork(number, ports.network, counting)
            return msgspec.structs.replace(ports, network=network, authorizer=counting)

        node.ports_as_given = counting_ports
    return counting


def names(*files: FileDescriptor) -> set[str]:
    return set(read_accesses(files))


def methods_of(roles: str) -> dict[str, set[str]]:
    """By listener, what the contract has a node of these roles serve."""
    client, cluster = names(*METADATA_FILES) - OF_BROKERS, set[str]()
    if "controller" in roles:
        cluster |= names(*CONTROLLER_FILES)
    if "broker" in roles:
        client |= names(*BROKER_FILES, *METADATA_FILES)
        cluster |= names(*REPLICA_FILES)
    return {CLIENT_LISTENER: client, CLUSTER_LISTENER: cluster}


def is_stream(name: str) -> bool:
    for file in (*BROKER_FILES, *METADATA_FILES, *CONTROLLER_FILES, *REPLICA_FILES):
        service = file.services_by_name.get(name.split("/")[1].rpartition(".")[2])
        if service is not None and name.rpartition("/")[2] in service.methods_by_name:
            method = service.methods_by_name[name.rpartition("/")[2]]
            return bool(method.client_streaming or method.server_streaming)
    raise AssertionError(f"{name} is in no file that is served")


async def try_call(cluster: Cluster, address: str, name: str) -> None:
    """A call with an empty message, whatever comes of it."""
    with suppress(TidelogError, TimeoutError):
        if not is_stream(name):
            await cluster.network.call(address, name, b"", timeout_ms=CALL_MS)
            return
        stream = cluster.network.stream(address, name)
        try:
            await stream.send(b"")
            async with asyncio.timeout(CALL_MS / 1000):
                while await stream.receive() is not None:
                    pass
        finally:
            stream.cancel()


def places(cluster: Cluster) -> Iterator[Place]:
    for number, node in cluster.nodes.items():
        for listener, methods in methods_of(node.roles).items():
            for name in sorted(methods):
                yield number, listener, name


@pytest.mark.parametrize(
    ("roles", "brokers"),
    [("controller", 1), ("controller,broker", 0)],
    ids=["controller-and-broker", "combined"],
)
def test_every_method_of_every_listener_passes_the_middleware_once(
    roles: str, brokers: int
) -> None:
    cluster = Cluster(controllers=1, brokers=brokers, roles=roles)
    counting = counted(cluster)

    async def work(cluster: Cluster) -> None:
        for number, listener, name in places(cluster):
            await try_call(cluster, f"n{number}:{PORTS[listener]}", name)

    cluster.run(work)
    for number, node in cluster.nodes.items():
        for listener, methods in methods_of(node.roles).items():
            assert counting.served[number, listener] == methods
    assert {each.place for each in counting.calls} == set(places(cluster))
    not_once = {
        (each.place, each.asked, each.messages, each.counted)
        for each in counting.calls
        if not each.is_once
    }
    assert not_once == set()
