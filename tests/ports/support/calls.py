"""What the contract tests of the network serve and call."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from tests.ports.support.adapters import World
from tests.support.waiting import HANG_MS
from tidelog.ports import (
    Clock,
    Listener,
    Method,
    Network,
    PeerUnreachable,
    RequestContext,
    Server,
    Stream,
)

UNARY: Final = "/tidelog.test.Service/Unary"
STREAM: Final = "/tidelog.test.Service/Stream"
SHORT_MS: Final = 50


@asynccontextmanager
async def serving(
    world: World, methods: Mapping[str, Method]
) -> AsyncIterator[tuple[Server, Network]]:
    """A server of one node, and the network of another that calls it."""
    listener = Listener(name="client", bind=world.bind("server"))
    server = await world.network("server").serve(listener, methods)
    try:
        yield server, world.network("caller")
    finally:
        await server.stop(0)


async def echo(_: RequestContext, message: bytes) -> bytes:
    """Answer with the question."""
    return message


async def echo_all(_: RequestContext, stream: Stream) -> None:
    """Send back what comes, until the caller ends."""
    while (message := await stream.receive()) is not None:
        await stream.send(message)


async def ask_once(caller: Network, peer: str, message: bytes, *, is_stream: bool) -> None:
    """One question in the one shape or the other, whatever the answer."""
    if is_stream:
        stream = caller.stream(peer, STREAM)
        await stream.send(message)
        await stream.receive()
    else:
        await caller.call(peer, UNARY, message, timeout_ms=HANG_MS)


async def never() -> bytes:
    """Wait until cancelled."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


async def receive_until_broken(stream: Stream, received: list[bytes | None]) -> None:
    """Collect what comes; a stream that ends in order goes on returning None, to no end."""
    while len(received) < 100:
        received.append(await stream.receive())


async def receive_all(stream: Stream) -> list[bytes]:
    """Everything until the other side's end."""
    received = []
    while (message := await stream.receive()) is not None:
        received.append(message)
    return received


async def call_until_reached(clock: Clock, caller: Network, peer: str) -> bytes:
    """A failed connection may be reported again for a while before it is tried again."""
    deadline_ns = clock.monotonic_ns() + HANG_MS * 1_000_000
    while clock.monotonic_ns() < deadline_ns:
        try:
            return await caller.call(peer, UNARY, b"y", timeout_ms=HANG_MS)
        except PeerUnreachable:
            await clock.sleep(10)
    raise AssertionError("the peer came back and was not reached")
