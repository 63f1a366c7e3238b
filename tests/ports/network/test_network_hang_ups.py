"""A real listener against callers by hand: who reads nothing or finishes nothing is hung up on."""

import asyncio
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ports.network.test_network_limits import CALL, MIB, STREAM, serving
from tests.support.waiting import HANG_MS, HANG_SECONDS, wait_until
from tidelog.chaos.live.single.slow_clients_wire import WINDOW_MAX, RawCaller, message_prefix
from tidelog.ports import Method, RequestContext, Stream, StreamMethod, UnaryMethod
from tidelog.ports.real.network import sockets as network_sockets
from tidelog.ports.real.network.options import UNREAD_BYTES_MAX
from tidelog.ports.real.network.server import GrpcServer

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="others tell nothing of a socket")


async def large(context: RequestContext, message: bytes) -> bytes:
    """As many bytes as the caller may have, with room asked for them."""
    return bytes(await context.answer_room.take(MIB)) if message else b""


async def until(server: GrpcServer, is_so: Callable[[], bool]) -> None:
    """Look at the callers until it is so; the listener's own watch looks as well."""
    async with asyncio.timeout(HANG_SECONDS):
        while not is_so():
            await server.watch.look()
            await asyncio.sleep(0)


class HalfMessages:
    """Four callers that send two thirds of a message each."""

    def __init__(self, server: GrpcServer) -> None:
        self._body = message_prefix(3 * MIB) + bytes(2 * MIB)
        self.callers = [RawCaller(server.address, window_bytes=WINDOW_MAX) for _ in range(4)]
        self._streams = [(each, each.begin(CALL)) for each in self.callers]
        self.done = [0] * len(self.callers)
        """Bytes that are sent."""

    def send(self) -> None:
        """What goes out without waiting."""
        for number, (each, stream_id) in enumerate(self._streams):
            self.done[number] += each.send_some(stream_id, self._body[self.done[number] :])
            each.read_some(0.001)

    def close(self) -> None:
        """Hang up."""
        for each in self.callers:
            each.close()


def is_hung_up(caller: RawCaller) -> bool:
    """Whether the listener has closed the connection."""
    caller.read_some(0.001)
    return caller.is_closed


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize("window_bytes", [0, WINDOW_MAX])
def test_a_caller_that_takes_no_answers_is_hung_up_on_and_its_memory_is_free(
    window_bytes: int,
) -> None:
    async def run() -> None:
        limits = {"answer_ms_max": 1_000, "connection_answer_bytes": 8 * MIB}
        async with serving({CALL: UnaryMethod(large)}, **limits) as (server, caller):
            hanging = RawCaller(server.address, window_bytes=window_bytes)
            for _ in range(60):
                hanging.call(CALL, b"x")
            await until(server, lambda: server.memory.answers.waiting_count > 0)
            assert server.memory.answer_bytes <= 8 * MIB
            other = await caller().call(server.address, CALL, b"x", timeout_ms=HANG_MS)
            assert len(other) == MIB
            await until(server, lambda: server.memory.answer_bytes == 0)
            await until(server, lambda: server.memory.answers.waiting_count == 0)
            assert server.memory.refused["answer_ms_max"] == 1
            assert server.watch.hung_up_count == 1
            hanging.close()

    asyncio.run(run())


@pytest.mark.slow
@needs_linux
def test_a_stream_of_which_nothing_is_read_is_hung_up_on_as_well() -> None:
    async def run() -> None:
        async def pour(context: RequestContext, stream: Stream) -> None:
            await stream.receive()
            while True:
                await stream.send(bytes(await context.answer_room.take(MIB)))

        limits = {"answer_ms_max": 1_000}
        async with serving({STREAM: StreamMethod(pour)}, **limits) as (server, _):
            hanging = RawCaller(server.address, window_bytes=0)
            stream_id = hanging.begin(STREAM)
            hanging.send_some(stream_id, message_prefix(1) + b"x")
            await until(server, lambda: server.memory.answer_bytes > 0)
            await until(server, lambda: server.memory.answer_bytes == 0)
            assert server.memory.refused == {"answer_ms_max": 1}
            hanging.close()

    asyncio.run(run())


