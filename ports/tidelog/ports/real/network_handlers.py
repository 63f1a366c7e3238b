"""Handlers of the rooms above as gRPC handlers: bytes in, bytes out, every end typed.

Owns what becomes of a handler's end: an answer, the TidelogError in the trailer, or, for anything
unexpected, UNKNOWN with the stack in the log. It must never let a handler's failure break the
connection, nor hand a gRPC type to a handler. Stop 4 of a record's walk comes in here.
"""

import asyncio
import logging
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
import msgspec

from tidelog.ports.clock import Clock
from tidelog.ports.network import (
    MESSAGE_BYTES_MAX,
    Listener,
    Method,
    StreamHandler,
    StreamMethod,
    UnaryHandler,
    UnaryMethod,
)
from tidelog.ports.real import network_errors, network_options
from tidelog.ports.real.network_memory import SMALL_ANSWER_BYTES, ListenerMemory
from tidelog.ports.request_context import ANONYMOUS, NO_DEADLINE_NS, RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError

_log: Final = logging.getLogger(__name__)

CLIENT_ID_CHARACTERS_MAX: Final = 256
NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000

_PRINCIPAL_KEYS: Final = ("x509_subject", "x509_common_name", "x509_subject_alternative_name")
"""What gRPC tells of a certificate that it has checked."""

_Result = TypeVar("_Result")
_Context = grpc.aio.ServicerContext[bytes, bytes]


class HandlerStream:
    """The handler's end of a stream."""

    def __init__(self, context: _Context, method: str, memory: ListenerMemory) -> None:
        self._memory = memory
        self._held_bytes = 0
        self._context = context
        self._method = method
        self._task = asyncio.current_task()
        self._is_receive_broken = False
        self.is_cancelled = False

    async def send(self, message: bytes) -> None:
        """Queue a message; waits while the caller is slow."""
        _check_size(message, f"answer {self._method}")
        self._check_open()
        try:
            await self._context.write(message)
        except grpc.aio.BaseError:
            # The caller is gone. The handler's own task hears of it by its cancellation, the
            # tasks that it started only here.
            raise self._closed("the caller is gone") from None

    async def receive(self) -> bytes | None:
        """The caller's next message; None after it has ended its sending."""
        self._check_open()
        if self._is_receive_broken:
            raise self._closed("an earlier receive was cancelled")
        self.let_go()
        await self._memory.wait_room()
        try:
            message: object = await self._context.read()
        except asyncio.CancelledError:
            # gRPC goes on reading into nowhere: the message that comes next is lost.
            self._is_receive_broken = True
            raise
        except grpc.aio.BaseError:
            raise self._closed("the caller is gone") from None
        if not isinstance(message, bytes):
            return None
        self._held_bytes = len(message)
        self._memory.take(self._held_bytes)
        return message

    def let_go(self) -> None:
        """The handler is done with the last message: it asks for the next one, or has ended."""
        if self._held_bytes:
            self._memory.give_back(self._held_bytes)
            self._held_bytes = 0

    async def end_sending(self) -> None:
        """A handler ends its sending by returning."""
        raise AssertionError("a handler returns to end its stream")

    def cancel(self) -> None:
        """Break the stream at once: the handler's task is cancelled and the caller told nothing."""
        if not self.is_cancelled:
            self.is_cancelled = True
            assert self._task is not None, "a stream is made by the task of its handler"
            self._task.cancel()

    def _check_open(self) -> None:
        if self.is_cancelled:
            raise self._closed("the stream was cancelled")

    def _closed(self, happened: str) -> TidelogError:
        return TidelogError(ErrorCode.CLOSED, tried=f"serve {self._method}", happened=happened)


def generic_handlers(
    methods: Mapping[str, Method], listener: Listener, clock: Clock, memory: ListenerMemory
) -> tuple[grpc.GenericRpcHandler, ...]:
    """One per service; bytes are neither read nor written on the way."""
    services: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for full_name, method in methods.items():
        service, name = split_name(full_name)
        make = _unary if isinstance(method, UnaryMethod) else _stream
        services.setdefault(service, {})[name] = make(method, full_name, listener, clock, memory)
    return tuple(
        grpc.method_handlers_generic_handler(service, handlers)
        for service, handlers in services.items()
    )


def split_name(full_name: str) -> tuple[str, str]:
    """Service and method of `/service/Method`."""
    empty, service, name = full_name.split("/")
    assert not empty, f"a method's name is /service/Method, not {full_name}"
    return service, name


def _unary(
    method: Method, full_name: str, listener: Listener, clock: Clock, memory: ListenerMemory
) -> "grpc.RpcMethodHandler[Any, Any]":
    assert isinstance(method, UnaryMethod), full_name
    handler: UnaryHandler = method.handler

    async def serve(message: bytes, context: _Context) -> bytes:
        async def answer() -> bytes:
            connection = context.peer()
            memory.admit(full_name, connection, len(message))
            try:
                asked = request_context(context, listener, clock)
                result = await _serve_in_time(
                    handler, asked, message, clock, listener.limits.call_ms_max
                )
            finally:
                memory.give_back(len(message))
            _check_size(result, f"answer {full_name}")
            _hold(result, context, connection, full_name, memory)
            return result

        return await _supervise(answer, context, full_name)

    return grpc.unary_unary_rpc_method_handler(serve)


