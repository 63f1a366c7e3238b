"""The numbered promises of the Network port, in every world."""

import asyncio
import sys

import pytest

from tests.ports.support.adapters import World
from tests.ports.support.calls import (
    SHORT_MS,
    STREAM,
    UNARY,
    ask_once,
    echo,
    echo_all,
    never,
    receive_all,
    receive_until_broken,
    serving,
)
from tests.support.waiting import HANG_MS
from tidelog.ports import (
    DeathHint,
    Method,
    Network,
    PeerUnreachable,
    RequestContext,
    Stream,
    StreamMethod,
    UnaryMethod,
)
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.wire.errors import ErrorCode, TidelogError

BREAKS = 20
"""Enough for a seed to show each order of what a break does."""


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
                caller.call(server.address, UNARY, b"do", timeout_ms=HANG_MS)
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
                caller.call(server.address, UNARY, b"did it", timeout_ms=HANG_MS)
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
                await caller.call(server.address, UNARY, b"", timeout_ms=HANG_MS)
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
                    caller.call(server.address, UNARY, b"", timeout_ms=HANG_MS)
                )
                await is_in_handler.wait()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            await is_cancelled.wait()

    world.run(exchange())


def test_4_a_handler_that_receives_reads_an_end_at_most_before_it_is_cancelled(
    world: World,
) -> None:
    async def exchange() -> list[list[str]]:
        seen: list[list[str]] = []
        is_over = asyncio.Event()

        async def handler(_: RequestContext, stream: Stream) -> None:
            mine: list[str] = []
            try:
                assert await stream.receive() == b"x"
                await stream.send(b"y")
                assert await stream.receive() is None
                mine.append("end")
                await never()
            finally:
                mine.append("cancelled" if is_cancelling() else "ended")
                seen.append(mine)
                if len(seen) == BREAKS:
                    is_over.set()

        async with serving(world, {STREAM: StreamMethod(handler)}) as (server, caller):
            for _ in range(BREAKS):
                stream = caller.stream(server.address, STREAM)
                await stream.send(b"x")
                assert await stream.receive() == b"y"
                stream.cancel()
            await is_over.wait()
        return seen

    seen = world.run(exchange())
    assert all(mine in (["cancelled"], ["end", "cancelled"]) for mine in seen), seen
    if world.shows_every_order:
        assert ["cancelled"] in seen
        assert ["end", "cancelled"] in seen


def is_cancelling() -> bool:
    """Whether this task leaves because somebody cancelled it."""
    return isinstance(sys.exception(), asyncio.CancelledError)


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
            await caller.call(server.address, UNARY, b"", timeout_ms=HANG_MS)
            after_ns = clock.monotonic_ns()
            asking = caller.stream(server.address, STREAM)
            assert await asking.receive() is None
        assert seen[1] == NO_DEADLINE_NS, "nobody gave the stream a deadline"
        return before_ns, seen[0] - HANG_MS * 1_000_000, after_ns

    before_ns, sent_ns, after_ns = world.run(exchange())
    rounding_ns = HANG_MS * 1_000_000 // 50  # gRPC rounds long timeouts up by a percent or so
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
            answer = await caller.call(server.address, UNARY, b"x", timeout_ms=HANG_MS)
            await server.stop(0)
            with pytest.raises(PeerUnreachable) as caught:
                await caller.call(server.address, UNARY, b"x", timeout_ms=HANG_MS)
            return answer, caught.value.death_hint

    assert world.run(exchange()) == (b"x", DeathHint.REFUSED)
