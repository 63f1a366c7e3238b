"""What a hostile or broken caller may send to a listener: refused, and nobody else notices."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from tests.ports.network.test_network_limits import CALL, echo, serving
from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.chaos.live.single.slow_clients_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GO_AWAY,
    HEADERS,
    PING,
    RST_STREAM,
    WINDOW_MAX,
    Fields,
    Frame,
    RawCaller,
    call_headers,
    frame,
    message_prefix,
)
from tidelog.ports import RequestContext, UnaryMethod
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.network.options import METADATA_BYTES_MAX

GZIPPED = b"\x01"
"""The mark before a message that gRPC has compressed."""


class Hostile:
    """A raw caller, and what the listener has told it."""

    def __init__(self, address: str) -> None:
        self.raw = RawCaller(address, window_bytes=WINDOW_MAX)
        self.told: list[Frame] = []

    async def wait(self, is_so: Callable[[Frame], bool]) -> Frame | None:
        """The first frame of which it is so; None: the listener hung up."""
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                for each in self.told:
                    if is_so(each):
                        return each
                if self.raw.is_closed:
                    return None
                self.told += self.raw.read_some(0.001)
                await asyncio.sleep(0)

    async def status(self, method: str | bytes, more: Fields = (), mark: bytes = b"\x00") -> bytes:
        """How a call ends: the last headers of its stream, or the code of its reset."""
        stream_id = self.raw.begin(method, more)
        self.raw.send_some(stream_id, mark + message_prefix(1)[1:] + b"x")
        self.raw.end(stream_id)
        last = await self.wait(
            lambda each: (
                each.stream_id == stream_id
                and (each.kind == RST_STREAM or (each.kind == HEADERS and bool(each.flags & 1)))
            )
        )
        return b"" if last is None else last.payload


def against(work: Callable[[Hostile], Awaitable[None]]) -> None:
    """A listener with somebody who behaves beside the one who does not."""

    async def run() -> None:
        async with serving({CALL: UnaryMethod(echo)}) as (server, caller):
            hostile, other = Hostile(server.address), caller()
            await other.call(server.address, CALL, b"before", timeout_ms=HANG_MS)
            await work(hostile)
            answer = await other.call(server.address, CALL, b"after", timeout_ms=HANG_MS)
            assert answer == b"after"
            new = await caller().call(server.address, CALL, b"new", timeout_ms=HANG_MS)
            assert new == b"new"
            hostile.raw.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "path", [b"/\xff\xfe/\xff", b"\xff", b"/a.b/C", b"/", CALL.encode() + b"s"]
)
def test_a_name_that_nobody_serves_ends_that_call_alone_even_if_it_is_no_text(path: bytes) -> None:
    async def work(hostile: Hostile) -> None:
        assert b"NOT_IMPLEMENTED" in await hostile.status(path)

    against(work)


def test_what_a_caller_calls_itself_may_be_no_text() -> None:
    async def work(hostile: Hostile) -> None:
        more = ((b"tidelog-client-id", b"\xff\xfe\x80"),)
        assert b"grpc-status\x010" in await hostile.status(CALL, more)

    against(work)


@pytest.mark.parametrize("codec", [b"gzip", b"deflate", b"nonsense"])
def test_messages_that_grpc_would_have_to_unfold_are_refused(codec: bytes) -> None:
    async def work(hostile: Hostile) -> None:
        status = await hostile.status(CALL, ((b"grpc-encoding", codec),), mark=GZIPPED)
        assert b"grpc-status" in status
        assert b"grpc-status\x010" not in status

    against(work)


def test_headers_over_the_limit_are_refused_before_any_handler() -> None:
    async def work(hostile: Hostile) -> None:
        block = call_headers(CALL.encode(), ((b"x", b"a" * 2 * METADATA_BYTES_MAX),))
        hostile.raw.write(frame(HEADERS, 0, 1, block[:16_000]))
        hostile.raw.write(frame(CONTINUATION, 0, 1, block[16_000:32_000]))
        hostile.raw.write(frame(CONTINUATION, END_HEADERS, 1, block[32_000:]))
        hostile.raw.write(frame(DATA, END_STREAM, 1, message_prefix(1) + b"x"))
        told = await hostile.wait(lambda each: each.kind in (HEADERS, RST_STREAM, GO_AWAY))
        assert told is None or b"grpc-status\x010" not in told.payload

    against(work)


def test_headers_without_end_are_cut_off() -> None:
    async def work(hostile: Hostile) -> None:
        hostile.raw.write(frame(HEADERS, 0, 1, call_headers(CALL.encode())))
        more = frame(CONTINUATION, 0, 1, call_headers(CALL.encode(), ((b"x", b"a" * 8_000),)))
        async with asyncio.timeout(HANG_SECONDS):
            while not hostile.raw.is_closed:
                hostile.raw.write(more)
                hostile.raw.read_some(0.001)
                await asyncio.sleep(0)

    against(work)


def test_pings_without_end_are_hung_up_on_by_name() -> None:
    async def work(hostile: Hostile) -> None:
        for _ in range(20):
            hostile.raw.write(frame(PING, 0, 0, b"12345678"))
            hostile.told += hostile.raw.read_some(0.001)
            await asyncio.sleep(0)
        told = await hostile.wait(lambda each: each.kind == GO_AWAY)
        assert told is not None
        assert b"too_many_pings" in told.payload

    against(work)


@pytest.mark.slow
def test_calls_that_are_begun_and_withdrawn_at_once_leave_nothing() -> None:
    async def work(hostile: Hostile) -> None:
        for _ in range(2_000):
            hostile.raw.reset(hostile.raw.begin(CALL))
            hostile.raw.read_some(0.000_1)
            await asyncio.sleep(0)

    against(work)


def test_another_protocol_is_hung_up_on() -> None:
    async def run() -> None:
        async with serving({CALL: UnaryMethod(echo)}) as (server, caller):
            host, _, port = server.address.rpartition(":")
            with socket.create_connection((host, int(port))) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                plain.setblocking(False)
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(HANG_SECONDS):
                    while await loop.sock_recv(plain, 4_096):
                        pass
            answer = await caller().call(server.address, CALL, b"x", timeout_ms=HANG_MS)
            assert answer == b"x"

    asyncio.run(run())


def test_a_deadline_beyond_all_measure_is_the_listeners() -> None:
    async def run() -> None:
        deadlines: list[int] = []

        async def note(context: RequestContext, message: bytes) -> bytes:
            deadlines.append(context.deadline_ns)
            return message

        async with serving({CALL: UnaryMethod(note)}, call_ms_max=60_000) as (server, _):
            hostile = Hostile(server.address)
            before_ns = RealClock().monotonic_ns()
            await hostile.status(CALL, ((b"grpc-timeout", b"99999999H"),))
            assert 0 < deadlines[0] - before_ns <= 80_000_000_000
            hostile.raw.close()

    asyncio.run(run())


@pytest.mark.slow
def test_a_connection_without_calls_is_closed_in_time() -> None:
    async def run() -> None:
        limits = {"connection_idle_ms": 1_000}
        async with serving({CALL: UnaryMethod(echo)}, **limits) as (server, _):
            hostile = Hostile(server.address)
            await hostile.status(CALL)
            assert await hostile.wait(lambda _: False) is None
            assert hostile.raw.is_closed

    asyncio.run(run())