def _stream(
    method: Method, full_name: str, listener: Listener, clock: Clock, memory: ListenerMemory
) -> "grpc.RpcMethodHandler[Any, Any]":
    assert isinstance(method, StreamMethod), full_name
    handler: StreamHandler = method.handler

    async def serve(_messages: object, context: _Context) -> None:
        stream = HandlerStream(context, full_name, memory)
        try:
            await _supervise(
                lambda: handler(request_context(context, listener, clock), stream),
                context,
                full_name,
            )
        except asyncio.CancelledError:
            if not stream.is_cancelled or context.cancelled():
                raise
            task = asyncio.current_task()
            assert task is not None, "a handler runs in a task"
            task.uncancel()
        finally:
            stream.let_go()
        if stream.is_cancelled:
            await context.abort(grpc.StatusCode.CANCELLED, "the peer broke the stream")

    return grpc.stream_stream_rpc_method_handler(serve)


async def _supervise(
    work: Callable[[], Awaitable[_Result]], context: _Context, full_name: str
) -> _Result:
    """Run a handler; whatever it raises becomes the end of this call and of nothing else."""
    try:
        return await work()
    except TidelogError as error:
        failure = error
    except Exception:  # noqa: BLE001
        _log.exception("the handler of %s failed", full_name)
        failure = TidelogError(
            ErrorCode.UNKNOWN, tried=f"serve {full_name}", happened="the handler failed"
        )
    trailer = ((network_errors.TRAILER, network_errors.encode_error(failure)),)
    await context.abort(
        network_errors.status_of(failure), network_errors.status_text(failure), trailer
    )
    raise AssertionError("abort returned")


def _hold(
    answer: bytes, context: _Context, connection: str, full_name: str, memory: ListenerMemory
) -> None:
    """Count a large answer until the caller has it."""
    length_bytes = len(answer)
    if length_bytes < SMALL_ANSWER_BYTES:
        return
    memory.hold_answer(full_name, connection, length_bytes)

    def let_go(_: object) -> None:
        memory.let_answer_go(connection, length_bytes)

    # The published types of this method fit no function.
    on_done: Any = let_go
    context.add_done_callback(on_done)


async def _serve_in_time(
    handler: UnaryHandler, asked: RequestContext, message: bytes, clock: Clock, limit_ms: int
) -> bytes:
    """gRPC ends a call at its caller's deadline; this one is for callers without a short one."""
    now_ns = clock.monotonic_ns()
    limit_ns = limit_ms * NS_PER_MS
    if asked.deadline_ns - now_ns <= limit_ns:
        return await handler(asked, message)
    asked = msgspec.structs.replace(asked, deadline_ns=now_ns + limit_ns)
    limit = asyncio.timeout(limit_ms / 1000)
    try:
        async with limit:
            return await handler(asked, message)
    except TimeoutError:
        if not limit.expired():
            raise
        raise TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried="serve a call without a deadline",
            happened=f"it took longer than listeners.{asked.listener}.limits.call_ms_max = "
            f"{limit_ms}",
        ) from None


def request_context(context: _Context, listener: Listener, clock: Clock) -> RequestContext:
    """What handlers may know of a call."""
    remaining_s: float | None = context.time_remaining()
    deadline_ns = NO_DEADLINE_NS
    if remaining_s is not None:
        deadline_ns = min(
            NO_DEADLINE_NS, clock.monotonic_ns() + int(max(0.0, remaining_s) * NS_PER_S)
        )
    return RequestContext(
        principal=ANONYMOUS if listener.tls is None else principal_of(context.auth_context()),
        listener=listener.name,
        client_id=_client_id(context),
        address=normalise_address(context.peer()),
        deadline_ns=deadline_ns,
    )


def principal_of(proved: Mapping[str, Iterable[bytes]]) -> str:
    """The subject of the caller's certificate (`CN=alice` or `O=Example,CN=alice`), else the first
    name that the certificate is for; a caller without one is anonymous.
    """
    for key in _PRINCIPAL_KEYS:
        for value in proved.get(key, ()):
            if value:
                return value.decode("utf-8", errors="replace")
    return ANONYMOUS


def _client_id(context: _Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == network_options.CLIENT_ID_KEY and isinstance(value, str):
            return value[:CLIENT_ID_CHARACTERS_MAX]
    return ""


def normalise_address(peer: str) -> str:
    """gRPC's `ipv6:%5B::1%5D:9092` as `[::1]:9092`."""
    kind, _, address = peer.partition(":")
    return urllib.parse.unquote(address) if kind in ("ipv4", "ipv6") else peer


def _check_size(message: bytes, tried: str) -> None:
    if len(message) > MESSAGE_BYTES_MAX:
        raise network_errors.too_large(tried, len(message), MESSAGE_BYTES_MAX)
