"""What only sockets and foreign gRPC clients can show."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.ports import (
    MESSAGE_BYTES_MAX,
    DeathHint,
    Listener,
    Method,
    PeerUnreachable,
    RequestContext,
    Stream,
    StreamMethod,
    UnaryMethod,
)
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.network import errors as network_errors
from tidelog.ports.real.network.handlers import normalise_address
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.network.server import GrpcServer
from tidelog.v1 import errors_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

UNARY = "/tidelog.test.Service/Unary"
STREAM = "/tidelog.test.Service/Stream"


async def echo(_: RequestContext, message: bytes) -> bytes:
    """Answer with the question."""
    return message


@asynccontextmanager
async def serving(
    methods: Mapping[str, Method], reflection_services: tuple[str, ...] = ()
) -> AsyncIterator[GrpcServer]:
    """A listener on loopback."""
    listener = Listener(name="client", bind="127.0.0.1:0", reflection_services=reflection_services)
    server = await GrpcNetwork(RealClock()).serve(listener, methods)
    try:
        yield server
    finally:
        await server.stop(0)


@asynccontextmanager
async def foreign_client(address: str) -> AsyncIterator[Any]:
    """A channel that knows nothing of Tidelog."""
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


@asynccontextmanager
async def calling(client_id: str = "caller") -> AsyncIterator[GrpcNetwork]:
    """A network that is closed at the end."""
    network = GrpcNetwork(RealClock(), client_id=client_id)
    try:
        yield network
    finally:
        await network.close()


async def status_of(call: Any) -> grpc.aio.AioRpcError:
    """How a foreign client sees the failure."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@pytest.mark.slow
def test_importing_the_ports_starts_no_grpc() -> None:
    code = (
        "import sys, tidelog.ports, tidelog.ports.real.disk.disk; sys.exit('grpc' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=HANG_SECONDS).returncode == 0


def test_a_foreign_client_finds_status_text_and_error_in_the_trailer() -> None:
    async def refuse(_: RequestContext, message: bytes) -> bytes:
        raise TidelogError(ErrorCode.UNKNOWN_TOPIC, tried="produce", happened="no topic x")

    async def run() -> grpc.aio.AioRpcError:
        async with (
            serving({UNARY: UnaryMethod(refuse)}) as server,
            foreign_client(server.address) as channel,
        ):
            return await status_of(channel.unary_unary(UNARY)(b"", timeout=HANG_SECONDS))

    error = asyncio.run(run())
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details() == "[UNKNOWN_TOPIC] produce: no topic x"
    trailer = error.trailing_metadata()["tidelog-error-bin"]
    assert isinstance(trailer, bytes)
    told = errors_pb2.Error.FromString(trailer)
    assert (told.code, told.tried, told.happened) == (20, "produce", "no topic x")
    assert told.retriable
    assert told.hint


def test_long_texts_of_an_error_are_cut_so_that_the_error_arrives() -> None:
    async def refuse(_: RequestContext, message: bytes) -> bytes:
        text = "größer " * 20_000
        raise TidelogError(ErrorCode.INVALID_ARGUMENT, tried=text, happened=text, hint=text)

    async def run() -> TidelogError:
        async with serving({UNARY: UnaryMethod(refuse)}) as server, calling() as network:
            with pytest.raises(TidelogError) as caught:
                await network.call(server.address, UNARY, b"", timeout_ms=HANG_MS)
            return caught.value

    error = asyncio.run(run())
    assert error.code is ErrorCode.INVALID_ARGUMENT
    for text in (error.tried, error.happened, error.hint):
        assert text.startswith("größer größer")
        assert text.endswith("…")
        assert len(text.encode()) <= network_errors.TEXT_BYTES_MAX


def test_an_error_code_of_a_newer_release_becomes_unknown_and_is_named() -> None:
    trailer = errors_pb2.Error(code=9_999, tried="t", happened="h").SerializeToString()  # type: ignore[arg-type]
    error = network_errors.decode_error(trailer)
    assert error.code is ErrorCode.UNKNOWN
    assert "9999" in error.happened


def test_every_error_code_has_a_status_other_than_ok() -> None:
    for code in ErrorCode:
        error = TidelogError(code, tried="t", happened="h", hint="h")
        assert network_errors.status_of(error) is not grpc.StatusCode.OK


@pytest.mark.parametrize("is_stream", [False, True], ids=["unary", "stream"])
@pytest.mark.slow
def test_a_larger_message_from_a_foreign_client_is_refused(is_stream: bool) -> None:
    async def receive(_: RequestContext, stream: Stream) -> None:
        while await stream.receive() is not None:
            pass

    async def run() -> grpc.aio.AioRpcError:
        methods: dict[str, Method] = {UNARY: UnaryMethod(echo), STREAM: StreamMethod(receive)}
        message = bytes(MESSAGE_BYTES_MAX + 1)
        async with (
            serving(methods) as server,
            foreign_client(server.address) as channel,
        ):
            if not is_stream:
                return await status_of(channel.unary_unary(UNARY)(message, timeout=HANG_SECONDS))
            call = channel.stream_unary(STREAM)(iter([message]), timeout=HANG_SECONDS)
            return await status_of(call)

    assert asyncio.run(run()).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_compressed_message_is_refused() -> None:
    async def run() -> grpc.aio.AioRpcError:
        async with (
            serving({UNARY: UnaryMethod(echo)}) as server,
            foreign_client(server.address) as channel,
        ):
            call = channel.unary_unary(UNARY)(
                bytes(100_000), timeout=HANG_SECONDS, compression=grpc.Compression.Gzip
            )
            return await status_of(call)

    assert asyncio.run(run()).code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_client_id_that_no_header_can_hold_arrives_readable() -> None:
    async def run() -> str:
        seen: list[str] = []

        async def handler(context: RequestContext, message: bytes) -> bytes:
            seen.append(context.client_id)
            return message

        async with (
            serving({UNARY: UnaryMethod(handler)}) as server,
            calling("Größe\n" + "x" * 1_000) as network,
        ):
            await network.call(server.address, UNARY, b"", timeout_ms=HANG_MS)
        return seen[0]

    client_id = asyncio.run(run())
    assert client_id.startswith("Gr??e?xxx")
    assert len(client_id) == 256


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:9092", "127.0.0.1:9092"),
        ("ipv6:%5B::1%5D:9092", "[::1]:9092"),
        ("ipv6:[::1]:9092", "[::1]:9092"),
        ("unix:/run/x", "unix:/run/x"),
    ],
)
def test_addresses_of_callers_are_normalised(peer: str, address: str) -> None:
    assert normalise_address(peer) == address


