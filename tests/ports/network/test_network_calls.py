"""What else callers, handlers, streams and listeners rely on, in every world."""

import asyncio

import pytest

from tests.ports.support.adapters import World
from tests.ports.support.calls import (
    STREAM,
    UNARY,
    call_until_reached,
    echo,
    echo_all,
    never,
    receive_all,
    receive_until_broken,
    serving,
)
from tests.support.waiting import HANG_MS
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
from tidelog.wire.errors import ErrorCode, TidelogError


def test_a_peer_that_came_back_is_reached_again(world: World) -> None:
    async def exchange() -> bytes:
        caller = world.network("caller")
        async with serving(world, {UNARY: UnaryMethod(echo)}) as (server, _):
            await caller.call(server.address, UNARY, b"x", timeout_ms=HANG_MS)
        with pytest.raises(PeerUnreachable):
            await caller.call(server.address, UNARY, b"x", timeout_ms=HANG_MS)
        again = await world.network("server").serve(
            Listener(name="client", bind=server.address), {UNARY: UnaryMethod(echo)}
        )
        answer = await call_until_reached(world.clock(), caller, again.address)
        await again.stop(0)
        return answer

    assert world.run(exchange()) == b"y"


def test_a_handler_learns_who_calls_from_where_and_on_which_listener(world: World) -> None:
    async def exchange() -> tuple[RequestContext, str]:
        seen: list[RequestContext] = []

        async def handler(context: RequestContext, message: bytes) -> bytes:
            seen.append(context)
            return message

        async with serving(world, {UNARY: UnaryMethod(handler)}) as (server, caller):
            await caller.call(server.address, UNARY, b"", timeout_ms=HANG_MS)
            return seen[0], server.address

    context, address = world.run(exchange())
    assert (context.principal, context.listener) == ("anonymous", "client")
    assert context.client_id == "caller"
    assert context.address.rpartition(":")[0] != ""
    assert context.address != address


@pytest.mark.parametrize("message", [b"", b"\0", bytes(range(256)) * 300], ids=len)
def test_messages_of_any_bytes_pass_unchanged(world: World, message: bytes) -> None:
    async def exchange() -> tuple[bytes, list[bytes]]:
        methods: dict[str, Method] = {UNARY: UnaryMethod(echo), STREAM: StreamMethod(echo_all)}
        async with serving(world, methods) as (server, caller):
            answer = await caller.call(server.address, UNARY, message, timeout_ms=HANG_MS)
            stream = caller.stream(server.address, STREAM)
            await stream.send(message)
            await stream.end_sending()
            return answer, await receive_all(stream)

    assert world.run(exchange()) == (message, [message])


@pytest.mark.slow
def test_a_message_of_the_largest_size_passes(world: World) -> None:
    message = bytes(MESSAGE_BYTES_MAX)

    async def exchange() -> bytes:
        async with serving(world, {UNARY: UnaryMethod(echo)}) as (server, caller):
            return await caller.call(server.address, UNARY, message, timeout_ms=HANG_MS)

    assert world.run(exchange()) == message


def test_a_larger_message_is_refused_before_it_is_sent(world: World) -> None:
    message = bytes(MESSAGE_BYTES_MAX + 1)

    async def exchange() -> list[ErrorCode]:
        caller = world.network("caller")
        peer = await world.dead_peer(DeathHint.NONE)
        with pytest.raises(TidelogError) as unary:
            await caller.call(peer, UNARY, message, timeout_ms=HANG_MS)
        stream = caller.stream(peer, STREAM)
        with pytest.raises(TidelogError) as streamed:
            await stream.send(message)
        stream.cancel()
        return [unary.value.code, streamed.value.code]

    assert world.run(exchange()) == [ErrorCode.BATCH_TOO_LARGE] * 2


