"""Every method that a node serves counts a message before it does anything with it."""

import asyncio
import importlib
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest
from google.protobuf.descriptor import MethodDescriptor

from tests.broker.support.passing import passed
from tests.contract import descriptors
from tests.server.support.cluster_in_world import Cluster
from tidelog.chaos.fuzz.messages import one_more
from tidelog.metadata_quorum.admin.access import method_name, read_access
from tidelog.ports import RequestContext, Stream, StreamMethod, UnaryMethod
from tidelog.ports.bounds import ELEMENT_BYTES
from tidelog.ports.request_context import ANONYMOUS, CLIENT_LISTENER, NO_DEADLINE_NS
from tidelog.wire.errors import ErrorCode, TidelogError

CALL_MS = 60_000
NOT_SERVED = {
    "StagedPublishService",
    "StagedTransferService",
}
REFUSED = {ErrorCode.INVALID_ARGUMENT, ErrorCode.BATCH_TOO_LARGE}


def all_methods() -> Iterator[MethodDescriptor]:
    for source in sorted(descriptors.PROTO.glob(f"{descriptors.OURS}*.proto")):
        file = importlib.import_module(f"tidelog.v1.{source.stem}_pb2").DESCRIPTOR
        for service in file.services_by_name.values():
            yield from service.methods


def is_over_the_network(data: bytes) -> bool:
    """What is larger the network itself refuses."""
    return len(data) <= 1024 * 1024


async def outcome(cluster: Cluster, method: MethodDescriptor, data: bytes) -> TidelogError | None:
    """What became of the message at the first node."""
    is_client = read_access(method).listener == CLIENT_LISTENER
    address, name = f"n1:{1 if is_client else 2}", method_name(method)
    try:
        if not method.client_streaming:
            await cluster.network.call(address, name, data, timeout_ms=CALL_MS)
            return None
        stream = cluster.network.stream(address, name)
        try:
            await stream.send(data)
            while await stream.receive() is not None:
                pass
        finally:
            stream.cancel()
    except TidelogError as error:
        return error
    return None


@pytest.mark.slow
def test_a_message_that_holds_one_too_many_is_refused_by_every_method_of_a_node() -> None:
    unbounded: list[str] = []
    not_served: set[str] = set()

    async def work(cluster: Cluster) -> None:
        for method in all_methods():
            for shaped in one_more(method, {}):
                if not is_over_the_network(shaped.data):
                    continue
                async with asyncio.timeout(60):
                    error = await outcome(cluster, method, shaped.data)
                if error is not None and error.code is ErrorCode.NOT_IMPLEMENTED:
                    not_served.add(method.containing_service.name)
                elif error is None or error.code not in REFUSED or "at most" not in error.happened:
                    unbounded.append(f"{method.full_name}, {shaped.name}: {error}")

    Cluster(controllers=1, roles="controller,broker").run(work)
    assert unbounded == []
    assert not_served == NOT_SERVED


def called_by(client_id: str) -> RequestContext:
    """A call of somebody."""
    return RequestContext(
        principal=ANONYMOUS,
        listener=CLIENT_LISTENER,
        client_id=client_id,
        address="client:1",
        deadline_ns=NO_DEADLINE_NS,
    )


class OneMessage:
    """A handler's end of a stream over which a single message comes."""

    def __init__(self, data: bytes) -> None:
        self._left = [data]

    async def send(self, message: bytes) -> None:
        raise AssertionError(f"{len(message)} bytes are answered")

    async def receive(self) -> bytes | None:
        return self._left.pop() if self._left else None

    def let_go(self) -> None:
        return

    async def end_sending(self) -> None:
        return

    def cancel(self) -> None:
        return


@pytest.mark.slow
def test_behind_the_middleware_of_a_node_no_handler_sees_what_holds_one_too_many() -> None:
    """Also of calls that are counted a second time where they are forwarded to."""
    seen: list[str] = []

    async def handle(context: RequestContext, message: bytes) -> bytes:
        seen.append(f"{context.client_id}: {len(message)} bytes")
        return b""

    async def handle_stream(context: RequestContext, stream: Stream) -> None:
        message = await stream.receive()
        assert message is not None
        await handle(context, message)

    async def hand_in(method: MethodDescriptor, data: bytes) -> None:
        name = method_name(method)
        context = called_by(name)
        bare = StreamMethod(handle_stream) if method.client_streaming else UnaryMethod(handle)
        listener = read_access(method).listener
        served = passed({name: bare}, listener=listener)[name]
        if isinstance(served, StreamMethod):
            await served.handler(context, OneMessage(data))
        else:
            await served.handler(context, data)

    async def work() -> None:
        for method in all_methods():
            for shaped in one_more(method, {}):
                if is_over_the_network(shaped.data):
                    with suppress(TidelogError):
                        await hand_in(method, shaped.data)

    asyncio.run(work())
    assert seen == []


class Room:
    """Counts what is made of messages."""

    def __init__(self) -> None:
        self.taken_bytes = 0

    def take(self, more_bytes: int) -> None:
        self.taken_bytes += more_bytes


def test_a_handler_never_sees_what_holds_too_much() -> None:
    seen: list[int] = []
    room = Room()

    async def handle(context: RequestContext, message: bytes) -> bytes:
        assert context.request_room is room
        seen.append(len(message))
        return b""

    name = "/tidelog.v1.ConfigService/AlterConfigs"
    served = passed({name: UnaryMethod(handle)})[name]
    assert isinstance(served, UnaryMethod)
    context = msgspec.structs.replace(called_by("test"), request_room=room)

    async def work() -> None:
        with pytest.raises(TidelogError, match="2001 elements"):
            await served.handler(context, b"\x0a\x00" * 100_000)
        assert (seen, room.taken_bytes) == ([], 0)
        await served.handler(context, b"\x0a\x00" * 2_000)
        assert (seen, room.taken_bytes) == ([4_000], 2_000 * ELEMENT_BYTES)

    asyncio.run(work())