def test_health_serves_the_listener_and_each_service_and_ends_with_them() -> None:
    async def run() -> tuple[list[int], list[int]]:
        async with (
            serving({UNARY: UnaryMethod(echo)}) as server,
            foreign_client(server.address) as channel,
        ):
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answers = [
                (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status
                for service in ("", "tidelog.test.Service")
            ]
            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=HANG_SECONDS)
            watched = [(await watch.read()).status]
            stop = asyncio.create_task(server.stop(HANG_MS))
            watched.append((await watch.read()).status)
            watch.cancel()
            await stop
            return answers, watched

    serving_status = health_pb2.HealthCheckResponse.SERVING
    not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
    assert asyncio.run(run()) == ([serving_status] * 2, [serving_status, not_serving])


async def _list_services(address: str) -> list[str]:
    async with foreign_client(address) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(iter([request]), timeout=HANG_SECONDS)
        answer = await call.read()
        call.cancel()
        return [service.name for service in answer.list_services_response.service]


def test_reflection_lists_the_services_that_the_listener_names() -> None:
    async def run() -> list[str]:
        services = ("tidelog.v1.FetchService",)
        async with serving({UNARY: UnaryMethod(echo)}, services) as server:
            return await _list_services(server.address)

    names = asyncio.run(run())
    assert "tidelog.v1.FetchService" in names
    assert "grpc.health.v1.Health" in names


def test_a_listener_without_reflection_has_none() -> None:
    async def run() -> grpc.StatusCode:
        async with serving({UNARY: UnaryMethod(echo)}) as server:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _list_services(server.address)
            return caught.value.code()

    assert asyncio.run(run()) is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("reads_bytes", [0, 24], ids=["at once", "after the preface"])
def test_a_proxy_without_a_peer_behind_it_is_closed_early(is_reset: bool, reads_bytes: int) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(reads_bytes)
        if is_reset:
            _reset_on_close(writer.get_extra_info("socket"))
        writer.close()

    assert asyncio.run(_hint_of(close)) is DeathHint.CLOSED_EARLY


def test_a_peer_that_spoke_and_then_closed_gives_no_hint() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        empty_settings = b"\0\0\0\4\0\0\0\0\0"
        writer.write(empty_settings)
        await reader.readexactly(24 + 9)
        writer.close()

    assert asyncio.run(_hint_of(speak)) is DeathHint.NONE


def test_a_peer_that_speaks_another_protocol_gives_no_hint() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    assert asyncio.run(_hint_of(answer)) is DeathHint.NONE