def test_a_larger_answer_reaches_the_caller_as_an_error(world: World) -> None:
    message = bytes(MESSAGE_BYTES_MAX + 1)

    async def unary(_: RequestContext, question: bytes) -> bytes:
        return message

    async def stream(_: RequestContext, stream: Stream) -> None:
        await stream.send(message)

    async def exchange() -> list[ErrorCode]:
        methods: dict[str, Method] = {UNARY: UnaryMethod(unary), STREAM: StreamMethod(stream)}
        async with serving(world, methods) as (server, caller):
            with pytest.raises(TidelogError) as answered:
                await caller.call(server.address, UNARY, b"", timeout_ms=HANG_MS)
            with pytest.raises(TidelogError) as streamed:
                await caller.stream(server.address, STREAM).receive()
            return [answered.value.code, streamed.value.code]

    assert world.run(exchange()) == [ErrorCode.BATCH_TOO_LARGE] * 2


def test_a_handler_with_a_bug_fails_its_call_as_unknown_and_nothing_else(world: World) -> None:
    async def unary(_: RequestContext, message: bytes) -> bytes:
        if message == b"bug":
            raise ZeroDivisionError("a bug of the handler")
        return message

    async def exchange() -> tuple[ErrorCode, bytes]:
        async with serving(world, {UNARY: UnaryMethod(unary)}) as (server, caller):
            with pytest.raises(TidelogError) as caught:
                await caller.call(server.address, UNARY, b"bug", timeout_ms=HANG_MS)
            answer = await caller.call(server.address, UNARY, b"fine", timeout_ms=HANG_MS)
            return caught.value.code, answer

    assert world.run(exchange()) == (ErrorCode.UNKNOWN, b"fine")


def test_a_method_that_nobody_serves_is_not_implemented(world: World) -> None:
    async def exchange() -> list[ErrorCode]:
        async with serving(world, {UNARY: UnaryMethod(echo)}) as (server, caller):
            with pytest.raises(TidelogError) as unary:
                await caller.call(server.address, "/tidelog.test.Service/X", b"", timeout_ms=5_000)
            with pytest.raises(TidelogError) as streamed:
                await caller.stream(server.address, "/tidelog.Other/X").receive()
            return [unary.value.code, streamed.value.code]

    assert world.run(exchange()) == [ErrorCode.NOT_IMPLEMENTED] * 2


def test_a_stream_ends_when_its_handler_returns(world: World) -> None:
    async def handler(_: RequestContext, stream: Stream) -> None:
        await stream.send(b"last")

    async def exchange() -> list[bytes]:
        async with serving(world, {STREAM: StreamMethod(handler)}) as (server, caller):
            return await receive_all(caller.stream(server.address, STREAM))

    assert world.run(exchange()) == [b"last"]


def test_sending_on_a_stream_that_has_ended_is_refused(world: World) -> None:
    async def handler(_: RequestContext, stream: Stream) -> None:
        """Return at once."""

    async def exchange() -> ErrorCode:
        async with serving(world, {STREAM: StreamMethod(handler)}) as (server, caller):
            stream = caller.stream(server.address, STREAM)
            assert await stream.receive() is None
            with pytest.raises(TidelogError) as caught:
                await stream.send(b"late")
            assert await stream.receive() is None, "the end stays the end"
            return caught.value.code

    assert world.run(exchange()) is ErrorCode.CLOSED


def test_a_handler_that_cancels_its_stream_breaks_it_for_the_caller(world: World) -> None:
    async def handler(_: RequestContext, stream: Stream) -> None:
        await stream.send(b"first")
        stream.cancel()
        await never()

    async def exchange() -> DeathHint:
        async with serving(world, {STREAM: StreamMethod(handler)}) as (server, caller):
            stream = caller.stream(server.address, STREAM)
            with pytest.raises(PeerUnreachable) as caught:
                await receive_until_broken(stream, [])
            return caught.value.death_hint

    assert world.run(exchange()) is DeathHint.NONE


