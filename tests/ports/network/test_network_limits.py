"""What a listener takes from its callers, all of them and each: named, bounded, given back."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.ports import (
    Listener,
    ListenerLimits,
    Method,
    PeerUnreachable,
    RequestContext,
    Stream,
    StreamMethod,
    UnaryMethod,
)
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.network import options as network_options
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.network.server import GrpcServer
from tidelog.wire.errors import ErrorCode, TidelogError

CALL = "/tidelog.test.Service/Call"
STREAM = "/tidelog.test.Service/Stream"
MIB = 1024 * 1024
LARGE_BYTES = 15 * MIB
"""More than sockets take in on the way."""


@asynccontextmanager
async def serving(
    methods: Mapping[str, Method], **limits: int
) -> AsyncIterator[tuple[GrpcServer, Callable[[], GrpcNetwork]]]:
    """A listener with the limits, and a maker of callers with a connection of their own."""
    made = [GrpcNetwork(RealClock())]
    listener = Listener(name="client", bind="127.0.0.1:0", limits=ListenerLimits(**limits))
    server = await made[0].serve(listener, methods)

    def caller() -> GrpcNetwork:
        made.append(GrpcNetwork(RealClock()))
        return made[-1]

    try:
        yield server, caller
    finally:
        for network in made:
            await network.close()
        await server.stop(0)


async def echo(_: RequestContext, message: bytes) -> bytes:
    """The message back."""
    return message


class Held:
    """A handler that keeps its messages until it may go on."""

    def __init__(self) -> None:
        self.arrived = 0
        self.may_go_on = asyncio.Event()
        self._changed = asyncio.Event()

    async def handle(self, _: RequestContext, message: bytes) -> bytes:
        self.arrived += 1
        self._changed.set()
        await self.may_go_on.wait()
        return message[:1]

    async def wait_arrived(self, count: int) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while self.arrived < count:
                self._changed.clear()
                await self._changed.wait()


async def refusal(network: GrpcNetwork, address: str, message: bytes = b"") -> TidelogError:
    """Why a call is not answered."""
    with pytest.raises(TidelogError) as caught:
        await network.call(address, CALL, message, timeout_ms=HANG_MS)
    return caught.value


async def wait_until(is_so: Callable[[], bool]) -> None:
    """For what a listener's own tasks do a moment later."""
    async with asyncio.timeout(HANG_SECONDS):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0)


def test_one_connection_too_many_is_closed_and_another_may_come_when_one_is_gone() -> None:
    async def run() -> None:
        async with serving({CALL: UnaryMethod(echo)}, connections_max=2) as (server, caller):
            callers = [caller(), caller()]
            for network in callers:
                await network.call(server.address, CALL, b"", timeout_ms=HANG_MS)
            assert isinstance(await refusal(caller(), server.address), PeerUnreachable)
            await callers[0].close()

            async def is_answered() -> bool:
                try:
                    await caller().call(server.address, CALL, b"", timeout_ms=HANG_MS)
                except PeerUnreachable:
                    return False
                return True

            async with asyncio.timeout(HANG_SECONDS):
                while not await is_answered():
                    pass

    asyncio.run(run())


def test_calls_beyond_the_limit_are_refused_while_those_in_progress_go_on() -> None:
    async def run() -> None:
        held = Held()
        async with serving({CALL: UnaryMethod(held.handle)}, calls_max=3) as (server, caller):
            network = caller()
            calls = [
                asyncio.create_task(network.call(server.address, CALL, b"x", timeout_ms=HANG_MS))
                for _ in range(3)
            ]
            await held.wait_arrived(3)
            error = await refusal(caller(), server.address)
            assert error.code is ErrorCode.RESOURCE_EXHAUSTED
            held.may_go_on.set()
            assert await asyncio.gather(*calls) == [b"x"] * 3

    asyncio.run(run())


def test_a_request_beyond_the_memory_for_requests_is_refused_by_the_name_of_the_setting() -> None:
    async def run() -> None:
        held = Held()
        methods = {CALL: UnaryMethod(held.handle)}
        async with serving(methods, request_memory_bytes=MIB) as (server, caller):
            network = caller()
            call = asyncio.create_task(
                network.call(server.address, CALL, bytes(2 * MIB), timeout_ms=HANG_MS)
            )
            await held.wait_arrived(1)
            assert server.memory.request_bytes == 2 * MIB
            error = await refusal(caller(), server.address, b"small")
            assert error.code is ErrorCode.RESOURCE_EXHAUSTED
            assert "listeners.client.limits.request_memory_bytes = 1048576" in error.happened
            held.may_go_on.set()
            await call
            await wait_until(lambda: server.memory.request_bytes == 0)
            await caller().call(server.address, CALL, b"small", timeout_ms=HANG_MS)

    asyncio.run(run())


