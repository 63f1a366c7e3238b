"""What `grpc.aio` gives the SDK, over the simulated network: channels, calls, streams.

Owns the shape of that interface as far as the SDK uses it. It must never decide anything that gRPC
would not: what a failure means, and what follows from it, is the SDK's.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from grpc import aio

from tidelog.chaos.sim.clients.connection import Connection, lost, told_by
from tidelog.chaos.sim.ports.fabric import Fabric
from tidelog.chaos.sim.world.process import Process
from tidelog.ports.network import Stream
from tidelog.wire.errors import ErrorCode, TidelogError

_TIMEOUT_MS: Final = 600_000
"""Of the port's own timer: the call's deadline is kept here, as gRPC keeps it."""


class SimulatedChannel:
    """To one address, of one process."""

    def __init__(self, fabric: Fabric, process: Process, address: str) -> None:
        self._connection = Connection(fabric, process, address)
        self._calls: dict[UnaryCall | StreamCall, None] = {}

    def unary_unary(self, method: str) -> Callable[..., Awaitable[bytes]]:
        """A method with one message there and one back."""

        async def call(data: bytes, *, timeout: float, metadata: object = None) -> bytes:
            del metadata
            unary = UnaryCall(self._connection, method, data, timeout)
            self._calls[unary] = None
            try:
                return await unary.answer()
            finally:
                self._calls.pop(unary, None)

        return call

    def stream_stream(self, method: str) -> Callable[..., "StreamCall"]:
        """A method with streams both ways."""

        def call(metadata: object = None) -> StreamCall:
            del metadata
            stream = StreamCall(self._connection, method)
            self._calls[stream] = None
            return stream

        return call

    async def close(self) -> None:
        """Whatever is open is cancelled."""
        for call in list(self._calls):
            call.cancel()
        await asyncio.sleep(0)


class UnaryCall:
    """One call."""

    def __init__(self, connection: Connection, method: str, data: bytes, timeout_s: float) -> None:
        self._connection = connection
        self._method = method
        self._data = data
        self._timeout_s = timeout_s
        self._news = asyncio.Event()
        self._broken: aio.AioRpcError | None = None
        self._is_cancelled = False

    async def answer(self) -> bytes:
        """It, or what gRPC raises."""
        work = asyncio.get_running_loop().create_task(self._ask(), name="call")
        work.add_done_callback(lambda _: self._news.set())
        self._connection.enter(self)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._news.wait()
            if self._is_cancelled:
                raise asyncio.CancelledError
            if self._broken is not None:
                raise self._broken
            return work.result()
        except TimeoutError:
            raise lost(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        finally:
            self._connection.leave(self)
            if not work.cancel():
                _seen(work)

    async def _ask(self) -> bytes:
        await self._connection.ready()
        network = self._connection.process.ports.network
        # What the server is told of the deadline; the answer is waited for no longer than that.
        timeout_ms = max(1, min(_TIMEOUT_MS, int(self._timeout_s * 1000)))
        try:
            return await network.call(
                self._connection.address, self._method, self._data, timeout_ms=timeout_ms
            )
        except TidelogError as error:
            is_ours = error.happened == "no answer within the deadline"
            if error.code is ErrorCode.DEADLINE_EXCEEDED and is_ours:
                raise lost(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
            raise told_by(error) from None

    def fail(self, error: aio.AioRpcError) -> None:
        """The connection broke."""
        self._broken = error
        self._news.set()

    def cancel(self) -> None:
        """The channel is closed."""
        self._is_cancelled = True
        self._news.set()


class StreamCall:
    """One bidirectional stream: `write`, `read`, `cancel`."""

    def __init__(self, connection: Connection, method: str) -> None:
        self._connection = connection
        self._method = method
        self._stream: Stream | None = None
        self._opened = asyncio.Event()
        self._arrived: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._end: aio.AioRpcError | None = None
        self._is_cancelled = False
        self._is_ended = False
        self._connection.enter(self)
        self._pump = asyncio.get_running_loop().create_task(self._receive(), name="stream")

    async def write(self, data: bytes) -> None:
        """One message."""
        await self._opened.wait()
        if self._is_over or self._stream is None:
            raise asyncio.InvalidStateError("the call is over")
        try:
            await self._stream.send(data)
        except TidelogError as error:
            raise told_by(error) from None

    async def read(self) -> Any:
        """The next message, or `aio.EOF` behind the last."""
        while not self._arrived:
            if self._is_cancelled:
                raise asyncio.CancelledError
            if self._end is not None:
                raise self._end
            if self._is_ended:
                return aio.EOF
            self._news.clear()
            await self._news.wait()
        return self._arrived.popleft()

    def cancel(self) -> None:
        """Nothing more is read or written."""
        if self._is_over:
            return
        self._is_cancelled = True
        self._arrived.clear()
        self._finish()

    def fail(self, error: aio.AioRpcError) -> None:
        """The connection broke."""
        if not self._is_over:
            self._end = error
            self._finish()

    async def code(self) -> grpc.StatusCode:
        """How it ended."""
        return grpc.StatusCode.OK if self._end is None else self._end.code()

    async def details(self) -> str:
        """In words."""
        return "" if self._end is None else self._end.details() or ""

    async def initial_metadata(self) -> aio.Metadata:
        """Nothing that the SDK reads."""
        return aio.Metadata()

    async def trailing_metadata(self) -> aio.Metadata:
        """The error, if a broker told one."""
        return aio.Metadata() if self._end is None else self._end.trailing_metadata()

    @property
    def _is_over(self) -> bool:
        return self._is_cancelled or self._is_ended or self._end is not None

    def _finish(self) -> None:
        self._connection.leave(self)
        if self._stream is not None:
            self._stream.cancel()
        if self._pump is not asyncio.current_task():
            self._pump.cancel()
        self._opened.set()
        self._news.set()

    async def _receive(self) -> None:
        try:
            await self._connection.ready()
            network = self._connection.process.ports.network
            self._stream = network.stream(self._connection.address, self._method)
            self._opened.set()
            while (message := await self._stream.receive()) is not None:
                self._arrived.append(message)
                self._news.set()
            self._is_ended = True
        except TidelogError as error:
            if not self._is_over:
                self._end = told_by(error)
        except aio.AioRpcError as error:
            if not self._is_over:
                self._end = error
        self._finish()


def _seen(work: "asyncio.Task[bytes]") -> None:
    if work.done() and not work.cancelled():
        work.exception()
