"""What stands around every method of a node and counts: calls, codes, durations, bytes.

Owns where a call begins and ends; the numbers are `meter`'s. Nothing is refused or delayed here. A
call that took long is told to whoever keeps the slow-request log. Requests of a produce stream are
counted one by one by its pipeline, which alone knows when each is answered.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

import msgspec

from tidelog.broker.shared.meter import CANCELLED, OK, ListenerFigures, Meter
from tidelog.ports import (
    Clock,
    Method,
    RequestContext,
    Stream,
    StreamHandler,
    StreamMethod,
    UnaryHandler,
    UnaryMethod,
)
from tidelog.wire.errors import TidelogError

NOT_KNOWN: Final = -1
UNKNOWN: Final = "UNKNOWN"


class Held:
    """How long a call was held back before its handler began."""

    __slots__ = ("ns",)

    def __init__(self) -> None:
        self.ns = 0


_HELD: Final[ContextVar[Held | None]] = ContextVar("held", default=None)


@contextmanager
def holding(clock: Clock) -> Iterator[None]:
    """Whoever holds the present call back does it inside of this."""
    held, begun_ns = _HELD.get(), clock.monotonic_ns()
    try:
        yield
    finally:
        if held is not None:
            held.ns += clock.monotonic_ns() - begun_ns


class LongCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request that took longer than the threshold."""

    method: str
    context: RequestContext
    code: str
    duration_ns: int
    held_ns: int = 0
    """By a quota."""
    request: bytes = b""
    """As it came; empty: it came over a stream."""
    request_bytes: int = 0
    response_bytes: int = 0
    partitions: int = NOT_KNOWN


class SlowLog(Protocol):
    """Keeps the slow-request log."""

    @property
    def threshold_ns(self) -> int:
        """What takes longer is told."""
        ...

    def tell(self, call: LongCall) -> bool:
        """Whether it is slow: not if its caller asked to wait so long."""
        ...


class Metering:
    """Of one node."""

    def __init__(self, meter: Meter, clock: Clock, slow_log: SlowLog | None = None) -> None:
        self.meter = meter
        self.clock: Final = clock
        self._slow_log = slow_log

    def around(self, listener: str, methods: Mapping[str, Method]) -> dict[str, Method]:
        """The same methods, counted."""
        figures = self.meter.listeners[listener]
        return {
            name: UnaryMethod(self._unary(name, method.handler, figures))
            if isinstance(method, UnaryMethod)
            else StreamMethod(_stream(name, method.handler, figures))
            for name, method in methods.items()
        }

    def _unary(self, name: str, handler: UnaryHandler, listener: ListenerFigures) -> UnaryHandler:
        clock = self.clock

        async def counted(context: RequestContext, message: bytes) -> bytes:
            figures, held, begun_ns = listener.of(name), Held(), clock.monotonic_ns()
            listener.enter(context.address)
            figures.in_flight += 1
            token = _HELD.set(held)
            code, answer = UNKNOWN, b""
            try:
                answer = await handler(context, message)
                code = OK
            except TidelogError as error:
                code = error.code.name
                raise
            except asyncio.CancelledError:
                code = CANCELLED
                raise
            finally:
                _HELD.reset(token)
                figures.in_flight -= 1
                listener.leave(context.address)
                duration_ns = clock.monotonic_ns() - begun_ns
                figures.end(code, duration_ns)
                figures.request_bytes += len(message)
                figures.response_bytes += len(answer)
                slow_log = self._slow_log
                if slow_log is not None and duration_ns > slow_log.threshold_ns:
                    call = LongCall(
                        method=name,
                        context=context,
                        code=code,
                        duration_ns=duration_ns,
                        held_ns=held.ns,
                        request=message,
                        request_bytes=len(message),
                        response_bytes=len(answer),
                    )
                    figures.slow += slow_log.tell(call)
            return answer

        return counted

    def stream_request_ended(
        self,
        name: str,
        context: RequestContext,
        *,
        begun_ns: int,
        codes: Sequence[str],
        request_bytes: int,
    ) -> None:
        """A request that came over a stream is answered: one code for each of its partitions that
        failed. Its bytes are counted with the stream's messages."""
        listener = self.meter.listeners.get(context.listener)
        if listener is None:
            return
        figures = listener.of(name)
        duration_ns = self.clock.monotonic_ns() - begun_ns
        code = codes[0] if codes else OK
        figures.end(code, duration_ns)
        slow_log = self._slow_log
        if slow_log is not None and duration_ns > slow_log.threshold_ns:
            call = LongCall(
                method=name,
                context=context,
                code=code,
                duration_ns=duration_ns,
                request_bytes=request_bytes,
            )
            figures.slow += slow_log.tell(call)


def _stream(name: str, handler: StreamHandler, listener: ListenerFigures) -> StreamHandler:
    async def counted(context: RequestContext, stream: Stream) -> None:
        figures = listener.of(name)
        listener.enter(context.address)
        figures.in_flight += 1
        try:
            await handler(context, _CountedStream(stream, listener, name))
        finally:
            figures.in_flight -= 1
            listener.leave(context.address)

    return counted


class _CountedStream:
    """A handler's end of a stream whose bytes are counted."""

    def __init__(self, stream: Stream, listener: ListenerFigures, name: str) -> None:
        self._stream = stream
        self._figures = listener.of(name)

    async def send(self, message: bytes) -> None:
        """Queue a message."""
        self._figures.response_bytes += len(message)
        await self._stream.send(message)

    async def receive(self) -> bytes | None:
        """The next message."""
        message = await self._stream.receive()
        if message is not None:
            self._figures.request_bytes += len(message)
        return message

    def let_go(self) -> None:
        """The last message that was received is done with."""
        self._stream.let_go()

    async def end_sending(self) -> None:
        """A handler ends its sending by returning."""
        await self._stream.end_sending()

    def cancel(self) -> None:
        """Break the stream at once."""
        self._stream.cancel()