def test_the_memory_of_a_request_is_given_back_when_its_handler_fails_or_is_cancelled() -> None:
    async def run() -> None:
        async def fail(_: RequestContext, message: bytes) -> bytes:
            if message == b"fail":
                raise TidelogError(ErrorCode.INVALID_ARGUMENT, tried="t", happened="h")
            await asyncio.Event().wait()
            return b""

        async with serving({CALL: UnaryMethod(fail)}) as (server, caller):
            await refusal(caller(), server.address, b"fail")
            network = caller()
            call = asyncio.create_task(
                network.call(server.address, CALL, bytes(1_000), timeout_ms=HANG_MS)
            )
            await wait_until(lambda: server.memory.request_bytes == 1_000)
            call.cancel()
            await wait_until(lambda: server.memory.request_bytes == 0)

    asyncio.run(run())


def test_a_stream_is_not_read_while_the_memory_for_requests_is_used_up() -> None:
    async def run() -> None:
        held = Held()
        received: list[bytes] = []

        async def take(_: RequestContext, stream: Stream) -> None:
            while (message := await stream.receive()) is not None:
                received.append(message[:1])
                await stream.send(b"")

        methods: dict[str, Method] = {
            CALL: UnaryMethod(held.handle),
            STREAM: StreamMethod(take),
        }
        async with serving(methods, request_memory_bytes=MIB) as (server, caller):
            stream = caller().stream(server.address, STREAM)
            await stream.send(b"a")
            await stream.receive()
            network = caller()
            call = asyncio.create_task(
                network.call(server.address, CALL, bytes(MIB), timeout_ms=HANG_MS)
            )
            await held.wait_arrived(1)
            # One was being waited for already; what comes behind it stays with its sender.
            await stream.send(b"b")
            await stream.receive()
            await stream.send(b"c")
            await asyncio.sleep(0)
            assert received == [b"a", b"b"]
            held.may_go_on.set()
            await call
            await stream.receive()
            assert received == [b"a", b"b", b"c"]
            await stream.end_sending()
            assert await stream.receive() is None
            await wait_until(lambda: server.memory.request_bytes == 0)

    asyncio.run(run())


def test_a_handler_that_waits_for_something_else_can_let_its_last_message_go() -> None:
    async def run() -> None:
        has_let_go, may_go_on = asyncio.Event(), asyncio.Event()

        async def take(_: RequestContext, stream: Stream) -> None:
            while await stream.receive() is not None:
                stream.let_go()
                has_let_go.set()
                await may_go_on.wait()
                await stream.send(b"")

        methods: dict[str, Method] = {CALL: UnaryMethod(echo), STREAM: StreamMethod(take)}
        async with serving(methods, request_memory_bytes=MIB) as (server, caller):
            stream = caller().stream(server.address, STREAM)
            await stream.send(bytes(2 * MIB))
            await has_let_go.wait()
            await wait_until(lambda: server.memory.request_bytes == 0)
            await caller().call(server.address, CALL, b"small", timeout_ms=HANG_MS)
            may_go_on.set()
            await stream.receive()
            await stream.end_sending()
            assert await stream.receive() is None
            await wait_until(lambda: server.memory.request_bytes == 0)

    asyncio.run(run())


