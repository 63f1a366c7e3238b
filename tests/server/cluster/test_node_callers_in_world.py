"""A node whose certificate is bound to its id speaks as no other: every call between nodes."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from tests.broker.support.passing import passed
from tests.server.cluster.test_bounds_in_world import NOT_SERVED, all_methods, called_by
from tests.server.support.cluster_in_world import CLUSTER_ID, Cluster
from tidelog.broker.services.middleware.node_callers import NodeCallers, NodePrincipals, claims_of
from tidelog.chaos.sim import SimulatedPorts
from tidelog.metadata_quorum.admin.access import method_name, read_access
from tidelog.ports import CertificateNames, RequestContext, Stream, StreamMethod
from tidelog.ports.request_context import CLUSTER_LISTENER
from tidelog.server.events import log as log_events
from tidelog.server.events.limit import LINES_MAX, WINDOW_MS
from tidelog.v1 import options_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

CALL_MS = 5_000
METHODS = [each for each in all_methods() if read_access(each).listener == CLUSTER_LISTENER]
SERVED = [each for each in METHODS if each.containing_service.name not in NOT_SERVED]
NAMES_NOBODY = {
    "AddPartitions",
    "AdministerTransactions",
    "ApplyStaged",
    "CountPrepared",
    "DescribeOwnLogDirs",
    "DescribeOwnOffsets",
    "FetchOwn",
    "ProduceOwn",
    "ReadStaged",
    "WriteMarkers",
}
"""Their requests say not which node asks; any node of the cluster may."""
OF_OTHERS = {"route.to_node_id"}
"""A node's id in a request, but not the caller's."""


def callers(method: MethodDescriptor) -> list[str]:
    return list(method.GetOptions().Extensions[options_pb2.access].caller)


def ids_in(message: Descriptor, outer: str = "") -> Iterator[str]:
    """Paths of the numbers in a request that stand once and are called as nodes' ids are."""
    for field in message.fields:
        path = f"{outer}{field.name}"
        if field.is_repeated:
            continue
        if field.message_type is not None:
            yield from ids_in(field.message_type, f"{path}.")
        elif field.type == FieldDescriptor.TYPE_SINT32 and path.endswith(("broker_id", "node_id")):
            yield path


@pytest.mark.parametrize("method", METHODS, ids=method_name)
def test_the_contract_says_of_each_call_between_nodes_who_the_caller_says_it_is(
    method: MethodDescriptor,
) -> None:
    assert set(callers(method)) == set(ids_in(method.input_type)) - OF_OTHERS
    assert (not callers(method)) == (method.name in NAMES_NOBODY)


def request(method: MethodDescriptor, claimed: dict[str, int]) -> bytes:
    """Of the method, from a node that says it is these, each by one field."""
    message: Message = message_factory.GetMessageClass(method.input_type)()
    values: dict[str, object] = dict(claimed)
    if "cluster_id" in method.input_type.fields_by_name:
        values["cluster_id"] = CLUSTER_ID
    for path, value in values.items():
        *branches, leaf = path.split(".")
        part = message
        for branch in branches:
            part = getattr(part, branch)
        setattr(part, leaf, value)
    data = message.SerializeToString()
    assert claims_of(method_name(method))(data) == tuple(claimed.values())
    return data


class Outside:
    """A machine beside the cluster that has a certificate of its authority, for its own name."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        process = cluster.world.machine(name).start(name, _forever)
        self._network = process.ports.network

    async def outcome(self, method: MethodDescriptor, message: bytes) -> TidelogError | None:
        """How the call ended; None: it was answered, or a stream went on."""
        name = method_name(method)
        try:
            if not method.client_streaming:
                await self._network.call("n1:2", name, message, timeout_ms=CALL_MS)
                return None
            stream = self._network.stream("n1:2", name)
            try:
                await stream.send(message)
                with suppress(TimeoutError):
                    async with asyncio.timeout(CALL_MS / 1000):
                        while await stream.receive() is not None:
                            pass
            finally:
                stream.cancel()
        except TidelogError as error:
            return error
        return None


async def _forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


def bound_cluster() -> Cluster:
    cluster = Cluster(
        controllers=1,
        brokers=1,
        roles="controller,broker",
        listeners__cluster__tls__certificate="node.pem",
        listeners__cluster__tls__key="node.key",
        listeners__cluster__tls__client_ca="ca.pem",
        listeners__cluster__tls__node_principal="CN=n{node_id}",
    )
    assert cluster.nodes.keys() == {1, 2}
    return cluster


def test_no_call_between_nodes_takes_a_certificate_for_another_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("WARNING", logger="tidelog")
    taken: list[str] = []
    tried: list[str] = []

    async def refuse(caller: Outside, method: MethodDescriptor, message: bytes) -> None:
        error = await caller.outcome(method, message)
        tried.append(method.full_name)
        if error is None or error.code is not ErrorCode.PERMISSION_DENIED:
            taken.append(f"{method.full_name}: {error}")
        else:
            assert "node_principal" in error.happened
            assert error.hint

    async def work(cluster: Cluster) -> None:
        stranger, node9 = Outside(cluster, "stranger"), Outside(cluster, "n9")
        for method in SERVED:
            own = dict.fromkeys(callers(method), 9)
            await refuse(stranger, method, request(method, own))
            for path in own:
                for other in (0, 3, -9):
                    await refuse(node9, method, request(method, {**own, path: other}))
            error = await node9.outcome(method, request(method, own))
            assert error is None or error.code is not ErrorCode.PERMISSION_DENIED, error

    bound_cluster().run(work)
    assert taken == []
    assert set(tried) == {each.full_name for each in SERVED}
    told = [each for each in caplog.messages if each.startswith("node_refused")]
    assert "as node 3" in " ".join(told)


def test_of_a_caller_that_is_refused_again_and_again_so_many_lines_are_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("WARNING", logger="tidelog")
    calls = 2 * LINES_MAX
    method = next(each for each in SERVED if each.name == "RequestVote")

    async def work(cluster: Cluster) -> None:
        stranger, began_ns = Outside(cluster, "stranger"), cluster.world.loop.now_ns
        for _ in range(calls):
            assert await stranger.outcome(method, request(method, {"route.from_node_id": 1}))
        assert cluster.world.loop.now_ns - began_ns < WINDOW_MS * 1_000_000

    bound_cluster().run(work)
    told = [each for each in caplog.messages if each.startswith("node_refused")]
    assert len(told) == LINES_MAX


STREAMS = [each for each in METHODS if each.client_streaming]


class Messages:
    """A handler's end of a stream over which these come."""

    def __init__(self, *messages: bytes) -> None:
        self._left = list(messages)

    async def send(self, message: bytes) -> None:
        raise AssertionError(f"{len(message)} bytes are answered")

    async def receive(self) -> bytes | None:
        return self._left.pop(0) if self._left else None

    def let_go(self) -> None:
        return

    async def end_sending(self) -> None:
        return

    def cancel(self) -> None:
        return


