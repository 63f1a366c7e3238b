"""Calls outside the handlers of the rooms: health, reflection, and methods that nobody serves."""

import asyncio
import contextlib
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from tests.ports.network.test_network_limits import CALL, MIB, STREAM, echo, serving, wait_until
from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.ports import Listener, Method, RequestContext, Stream, StreamMethod, UnaryMethod
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.network.errors import TRAILER, decode_error
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.wire.errors import ErrorCode, TidelogError

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
NOWHERE = "/tidelog.test.Service/Nowhere"
NAME_CHARACTERS = 1_000


async def park(_: RequestContext, stream: Stream) -> None:
    while await stream.receive() is not None:
        await stream.send(b"here")


def _asked(method: str) -> bytes:
    """A message of some size, so that a few hundred calls stand out."""
    name = "n" * NAME_CHARACTERS
    asked: Any = name.encode()
    if method in (CHECK, WATCH):
        asked = health_pb2.HealthCheckRequest(service=name).SerializeToString()
    elif method == REFLECT:
        asked = reflection_pb2.ServerReflectionRequest(file_by_filename=name).SerializeToString()
    assert isinstance(asked, bytes), "a message is bytes"
    return asked


@pytest.mark.parametrize("method", [CHECK, WATCH, REFLECT, NOWHERE, CALL])
def test_calls_of_every_kind_leave_nothing_unfinished_on_their_connection(method: str) -> None:
    """Whoever is thought to leave messages unfinished is hung up on, with all its streams."""

    async def once(network: GrpcNetwork, address: str) -> None:
        if method in (WATCH, REFLECT):
            stream = network.stream(address, method)
            await stream.send(_asked(method))
            await stream.receive()
            stream.cancel()
            return
        with contextlib.suppress(TidelogError):
            await network.call(address, method, _asked(method), timeout_ms=HANG_MS)

    async def run() -> None:
        network = GrpcNetwork(RealClock())
        listener = Listener(name="client", bind="127.0.0.1:0", reflection_services=("a.B",))
        methods: dict[str, Method] = {STREAM: StreamMethod(park), CALL: UnaryMethod(echo)}
        server = await network.serve(listener, methods)
        parked = network.stream(server.address, STREAM)
        await parked.send(b"x")
        assert await parked.receive() == b"here"
        for _ in range(300):
            await once(network, server.address)
        callers = server.watch._callers
        await wait_until(lambda: [each.calls for each in callers._callers.values()] == [1])
        await server.watch.look()
        assert callers.unfinished_bytes < 32 * 1024, method
        await network.close()
        await server.stop(0)

    asyncio.run(run())


def test_a_method_that_nobody_serves_is_refused_with_the_error_of_the_contract() -> None:
    async def run() -> None:
        async with serving({CALL: UnaryMethod(echo)}) as (server, caller):
            async with grpc.aio.insecure_channel(server.address) as channel:
                call: Any = channel.unary_unary(NOWHERE)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(b"", timeout=HANG_SECONDS)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            trailer = dict(caught.value.trailing_metadata() or ())[TRAILER]
            assert isinstance(trailer, bytes)
            assert decode_error(trailer).code is ErrorCode.NOT_IMPLEMENTED
            stream = caller().stream(server.address, NOWHERE)
            with pytest.raises(TidelogError, match="serves no method") as refused:
                await stream.receive()
            assert refused.value.code is ErrorCode.NOT_IMPLEMENTED

    asyncio.run(run())


@pytest.mark.parametrize("method", [CHECK, WATCH, REFLECT])
@pytest.mark.parametrize("message", [bytes(10 * MIB), b"\xff\xff\xff", b"\x0a\x02\xff\xff"])
def test_names_of_any_length_and_bytes_that_are_none_are_refused_and_given_back(
    method: str, message: bytes
) -> None:
    async def run() -> None:
        network = GrpcNetwork(RealClock())
        listener = Listener(name="client", bind="127.0.0.1:0", reflection_services=("a.B",))
        server = await network.serve(listener, {CALL: UnaryMethod(echo)})
        stream = network.stream(server.address, method)
        await stream.send(message)
        with pytest.raises(TidelogError) as caught:
            await stream.receive()
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        await wait_until(lambda: server.memory.request_bytes == 0)
        await network.close()
        await server.stop(0)

    asyncio.run(run())


def test_a_service_that_is_not_known_is_not_found() -> None:
    async def run() -> grpc.StatusCode:
        async with (
            serving({CALL: UnaryMethod(echo)}) as (server, _),
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            stub: Any = health_pb2_grpc.HealthStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Check(health_pb2.HealthCheckRequest(service="no.Such"))
            return caught.value.code()

    assert asyncio.run(run()) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("number", [-(1 << 31), -1, 0, 19_500, (1 << 31) - 1])
def test_reflection_answers_every_number_of_an_extension(number: int) -> None:
    async def run() -> None:
        network = GrpcNetwork(RealClock())
        listener = Listener(name="client", bind="127.0.0.1:0", reflection_services=("a.B",))
        server = await network.serve(listener, {CALL: UnaryMethod(echo)})
        stream = network.stream(server.address, REFLECT)
        for kind in ("google.protobuf.MethodOptions", "no.Such", "", "."):
            request = reflection_pb2.ServerReflectionRequest()
            request.file_containing_extension.containing_type = kind
            request.file_containing_extension.extension_number = number
            await stream.send(request.SerializeToString())
            assert await stream.receive()
        await network.close()
        await server.stop(0)

    asyncio.run(run())