class Stalled:
    """A way to the listener on which nothing comes back any more once it is stopped."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self.is_stopped = False
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            try:
                yield f"{host}:{port}"
            finally:
                self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._host, int(self._port))
        self._writers += [writer, up_writer]
        back = asyncio.create_task(self._back(up_reader, writer))
        while data := await _read(reader):
            up_writer.write(data)
        back.cancel()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not self.is_stopped:
            if not (data := await _read(reader)):
                return
            writer.write(data)
        await asyncio.Event().wait()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(4_096)
    except ConnectionError:
        return b""


def test_a_caller_that_reads_no_answers_gets_no_more_and_nobody_else_notices() -> None:
    async def run() -> None:
        async def large(_: RequestContext, message: bytes) -> bytes:
            return bytes(MIB) if message else b""

        methods = {CALL: UnaryMethod(large)}
        async with serving(methods, connection_answer_bytes=4 * MIB) as (server, caller):
            way = Stalled(server.address)
            async with way.open() as address, grpc.aio.insecure_channel(address) as channel:
                call: Any = channel.unary_unary(CALL)
                await call(b"", timeout=HANG_SECONDS)
                way.is_stopped = True
                calls = [call(b"x") for _ in range(60)]
                await wait_until(lambda: server.memory.refused_count > 40)
                assert 4 * MIB - 2 * MIB <= server.memory.answer_bytes <= 4 * MIB
                other = await caller().call(server.address, CALL, b"x", timeout_ms=HANG_MS)
                assert len(other) == MIB
                for each in calls:
                    each.cancel()
                way.cut()
            await wait_until(lambda: server.memory.answer_bytes == 0)

    asyncio.run(run())


def test_all_unread_answers_together_are_bounded_as_well() -> None:
    async def run() -> None:
        async def large(_: RequestContext, message: bytes) -> bytes:
            return bytes(LARGE_BYTES) if message else b""

        methods = {CALL: UnaryMethod(large)}
        limits = {"connection_answer_bytes": MIB, "answer_memory_bytes": 4 * LARGE_BYTES}
        async with serving(methods, **limits) as (server, caller):
            ways = [Stalled(server.address) for _ in range(3)]
            channels = []
            calls: list[Any] = []
            async with ways[0].open() as first, ways[1].open() as second, ways[2].open() as third:
                for way, address in zip(ways, (first, second, third), strict=True):
                    channel: Any = grpc.aio.insecure_channel(address)
                    channels.append(channel)
                    await channel.unary_unary(CALL)(b"", timeout=HANG_SECONDS)
                    way.is_stopped = True
                for channel in channels[:2]:
                    calls.append(channel.unary_unary(CALL)(b"x"))
                await wait_until(lambda: server.memory.answer_bytes == 4 * LARGE_BYTES)
                error = await refusal(caller(), server.address, b"x")
                assert error.code is ErrorCode.INDETERMINATE
                assert "limits.answer_memory_bytes" in error.happened
                for channel in channels:
                    await channel.close()

    asyncio.run(run())


def test_a_stream_that_nobody_reads_stops_its_sender() -> None:
    async def run() -> None:
        sent, is_pouring = [0], asyncio.Event()

        async def pour(_: RequestContext, stream: Stream) -> None:
            await stream.receive()
            while True:
                await stream.send(bytes(MIB))
                sent[0] += 1
                is_pouring.set()

        async with serving({STREAM: StreamMethod(pour)}) as (server, caller):
            stream = caller().stream(server.address, STREAM)
            await stream.send(b"")
            async with asyncio.timeout(HANG_SECONDS):
                await is_pouring.wait()
            # More than enough turns for whatever is not held back.
            for _ in range(2_000):
                await asyncio.sleep(0)
            assert sent[0] <= 8
            stream.cancel()

    asyncio.run(run())


@pytest.mark.slow
def test_a_call_without_a_deadline_ends_at_the_listeners() -> None:
    async def run() -> None:
        deadlines: list[int] = []

        async def never(context: RequestContext, message: bytes) -> bytes:
            deadlines.append(context.deadline_ns)
            await asyncio.Event().wait()
            return message

        methods = {CALL: UnaryMethod(never)}
        async with (
            serving(methods, call_ms_max=1_000) as (server, _),
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            call: Any = channel.unary_unary(CALL)
            started_ns = RealClock().monotonic_ns()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"")
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert "call_ms_max" in (caught.value.details() or "")
            assert deadlines[0] - started_ns < 10_000_000_000

    asyncio.run(run())


def test_a_smaller_limit_of_one_message_holds() -> None:
    async def run() -> None:
        methods = {CALL: UnaryMethod(echo)}
        async with serving(methods, request_bytes_max=64 * 1024) as (server, caller):
            network = caller()
            await network.call(server.address, CALL, bytes(60_000), timeout_ms=HANG_MS)
            error = await refusal(network, server.address, bytes(70_000))
            assert error.code is ErrorCode.BATCH_TOO_LARGE

    asyncio.run(run())


HUGE_BYTES = 128 * MIB
KEPT_MIB_MAX = 48
"""Three times the limit of one message; keeping the whole would take 128."""

_SERVER = """
import asyncio, resource, sys
from tests.ports.network.test_network_limits import CALL, echo, serving
from tidelog.ports import UnaryMethod

async def run():
    async with serving({CALL: UnaryMethod(echo)}) as (server, _):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(server.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, flush=True)

asyncio.run(run())
"""


@pytest.mark.slow
def test_the_installed_grpc_does_not_keep_a_message_over_the_limit_before_it_refuses_it() -> None:
    """Other releases looked at the length only once the whole message was there."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(address, options=options) as channel:
            call: Any = channel.unary_unary(CALL)
            with pytest.raises(grpc.RpcError) as caught:
                call(bytes(HUGE_BYTES), timeout=HANG_SECONDS)
        kept, _ = process.communicate("", timeout=HANG_SECONDS)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert int(kept) // 1024 < KEPT_MIB_MAX


def test_callers_ping_less_often_than_listeners_allow() -> None:
    caller = dict(network_options.channel_options())
    server = dict(network_options.server_options(ListenerLimits()))
    allowed_ms = server["grpc.http2.min_ping_interval_without_data_ms"]
    assert caller["grpc.keepalive_time_ms"] > allowed_ms
    assert server["grpc.keepalive_permit_without_calls"] == 1
    # Without it a call to a stopped process hangs until its deadline, whatever the keepalive.
    assert caller["grpc.http2.ping_timeout_ms"] == caller["grpc.keepalive_timeout_ms"]