def test_a_name_that_does_not_resolve_gives_no_hint() -> None:
    async def run() -> DeathHint:
        async with calling() as network:
            with pytest.raises(PeerUnreachable) as caught:
                await network.call("no-such-host.invalid:1", UNARY, b"", timeout_ms=HANG_MS)
            return caught.value.death_hint

    assert asyncio.run(run()) is DeathHint.NONE


async def _hint_of(behaviour: Any) -> DeathHint:
    server = await asyncio.start_server(behaviour, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, calling() as network:
        with pytest.raises(PeerUnreachable) as caught:
            await network.call(f"{host}:{port}", UNARY, b"", timeout_ms=HANG_MS)
        return caught.value.death_hint


def _reset_on_close(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.mark.slow
def test_a_peer_that_accepts_and_stays_silent_gives_no_hint() -> None:
    """A paused process looks so: its kernel accepts, and nobody answers."""

    async def run() -> DeathHint:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            host, port = listening.getsockname()
            async with calling() as network:
                with pytest.raises(PeerUnreachable) as caught:
                    await network.call(f"{host}:{port}", UNARY, b"", timeout_ms=HANG_MS)
                return caught.value.death_hint

    assert asyncio.run(run()) is DeathHint.NONE


@pytest.mark.parametrize(
    "bind", ["127.0.0.1:99999", "127.0.0.1", ":1", "192.0.2.1:65000", "no-such-host.invalid:1"]
)
def test_an_address_that_is_no_address_of_this_machine_cannot_be_bound(bind: str) -> None:
    async def run() -> TidelogError:
        async with calling() as network:
            with pytest.raises(TidelogError) as caught:
                await network.serve(Listener(name="client", bind=bind), {})
            return caught.value

    error = asyncio.run(run())
    assert error.code is ErrorCode.UNAVAILABLE
    assert bind in error.tried
    assert error.happened


def test_a_receive_that_was_cancelled_ends_receiving_but_not_the_handler() -> None:
    async def handler(_: RequestContext, stream: Stream) -> None:
        receiving = asyncio.create_task(stream.receive())
        await asyncio.sleep(0)
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        with pytest.raises(TidelogError) as caught:
            await stream.receive()
        await stream.send(caught.value.code.name.encode())

    async def run() -> list[bytes | None]:
        async with serving({STREAM: StreamMethod(handler)}) as server, calling() as network:
            stream = network.stream(server.address, STREAM)
            return [await stream.receive(), await stream.receive()]

    assert asyncio.run(run()) == [b"CLOSED", None]


def test_a_cancelled_receive_breaks_the_callers_stream() -> None:
    async def linger(_: RequestContext, stream: Stream) -> None:
        await stream.receive()

    async def run() -> ErrorCode:
        async with serving({STREAM: StreamMethod(linger)}) as server, calling() as network:
            stream = network.stream(server.address, STREAM)
            receiving = asyncio.create_task(stream.receive())
            await asyncio.sleep(0)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            with pytest.raises(TidelogError) as caught:
                await stream.receive()
            return caught.value.code

    assert asyncio.run(run()) is ErrorCode.CLOSED


def test_two_networks_of_a_process_share_no_connection() -> None:
    async def run() -> list[str]:
        addresses: list[str] = []

        async def handler(context: RequestContext, message: bytes) -> bytes:
            addresses.append(context.address)
            return message

        async with (
            serving({UNARY: UnaryMethod(handler)}) as server,
            calling() as first,
            calling() as second,
        ):
            for network in (first, second, first):
                await network.call(server.address, UNARY, b"", timeout_ms=HANG_MS)
        return addresses

    first, second, again = asyncio.run(run())
    assert first == again
    assert first != second


def test_a_task_of_a_handler_that_sends_to_a_caller_who_is_gone_hears_that_it_is_closed() -> None:
    async def run() -> ErrorCode:
        is_in_handler, is_cancelled = asyncio.Event(), asyncio.Event()
        heard: asyncio.Queue[ErrorCode] = asyncio.Queue()

        async def send_late(stream: Stream) -> None:
            await is_cancelled.wait()
            with pytest.raises(TidelogError) as caught:
                await stream.send(b"late")
            heard.put_nowait(caught.value.code)

        async def handler(_: RequestContext, stream: Stream) -> None:
            sending = asyncio.create_task(send_late(stream))
            is_in_handler.set()
            try:
                await asyncio.Event().wait()
            finally:
                is_cancelled.set()
                await sending

        async with serving({STREAM: StreamMethod(handler)}) as server, calling() as network:
            stream = network.stream(server.address, STREAM)
            await stream.send(b"")
            await is_in_handler.wait()
            stream.cancel()
            async with asyncio.timeout(HANG_SECONDS):
                return await heard.get()

    assert asyncio.run(run()) is ErrorCode.CLOSED