def test_a_stream_cancelled_here_is_closed_here(world: World) -> None:
    async def exchange() -> list[ErrorCode]:
        async with serving(world, {STREAM: StreamMethod(echo_all)}) as (server, caller):
            stream = caller.stream(server.address, STREAM)
            waiting = asyncio.create_task(stream.receive())
            await stream.send(b"x")
            assert await waiting == b"x"
            waiting = asyncio.create_task(stream.receive())
            await world.clock().sleep(0)
            stream.cancel()
            with pytest.raises(TidelogError) as waited:
                await waiting
            with pytest.raises(TidelogError) as received:
                await stream.receive()
            with pytest.raises(TidelogError) as sent:
                await stream.send(b"y")
            return [waited.value.code, received.value.code, sent.value.code]

    assert world.run(exchange()) == [ErrorCode.CLOSED] * 3


def test_closing_the_network_ends_its_calls_and_streams_as_closed(world: World) -> None:
    async def exchange() -> list[ErrorCode]:
        arrived = asyncio.Semaphore(0)

        async def unary(_: RequestContext, message: bytes) -> bytes:
            arrived.release()
            return await never()

        async def stream(_: RequestContext, stream: Stream) -> None:
            arrived.release()
            await stream.receive()

        methods: dict[str, Method] = {UNARY: UnaryMethod(unary), STREAM: StreamMethod(stream)}
        async with serving(world, methods) as (server, caller):
            call = asyncio.create_task(caller.call(server.address, UNARY, b"", timeout_ms=HANG_MS))
            receive = asyncio.create_task(caller.stream(server.address, STREAM).receive())
            await arrived.acquire()
            await arrived.acquire()
            await caller.close()
            codes = []
            for task in (call, receive):
                with pytest.raises(TidelogError) as caught:
                    await task
                codes.append(caught.value.code)
            with pytest.raises(TidelogError) as later:
                await caller.call(server.address, UNARY, b"", timeout_ms=HANG_MS)
            return [*codes, later.value.code]

    assert world.run(exchange()) == [ErrorCode.CLOSED] * 3


def test_a_server_that_stops_lets_open_calls_end_within_its_grace(world: World) -> None:
    async def exchange() -> bytes:
        is_in_handler, may_end = asyncio.Event(), asyncio.Event()

        async def handler(_: RequestContext, message: bytes) -> bytes:
            is_in_handler.set()
            await may_end.wait()
            return message

        async with serving(world, {UNARY: UnaryMethod(handler)}) as (server, caller):
            call = asyncio.create_task(caller.call(server.address, UNARY, b"x", timeout_ms=HANG_MS))
            await is_in_handler.wait()
            stop = asyncio.create_task(server.stop(HANG_MS))
            await world.clock().sleep(1)
            may_end.set()
            answer = await call
            await stop
            return answer

    assert world.run(exchange()) == b"x"


def test_an_address_that_cannot_be_bound_is_named_with_the_reason(world: World) -> None:
    async def exchange() -> tuple[TidelogError, str]:
        async with serving(world, {UNARY: UnaryMethod(echo)}) as (server, _):
            with pytest.raises(TidelogError) as caught:
                await world.network("server").serve(
                    Listener(name="cluster", bind=server.address), {UNARY: UnaryMethod(echo)}
                )
            return caught.value, server.address

    error, address = world.run(exchange())
    assert error.code is ErrorCode.UNAVAILABLE
    assert address in error.tried
    assert "in use" in error.happened.lower()


def test_many_streams_to_one_peer_do_not_disturb_each_other(world: World) -> None:
    async def exchange() -> list[list[bytes]]:
        async with serving(world, {STREAM: StreamMethod(echo_all)}) as (server, caller):
            streams = [caller.stream(server.address, STREAM) for _ in range(20)]
            for number, stream in enumerate(streams):
                await stream.send(bytes([number]))
            for stream in streams:
                await stream.end_sending()
            return [await receive_all(stream) for stream in streams]

    assert world.run(exchange()) == [[bytes([number])] for number in range(20)]