@pytest.mark.slow
@needs_linux
def test_messages_that_are_begun_and_not_finished_are_bounded_over_all_connections() -> None:
    async def run() -> None:
        limits = {"request_memory_bytes": 4 * MIB}
        async with serving({CALL: UnaryMethod(large)}, **limits) as (server, caller):
            half = HalfMessages(server)
            async with asyncio.timeout(HANG_SECONDS):
                while server.watch.hung_up_count < 2:
                    half.send()
                    await server.watch.look()
                    await asyncio.sleep(0)
            assert server.memory.refused == {"request_memory_bytes": 2}
            assert sum(is_hung_up(each) for each in half.callers) == 2
            other = await caller().call(server.address, CALL, b"", timeout_ms=HANG_MS)
            assert other == b""
            half.close()

    asyncio.run(run())


@pytest.mark.slow
@needs_linux
def test_unfinished_messages_are_bounded_while_the_event_loop_stands_still() -> None:
    async def run() -> None:
        limits = {"request_memory_bytes": 4 * MIB}
        async with serving({CALL: UnaryMethod(large)}, **limits) as (server, caller):
            half = HalfMessages(server)
            async with asyncio.timeout(HANG_SECONDS):
                # More than that is taken in only of a message that is waited for.
                while min(half.done) <= 2 * UNREAD_BYTES_MAX:
                    half.send()
                    await asyncio.sleep(0)
            # The loop of this test does not turn meanwhile.
            wait_until(lambda: sum(each.is_closed for each in half.callers) >= 2, turn=half.send)
            assert sum(each.is_closed for each in half.callers) == 2
            await until(server, lambda: server.watch.hung_up_count >= 2)
            assert server.memory.refused == {"request_memory_bytes": 2}
            assert sum(is_hung_up(each) for each in half.callers) == 2
            other = await caller().call(server.address, CALL, b"", timeout_ms=HANG_MS)
            assert other == b""
            half.close()

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("method", [CALL, STREAM])
def test_a_call_whose_message_never_comes_is_refused_in_time_and_its_slot_is_free(
    method: str,
) -> None:
    async def run() -> None:
        async def take(_: RequestContext, stream: Stream) -> None:
            while await stream.receive() is not None:
                pass

        methods: dict[str, Method] = {CALL: UnaryMethod(large), STREAM: StreamMethod(take)}
        limits = {"message_ms_max": 1_000, "calls_max": 3}
        async with serving(methods, **limits) as (server, caller):
            silent = RawCaller(server.address, window_bytes=WINDOW_MAX)
            for _ in range(3):
                silent.begin(method)
            await until(server, lambda: server.memory.refused.get("message_ms_max") == 3)
            other = await caller().call(server.address, CALL, b"", timeout_ms=HANG_MS)
            assert other == b""
            silent.close()

    asyncio.run(run())


def test_a_call_that_ends_without_a_message_is_told_so() -> None:
    async def run() -> None:
        async with serving({CALL: UnaryMethod(large)}) as (server, _):
            raw = RawCaller(server.address, window_bytes=WINDOW_MAX)
            raw.end(raw.begin(CALL))
            received = b""
            async with asyncio.timeout(HANG_SECONDS):
                while b"has no message" not in received:
                    received += b"".join(each.payload for each in raw.read_some(0.001))
                    await asyncio.sleep(0)
            raw.close()

    asyncio.run(run())


def test_a_caller_is_named_as_grpc_names_it() -> None:
    assert network_sockets.caller_name(("127.0.0.1", 9092)) == "ipv4:127.0.0.1:9092"
    assert network_sockets.caller_name(("::ffff:10.0.0.1", 5, 0, 0)) == "ipv4:10.0.0.1:5"
    assert network_sockets.caller_name(("::1", 9092, 0, 0)) == "ipv6:%5B::1%5D:9092"
    assert network_sockets.caller_name("/a/unix/socket") == ""


@needs_linux
def test_only_the_connection_that_is_meant_is_broken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as caller:
            accepted, address = listener.accept()
            with accepted:
                caller.sendall(bytes(1_000))
                assert accepted.recv(2_000) == bytes(1_000)
                name = network_sockets.caller_name(address)
                number = accepted.fileno()
                assert number in network_sockets.descriptors()
                assert network_sockets.connection_at(number, port) == (name, 1_000)
                assert network_sockets.connection_at(number, port + 1) is None
                assert network_sockets.connection_at(caller.fileno(), port) is None
                with Path("/dev/null").open("rb") as other:
                    assert network_sockets.connection_at(other.fileno(), port) is None
                assert not network_sockets.hang_up(number, port, "ipv4:127.0.0.1:1")
                assert not network_sockets.hang_up(caller.fileno(), port, name)
                accepted.sendall(b"x")
                assert caller.recv(1) == b"x"
                assert network_sockets.hang_up(number, port, name)
                assert caller.recv(1) == b""