@pytest.mark.parametrize("method", STREAMS, ids=method_name)
def test_a_stream_of_one_node_does_not_become_anothers(method: MethodDescriptor) -> None:
    name, seen = method_name(method), list[bytes]()

    async def read_all(_: RequestContext, stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            seen.append(message)

    callers_door = NodeCallers(NodePrincipals("CN=n{node_id}"), log_events)
    bare = {name: StreamMethod(read_all)}
    served = passed(bare, listener=CLUSTER_LISTENER, callers=callers_door)[name]
    assert isinstance(served, StreamMethod)
    context = msgspec.structs.replace(
        called_by("n9"), certificate=CertificateNames(subject="CN=n9")
    )
    own, nobody, other = (
        request(method, dict.fromkeys(callers(method), each)) for each in (9, 0, 3)
    )

    async def hand_in(*messages: bytes) -> None:
        await served.handler(context, Messages(*messages))

    asyncio.run(hand_in(own, nobody, own))
    assert seen == [own, nobody, own]
    for messages in ((own, other), (own, nobody, other), (nobody,)):
        with pytest.raises(TidelogError) as caught:
            asyncio.run(hand_in(*messages))
        assert caught.value.code is ErrorCode.PERMISSION_DENIED
    assert seen == [own, nobody, own, own, own, nobody]


def test_without_the_setting_every_certificate_speaks_as_any_node() -> None:
    """The default, as before there was one: said in SECURITY.md."""

    async def work(cluster: Cluster) -> None:
        stranger = Outside(cluster, "stranger")
        for method in SERVED:
            error = await stranger.outcome(
                method, request(method, dict.fromkeys(callers(method), 3))
            )
            assert error is None or error.code is not ErrorCode.PERMISSION_DENIED, error

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.parametrize(
    ("template", "subject", "names", "node_ids"),
    [
        ("CN=tidelog-{node_id}", "CN=tidelog-2", (), {2}),
        ("CN=tidelog-{node_id},O=Example", "CN=tidelog-2,O=Example", (), {2}),
        ("CN=tidelog-{node_id}", "CN=tidelog-2,O=Example", (), set()),
        ("CN=tidelog-{node_id}", "CN=tidelog-02", (), set()),
        ("CN=tidelog-{node_id}", "CN=tidelog-0", (), set()),
        ("CN=tidelog-{node_id}", "CN=tidelog-+2", (), set()),
        ("CN=tidelog-{node_id}", "CN=tidelog-\u0662", (), set()),
        ("CN=tidelog-{node_id}", "CN=tidelog-99999999999", (), set()),
        ("CN=tidelog-{node_id}", "", ("CN=tidelog-2",), set()),
        ("n{node_id}.example", "CN=n2.example", (), set()),
        ("n{node_id}.example", "CN=n7.example", ("localhost", "n2.example"), {2}),
        ("n{node_id}.example", "", ("n2.example", "n3.example"), {2, 3}),
        ("n{node_id}.example", "", ("*.example", "n*.example", "n.example"), set()),
        ("n{node_id}n", "", ("n", "nn", "n2n"), {2}),
        ("spiffe://example/node/{node_id}", "", ("spiffe://example/node/2",), {2}),
        ("spiffe://example/node/{node_id}", "", ("spiffe://example/node/2/3",), set()),
    ],
)
def test_a_certificate_is_for_the_nodes_whose_whole_name_it_holds(
    template: str, subject: str, names: tuple[str, ...], node_ids: set[int]
) -> None:
    certificate = CertificateNames(subject=subject, names=names)
    principals = NodePrincipals(template)
    assert principals.node_ids(certificate) == node_ids
    assert {each for each in range(1, 10) if certificate.is_for(principals.of(each))} == node_ids
