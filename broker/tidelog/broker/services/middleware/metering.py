"""Counts the calls of a node: how many, how they ended, how long they took, how large they were.

Owns where a call begins and ends; the numbers are `meter`'s. Nothing is refused or delayed here. A
call that took long is told to whoever keeps the slow-request log. Requests of a produce stream are
counted one by one by its pipeline, which alone knows when each is answered.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from tidelog.broker.shared.meter import CANCELLED, OK, ListenerFigures, Meter, MethodFigures
from tidelog.ports import Clock, RequestContext
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

    def call(
        self, listener: str, name: str, context: RequestContext, message: bytes
    ) -> "MeteredCall":
        """A call of one message: counted from entering it to leaving it."""
        return MeteredCall(self, self.meter.listeners[listener], name, context, message)

    @contextmanager
    def stream(self, listener: str, name: str, context: RequestContext) -> Iterator[MethodFigures]:
        """A stream that is open as long as this is; whoever passes its messages on counts their
        bytes."""
        found = self.meter.listeners[listener]
        figures = found.of(name)
        found.enter(context.address)
        figures.in_flight += 1
        try:
            yield figures
        finally:
            figures.in_flight -= 1
            found.leave(context.address)

    def tell(self, figures: MethodFigures, call: LongCall) -> None:
        """Note a request that took long, if it was slow as well."""
        if self._slow_log is not None:
            figures.slow += self._slow_log.tell(call)

    def is_long(self, duration_ns: int) -> bool:
        """Whether the slow-request log is to hear of a request."""
        return self._slow_log is not None and duration_ns > self._slow_log.threshold_ns

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
        if self.is_long(duration_ns):
            call = LongCall(
                method=name,
                context=context,
                code=code,
                duration_ns=duration_ns,
                request_bytes=request_bytes,
            )
            self.tell(figures, call)


class MeteredCall:
    """One call of one message; `with` begins and ends it."""

    __slots__ = (
        "_begun_ns",
        "_context",
        "_figures",
        "_held",
        "_listener",
        "_message",
        "_metering",
        "_name",
        "_token",
        "response_bytes",
    )

    def __init__(
        self,
        metering: Metering,
        listener: ListenerFigures,
        name: str,
        context: RequestContext,
        message: bytes,
    ) -> None:
        self._metering = metering
        self._listener = listener
        self._figures = listener.of(name)
        self._name = name
        self._context = context
        self._message = message
        self._held = Held()
        self._begun_ns = metering.clock.monotonic_ns()
        self._token: Token[Held | None] | None = None
        self.response_bytes = 0
        """Of the answer; 0 if there is none."""

    def __enter__(self) -> Self:
        self._listener.enter(self._context.address)
        self._figures.in_flight += 1
        self._token = _HELD.set(self._held)
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._token is not None, "a call ends once, after it has begun"
        _HELD.reset(self._token)
        figures = self._figures
        figures.in_flight -= 1
        self._listener.leave(self._context.address)
        duration_ns = self._metering.clock.monotonic_ns() - self._begun_ns
        code = _code_of(error)
        figures.end(code, duration_ns)
        figures.request_bytes += len(self._message)
        figures.response_bytes += self.response_bytes
        if self._metering.is_long(duration_ns):
            call = LongCall(
                method=self._name,
                context=self._context,
                code=code,
                duration_ns=duration_ns,
                held_ns=self._held.ns,
                request=self._message,
                request_bytes=len(self._message),
                response_bytes=self.response_bytes,
            )
            self._metering.tell(figures, call)


def _code_of(error: BaseException | None) -> str:
    if error is None:
        return OK
    if isinstance(error, TidelogError):
        return error.code.name
    return CANCELLED if isinstance(error, asyncio.CancelledError) else UNKNOWN
