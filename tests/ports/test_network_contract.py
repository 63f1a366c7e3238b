"""The numbered promises of the Network port, in every world."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from tests.ports.adapters import World
from tidelog.ports import (
    MESSAGE_BYTES_MAX,
    Clock,
    DeathHint,
    Listener,
    Method,
    Network,
    PeerUnreachable,
    RequestContext,
    Server,
    Stream,
    StreamMethod,
    UnaryMethod,
)
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.wire.errors import ErrorCode, TidelogError

UNARY = "/tidelog.test.Service/Unary"
STREAM = "/tidelog.test.Service/Stream"
TIMEOUT_MS = 20_000
SHORT_MS = 50


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
        await caller.call(peer, UNARY, message, timeout_ms=TIMEOUT_MS)


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


def test_1_within_a_stream_messages_arrive_in_order_and_at_most_once(world: World) -> None:
    sent = [str(number).encode() for number in range(200)]

    async def exchange() -> list[bytes]:
        async with serving(world, {STREAM: StreamMethod(echo_all)}) as (server, caller):
            stream = caller.stream(server.address, STREAM)
            for message in sent:
                await stream.send(message)
            await stream.end_sending()
            return await receive_all(stream)

    assert world.run(exchange()) == sent


def test_1_a_break_loses_any_suffix_in_both_directions(world: World) -> None:
    arrived: list[bytes] = []

    async def exchange() -> list[bytes]:
        has_five = asyncio.Event()

        async def handler(_: RequestContext, stream: Stream) -> None:
            while (message := await stream.receive()) is not None:
                arrived.append(message)
                await stream.send(message)
                if len(arrived) == 5:
                    has_five.set()

        async with serving(world, {STREAM: StreamMethod(handler)}) as (server, caller):
            stream = caller.stream(server.address, STREAM)
            for number in range(10):
                await stream.send(bytes([number]))
            received = [await stream.receive()]
            await has_five.wait()
            await server.stop(0)
            with pytest.raises(PeerUnreachable):
                await receive_until_broken(stream, received)
            return [message for message in received if message is not None]

    received = world.run(exchange())
    sent = [bytes([number]) for number in range(10)]
    assert arrived == sent[: len(arrived)]
    assert received == sent[: len(received)]


def test_1_what_was_delivered_may_still_be_processed_after_the_caller_gave_up(
    world: World,
) -> None:
    async def exchange() -> bytes:
        inbox: asyncio.Queue[bytes] = asyncio.Queue()

        async def handler(_: RequestContext, message: bytes) -> bytes:
            await inbox.put(message)
            return await never()

        async with serving(world, {UNARY: UnaryMethod(handler)}) as (server, caller):
            call = asyncio.create_task(
                caller.call(server.address, UNARY, b"do", timeout_ms=TIMEOUT_MS)
            )
            message = await inbox.get()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return message

    assert world.run(exchange()) == b"do"


def test_2_a_call_that_ends_otherwise_than_by_the_peers_answer_has_an_unknown_outcome(
    world: World,
) -> None:
    effects: list[bytes] = []

    async def exchange() -> None:
        is_done = asyncio.Event()

        async def handler(_: RequestContext, message: bytes) -> bytes:
            effects.append(message)
            is_done.set()
            return await never()

        async with serving(world, {UNARY: UnaryMethod(handler)}) as (server, caller):
            call = asyncio.create_task(
                caller.call(server.address, UNARY, b"did it", timeout_ms=TIMEOUT_MS)
            )
            await is_done.wait()
            await server.stop(0)
            with pytest.raises(PeerUnreachable):
                await call

    world.run(exchange())
    assert effects == [b"did it"], "the effect happened although the caller saw a failure"


@pytest.mark.parametrize("is_stream", [False, True], ids=["unary", "stream"])
def test_3_a_handlers_error_reaches_the_caller_as_an_equal_error(
    world: World, is_stream: bool
) -> None:
    codes = [code for code in ErrorCode if code is not ErrorCode.UNSPECIFIED]

    def make(code: ErrorCode) -> TidelogError:
        return TidelogError(code, tried=f"try {code}", happened="Größe 7 › 5\n", hint=f"do {code}")

    async def unary(_: RequestContext, message: bytes) -> bytes:
        raise make(ErrorCode(message[0]))

    async def stream(_: RequestContext, stream: Stream) -> None:
        message = await stream.receive()
        assert message is not None
        raise make(ErrorCode(message[0]))

    async def ask(caller: Network, address: str, code: ErrorCode) -> TidelogError:
        with pytest.raises(TidelogError) as caught:
            await ask_once(caller, address, bytes([code]), is_stream=is_stream)
        return caught.value

    async def exchange() -> list[TidelogError]:
        methods: dict[str, Method] = {UNARY: UnaryMethod(unary), STREAM: StreamMethod(stream)}
        async with serving(world, methods) as (server, caller):
            return [await ask(caller, server.address, code) for code in codes]

    for code, error in zip(codes, world.run(exchange()), strict=True):
        assert type(error) is TidelogError, "the peer answered: it was reached"
        assert error.args[:3] == make(code).args[:3]
        assert error.hint == make(code).hint


def test_3_a_peer_unreachable_from_a_handler_is_the_peers_own_answer(world: World) -> None:
    async def handler(_: RequestContext, message: bytes) -> bytes:
        raise PeerUnreachable(tried="forward", happened="gone", death_hint=DeathHint.REFUSED)

    async def exchange() -> TidelogError:
        async with serving(world, {UNARY: UnaryMethod(handler)}) as (server, caller):
            with pytest.raises(TidelogError) as caught:
                await caller.call(server.address, UNARY, b"", timeout_ms=TIMEOUT_MS)
            return caught.value

    error = world.run(exchange())
    assert type(error) is TidelogError
    assert (error.code, error.tried) == (ErrorCode.UNAVAILABLE, "forward")


@pytest.mark.parametrize("is_stream", [False, True], ids=["unary", "stream"])
def test_4_a_handler_may_be_cancelled_at_any_await_when_its_caller_goes_away(
    world: World, is_stream: bool
) -> None:
    async def exchange() -> None:
        is_in_handler, is_cancelled = asyncio.Event(), asyncio.Event()

        async def linger() -> None:
            is_in_handler.set()
            try:
                await never()
            except asyncio.CancelledError:
                is_cancelled.set()
                raise

        async def unary(_: RequestContext, message: bytes) -> bytes:
            await linger()
            return message

        async def stream(_: RequestContext, stream: Stream) -> None:
            await linger()

        methods: dict[str, Method] = {UNARY: UnaryMethod(unary), STREAM: StreamMethod(stream)}
        async with serving(world, methods) as (server, caller):
            if is_stream:
                asking = caller.stream(server.address, STREAM)
                await asking.send(b"")
                await is_in_handler.wait()
                asking.cancel()
            else:
                call = asyncio.create_task(
                    caller.call(server.address, UNARY, b"", timeout_ms=TIMEOUT_MS)
                )
                await is_in_handler.wait()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            await is_cancelled.wait()

    world.run(exchange())


def test_5_deadlines_travel_as_durations(world: World) -> None:
    async def exchange() -> tuple[int, int, int]:
        clock = world.clock()
        seen: list[int] = []

        async def handler(context: RequestContext, message: bytes) -> bytes:
            seen.append(context.deadline_ns)
            return message

        async def stream(context: RequestContext, stream: Stream) -> None:
            seen.append(context.deadline_ns)

        methods: dict[str, Method] = {UNARY: UnaryMethod(handler), STREAM: StreamMethod(stream)}
        async with serving(world, methods) as (server, caller):
            before_ns = clock.monotonic_ns()
            await caller.call(server.address, UNARY, b"", timeout_ms=TIMEOUT_MS)
            after_ns = clock.monotonic_ns()
            asking = caller.stream(server.address, STREAM)
            assert await asking.receive() is None
        assert seen[1] == NO_DEADLINE_NS, "nobody gave the stream a deadline"
        return before_ns, seen[0] - TIMEOUT_MS * 1_000_000, after_ns

    before_ns, sent_ns, after_ns = world.run(exchange())
    rounding_ns = TIMEOUT_MS * 1_000_000 // 50  # gRPC rounds long timeouts up by a percent or so
    assert before_ns - rounding_ns <= sent_ns <= after_ns + rounding_ns


def test_5_a_callers_wait_ends_at_its_deadline_whatever_the_peer_does(world: World) -> None:
    async def exchange() -> ErrorCode:
        is_over = asyncio.Event()

        async def stubborn(_: RequestContext, message: bytes) -> bytes:
            while not is_over.is_set():
                try:
                    await is_over.wait()
                except asyncio.CancelledError:
                    continue
            return message

        async with serving(world, {UNARY: UnaryMethod(stubborn)}) as (server, caller):
            with pytest.raises(TidelogError) as caught:
                await caller.call(server.address, UNARY, b"", timeout_ms=SHORT_MS)
            is_over.set()
            return caught.value.code

    assert world.run(exchange()) is ErrorCode.DEADLINE_EXCEEDED


def test_5_a_silent_peer_ends_a_call_at_its_deadline(world: World) -> None:
    async def exchange() -> TidelogError:
        peer = await world.dead_peer(DeathHint.NONE)
        with pytest.raises(TidelogError) as caught:
            await world.network("caller").call(peer, UNARY, b"", timeout_ms=SHORT_MS)
        return caught.value

    assert world.run(exchange()).code is ErrorCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("is_stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("hint", [DeathHint.REFUSED, DeathHint.CLOSED_EARLY])
def test_6_a_peer_that_cannot_be_reached_tells_how_sure_that_is(
    world: World, hint: DeathHint, is_stream: bool
) -> None:
    async def exchange() -> PeerUnreachable:
        peer = await world.dead_peer(hint)
        caller = world.network("caller")
        with pytest.raises(PeerUnreachable) as caught:
            await ask_once(caller, peer, b"", is_stream=is_stream)
        return caught.value

    error = world.run(exchange())
    assert error.death_hint is hint
    assert error.code is ErrorCode.UNAVAILABLE


def test_6_a_stream_that_breaks_raises_peer_unreachable_without_a_death_hint(
    world: World,
) -> None:
    async def exchange() -> PeerUnreachable:
        async with serving(world, {STREAM: StreamMethod(echo_all)}) as (server, caller):
            stream = caller.stream(server.address, STREAM)
            await stream.send(b"x")
            assert await stream.receive() == b"x"
            await server.stop(0)
            with pytest.raises(PeerUnreachable) as caught:
                await stream.receive()
            return caught.value

    assert world.run(exchange()).death_hint is DeathHint.NONE


def test_6_a_stopped_server_refuses_the_next_call(world: World) -> None:
    async def exchange() -> tuple[bytes, DeathHint]:
        async with serving(world, {UNARY: UnaryMethod(echo)}) as (server, caller):
            answer = await caller.call(server.address, UNARY, b"x", timeout_ms=TIMEOUT_MS)
            await server.stop(0)
            with pytest.raises(PeerUnreachable) as caught:
                await caller.call(server.address, UNARY, b"x", timeout_ms=TIMEOUT_MS)
            return answer, caught.value.death_hint

    assert world.run(exchange()) == (b"x", DeathHint.REFUSED)


async def call_until_reached(clock: Clock, caller: Network, peer: str) -> bytes:
    """A failed connection may be reported again for a while before it is tried again."""
    deadline_ns = clock.monotonic_ns() + TIMEOUT_MS * 1_000_000
    while clock.monotonic_ns() < deadline_ns:
        try:
            return await caller.call(peer, UNARY, b"y", timeout_ms=TIMEOUT_MS)
        except PeerUnreachable:
            await clock.sleep(10)
    raise AssertionError("the peer came back and was not reached")


def test_a_peer_that_came_back_is_reached_again(world: World) -> None:
    async def exchange() -> bytes:
        caller = world.network("caller")
        async with serving(world, {UNARY: UnaryMethod(echo)}) as (server, _):
            await caller.call(server.address, UNARY, b"x", timeout_ms=TIMEOUT_MS)
        with pytest.raises(PeerUnreachable):
            await caller.call(server.address, UNARY, b"x", timeout_ms=TIMEOUT_MS)
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
            await caller.call(server.address, UNARY, b"", timeout_ms=TIMEOUT_MS)
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
            answer = await caller.call(server.address, UNARY, message, timeout_ms=TIMEOUT_MS)
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
            return await caller.call(server.address, UNARY, message, timeout_ms=TIMEOUT_MS)

    assert world.run(exchange()) == message


def test_a_larger_message_is_refused_before_it_is_sent(world: World) -> None:
    message = bytes(MESSAGE_BYTES_MAX + 1)

    async def exchange() -> list[ErrorCode]:
        caller = world.network("caller")
        peer = await world.dead_peer(DeathHint.NONE)
        with pytest.raises(TidelogError) as unary:
            await caller.call(peer, UNARY, message, timeout_ms=TIMEOUT_MS)
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
                await caller.call(server.address, UNARY, b"", timeout_ms=TIMEOUT_MS)
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
                await caller.call(server.address, UNARY, b"bug", timeout_ms=TIMEOUT_MS)
            answer = await caller.call(server.address, UNARY, b"fine", timeout_ms=TIMEOUT_MS)
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
            call = asyncio.create_task(
                caller.call(server.address, UNARY, b"", timeout_ms=TIMEOUT_MS)
            )
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
                await caller.call(server.address, UNARY, b"", timeout_ms=TIMEOUT_MS)
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
            call = asyncio.create_task(
                caller.call(server.address, UNARY, b"x", timeout_ms=TIMEOUT_MS)
            )
            await is_in_handler.wait()
            stop = asyncio.create_task(server.stop(TIMEOUT_MS))
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
