"""The calling end: one channel per peer, unary calls and streams over it, errors made ours.

It must never retry: only the caller knows whether a second try is safe.
"""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

import grpc
import grpc.aio

from tidelog.ports.network import MESSAGE_BYTES_MAX
from tidelog.ports.real.network import errors as network_errors
from tidelog.ports.real.network import options as network_options
from tidelog.ports.real.network.tls import channel_credentials
from tidelog.ports.real.tls.files import Material
from tidelog.wire.errors import ErrorCode, TidelogError

_Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
_StreamCall = grpc.aio.StreamStreamCall[bytes, bytes]


Report = Callable[[str, TidelogError | None], None]
"""Told how each call to a peer ended, and how its streams fare."""


class Connection:
    """The channel to one peer and what is called over it."""

    def __init__(
        self,
        peer: str,
        client_id: str,
        material: Material | None = None,
        report: Report = lambda _peer, _error: None,
    ) -> None:
        self._peer = peer
        self._report = partial(report, peer)
        self._is_encrypted = material is not None
        options = network_options.channel_options()
        if material is None:
            self._channel = grpc.aio.insecure_channel(peer, options=options)
        else:
            credentials = channel_credentials(material)
            self._channel = grpc.aio.secure_channel(peer, credentials, options=options)
        self._metadata: Final = ((network_options.CLIENT_ID_KEY, printable(client_id)),)
        self._unary: dict[str, _Unary] = {}
        self._is_closed = False

    async def call(self, method: str, message: bytes, timeout_ms: int) -> bytes:
        """One message there and one back."""
        tried = f"call {method} at {self._peer}"
        _check_size(message, tried)
        callee = self._unary.get(method)
        if callee is None:
            callee = self._unary[method] = self._channel.unary_unary(method)
        cancellations = _cancellations()
        try:
            answer = await callee(message, timeout=timeout_ms / 1000, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            failure = from_rpc_error(error, tried, is_encrypted=self._is_encrypted)
            self._report(failure)
            raise failure from None
        except asyncio.CancelledError:
            if not self._is_closed or _cancellations() > cancellations:
                raise
            raise closed(tried) from None
        self._report(None)
        return answer

    def stream(self, method: str) -> "CallerStream":
        """Begin a stream."""
        call: _StreamCall = self._channel.stream_stream(method)(metadata=self._metadata)
        tried = f"stream {method} at {self._peer}"
        return CallerStream(call, tried, is_encrypted=self._is_encrypted, report=self._report)

    async def close(self) -> None:
        """Break all calls and streams of this connection."""
        self._is_closed = True
        await self._channel.close()


class CallerStream:
    """The calling end of a stream."""

    def __init__(
        self,
        call: _StreamCall,
        tried: str,
        *,
        is_encrypted: bool = False,
        report: Callable[[TidelogError | None], None] = lambda _error: None,
    ) -> None:
        self._call = call
        self._tried = tried
        self._is_encrypted = is_encrypted
        self._report = report

    async def send(self, message: bytes) -> None:
        """Queue a message; waits while the other side is slow."""
        _check_size(message, self._tried)
        cancellations = _cancellations()
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            failure = from_rpc_error(error, self._tried, is_encrypted=self._is_encrypted)
            self._report(failure)
            raise failure from None
        except asyncio.InvalidStateError:
            raise await self._end() from None
        except asyncio.CancelledError:
            if _cancellations() > cancellations:
                raise
            raise closed(self._tried) from None

    async def receive(self) -> bytes | None:
        """The next message; None after the other side has ended its sending in order."""
        cancellations = _cancellations()
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            failure = from_rpc_error(error, self._tried, is_encrypted=self._is_encrypted)
            self._report(failure)
            raise failure from None
        except asyncio.CancelledError:
            if _cancellations() > cancellations:
                raise
            raise closed(self._tried) from None
        self._report(None)
        return message if isinstance(message, bytes) else None

    def let_go(self) -> None:
        """The last message that was received is done with."""
        # A calling end counts no memory.

    async def end_sending(self) -> None:
        """No more messages from here."""
        if not self._call.done():
            # What broke the stream meanwhile shows at the next receive.
            with contextlib.suppress(grpc.aio.AioRpcError, grpc.aio.BaseError):
                await self._call.done_writing()

    def cancel(self) -> None:
        """Break the stream at once."""
        self._call.cancel()

    async def _end(self) -> TidelogError:
        """Why nothing can be sent any more."""
        status = await self._call.code()
        if status is grpc.StatusCode.OK or self._call.cancelled():
            return closed(self._tried)
        trailer = (await self._call.trailing_metadata()).get(network_errors.TRAILER)
        failure = network_errors.from_status(
            status,
            await self._call.details() or "",
            trailer if isinstance(trailer, bytes) else None,
            tried=self._tried,
            is_encrypted=self._is_encrypted,
        )
        self._report(failure)
        return failure


def printable(client_id: str) -> str:
    """What a header may hold: printable ASCII; other characters become `?`."""
    return "".join(each if " " <= each <= "~" else "?" for each in client_id)


def from_rpc_error(
    error: grpc.aio.AioRpcError, tried: str, *, is_encrypted: bool = False
) -> TidelogError:
    """The error that a call ended with, in our terms."""
    trailer = error.trailing_metadata().get(network_errors.TRAILER)
    return network_errors.from_status(
        error.code(),
        error.details() or "",
        trailer if isinstance(trailer, bytes) else None,
        tried=tried,
        is_encrypted=is_encrypted,
    )


def closed(tried: str) -> TidelogError:
    """The call or stream was ended from this side."""
    return TidelogError(
        ErrorCode.CLOSED, tried=tried, happened="it was closed here while it was in progress"
    )


def _cancellations() -> int:
    """Tells a cancelled task from a cancelled call: gRPC raises the same for both."""
    task = asyncio.current_task()
    assert task is not None, "the network is used by tasks"
    return task.cancelling()


def _check_size(message: bytes, tried: str) -> None:
    if len(message) > MESSAGE_BYTES_MAX:
        raise network_errors.too_large(tried, len(message), MESSAGE_BYTES_MAX)
