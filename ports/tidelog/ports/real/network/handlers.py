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

from tidelog.ports.certificates import CertificateNames
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
from tidelog.ports.real.network import errors as network_errors
from tidelog.ports.real.network import options as network_options
from tidelog.ports.real.network.admission import CallAdmission
from tidelog.ports.real.network.answers import CallRoom
from tidelog.ports.real.network.callers import Callers
from tidelog.ports.real.network.memory import ListenerMemory, MessageRoom
from tidelog.ports.request_context import ANONYMOUS, NO_DEADLINE_NS, RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError

_log: Final = logging.getLogger(__name__)

CLIENT_ID_CHARACTERS_MAX: Final = 256
NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000

_SUBJECT_KEY: Final = "x509_subject"
_NAMES_KEY: Final = "x509_subject_alternative_name"
_PRINCIPAL_KEYS: Final = (_SUBJECT_KEY, "x509_common_name", _NAMES_KEY)
"""What gRPC tells of a certificate that it has checked."""

_Result = TypeVar("_Result")
_Context = grpc.aio.ServicerContext[bytes, bytes]


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers of one listener share."""

    listener: Listener
    clock: Clock
    memory: ListenerMemory
    callers: Callers
    admission: CallAdmission


class HandlerStream:
    """The handler's end of a stream."""

    def __init__(self, context: _Context, method: str, serving: Serving, room: CallRoom) -> None:
        self._serving = serving
        self._memory = serving.memory
        self._room = room
        self._connection = context.peer()
        self.message_room = serving.memory.room(method, may_refuse=False)
        self._is_first = True
        self._context = context
        self._method = method
        self._task = asyncio.current_task()
        self._is_receive_broken = False
        self.is_cancelled = False

    async def send(self, message: bytes) -> None:
        """Queue a message; waits while the caller is slow."""
        _check_size(message, f"answer {self._method}")
        self._check_open()
        self._room.send(len(message), may_refuse=False)
        try:
            await self._context.write(message)
        except grpc.aio.BaseError:
            # The caller is gone. The handler's own task hears of it by its cancellation, the
            # tasks that it started only here.
            raise self._closed("the caller is gone") from None
        finally:
            self._room.gone()

    async def receive(self) -> bytes | None:
        """The caller's next message; None after it has ended its sending."""
        self._check_open()
        if self._is_receive_broken:
            raise self._closed("an earlier receive was cancelled")
        self.let_go()
        await self._memory.wait_room()
        try:
            message = await self._read()
        except asyncio.CancelledError:
            # gRPC goes on reading into nowhere: the message that comes next is lost.
            self._is_receive_broken = True
            raise
        except grpc.aio.BaseError:
            raise self._closed("the caller is gone") from None
        if not isinstance(message, bytes):
            return None
        self.message_room.arrive(len(message))
        serving = self._serving
        serving.callers.delivered(self._connection, len(message), serving.clock.monotonic_ns())
        return message

    async def _read(self) -> object:
        """The first message has to come soon: a stream of which nothing comes is a slot taken."""
        if not self._is_first:
            return await self._context.read()
        self._is_first = False
        return await _first_message(self._context, self._method, self._serving)

    def let_go(self) -> None:
        """The handler is done with the last message: it says so, or asks for the next, or ends."""
        self.message_room.give_back()

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


def handlers_by_service(
    methods: Mapping[str, Method], serving: Serving
) -> dict[str, dict[str, "grpc.RpcMethodHandler[Any, Any]"]]:
    """By service and name; bytes are neither read nor written on the way."""
    services: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for full_name, method in methods.items():
        service, name = split_name(full_name)
        make = _unary if isinstance(method, UnaryMethod) else _stream
        services.setdefault(service, {})[name] = make(method, full_name, serving)
    return services


def split_name(full_name: str) -> tuple[str, str]:
    """Service and method of `/service/Method`."""
    empty, service, name = full_name.split("/")
    assert not empty, f"a method's name is /service/Method, not {full_name}"
    return service, name


def _unary(method: Method, full_name: str, serving: Serving) -> "grpc.RpcMethodHandler[Any, Any]":
    """Served as if the caller streamed, which looks the same on the wire: only so is the message
    not taken in before there is room for it, nor waited for without end.
    """
    assert isinstance(method, UnaryMethod), full_name
    handler: UnaryHandler = method.handler
    memory, limit_ms = serving.memory, serving.listener.limits.call_ms_max

    async def serve(_messages: object, context: _Context) -> bytes:
        connection = context.peer()
        room = memory.answers.room(connection, full_name)

        async def answer() -> bytes:
            admit()
            memory.admit(full_name)
            message = await _only_message(context, full_name, serving)
            message_room = memory.room(full_name, may_refuse=True)
            message_room.arrive(len(message))
            serving.callers.delivered(connection, len(message), serving.clock.monotonic_ns())
            try:
                asked = request_context(context, serving, room, message_room)
                result = await _serve_in_time(handler, asked, message, serving.clock, limit_ms)
            finally:
                message_room.give_back()
            _check_size(result, f"answer {full_name}")
            room.send(len(result), may_refuse=True)
            return result

        admit = _count_call(context, full_name, serving, room)
        return await _supervise(answer, context, full_name)

    return grpc.stream_unary_rpc_method_handler(serve)


def _stream(method: Method, full_name: str, serving: Serving) -> "grpc.RpcMethodHandler[Any, Any]":
    assert isinstance(method, StreamMethod), full_name
    handler: StreamHandler = method.handler

    async def serve(_messages: object, context: _Context) -> None:
        connection = context.peer()
        room = serving.memory.answers.room(connection, full_name)
        stream = HandlerStream(context, full_name, serving, room)

        async def work() -> None:
            admit()
            await handler(request_context(context, serving, room, stream.message_room), stream)

        admit = _count_call(context, full_name, serving, room)
        try:
            await _supervise(work, context, full_name)
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


def _count_call(
    context: _Context, full_name: str, serving: Serving, room: CallRoom
) -> Callable[[], None]:
    """From now until gRPC is done with it, its answer included. What is given back lets the call
    begin, or refuses it.
    """
    connection = context.peer()
    is_admitted = False
    serving.callers.begin(connection, serving.clock.monotonic_ns())

    def admit() -> None:
        nonlocal is_admitted
        serving.admission.begin(connection, full_name)
        is_admitted = True

    def end(_: object) -> None:
        room.give_back()
        room.gone()
        serving.callers.end(connection)
        if is_admitted:
            serving.admission.end(connection)

    # The published types of this method fit no function.
    on_done: Any = end
    context.add_done_callback(on_done)
    return admit


def strangers_handler(serving: Serving) -> "grpc.RpcMethodHandler[Any, Any]":
    """For calls of methods that are not served: they end at once, with the error of the contract,
    and count for their connection as all others do.
    """

    async def refuse(_messages: object, context: _Context) -> None:
        connection = context.peer()
        serving.callers.begin(connection, serving.clock.monotonic_ns())

        def end(_: object) -> None:
            serving.callers.end(connection)

        # The published types of this method fit no function.
        on_done: Any = end
        context.add_done_callback(on_done)

        async def tell() -> None:
            raise TidelogError(
                ErrorCode.NOT_IMPLEMENTED,
                tried="call a method",
                happened=f"the listener `{serving.listener.name}` serves no method of this name",
            )

        await _supervise(tell, context, "an unknown method")

    return grpc.stream_stream_rpc_method_handler(refuse)


async def _first_message(context: _Context, full_name: str, serving: Serving) -> object:
    limit_ms = serving.listener.limits.message_ms_max
    limit = asyncio.timeout(limit_ms / 1000)
    admission = serving.admission
    loop = asyncio.get_running_loop()
    silent = admission.wait_message(lambda: limit.reschedule(loop.time()))
    try:
        async with limit:
            message: object = await context.read()
            return message
    except grpc.aio.UsageError:
        raise
    except grpc.aio.BaseError:
        # The server has stopped, or the call is over: nobody is left who could be answered.
        raise asyncio.CancelledError from None
    except TimeoutError:
        if not limit.expired():
            raise
        if silent.is_displaced:
            raise admission.displaced(full_name) from None
        serving.memory.note_refused("message_ms_max")
        raise TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried=f"call {full_name}",
            happened="no message has come within "
            f"listeners.{serving.listener.name}.limits.message_ms_max = {limit_ms}",
        ) from None
    finally:
        admission.came(silent)


async def _only_message(context: _Context, full_name: str, serving: Serving) -> bytes:
    message = await _first_message(context, full_name, serving)
    if isinstance(message, bytes):
        return message
    # Nothing came: the call was withdrawn, or its message was refused for its size, and gRPC says
    # so; else the caller has ended its sending without one.
    await asyncio.sleep(0)
    raise TidelogError(
        ErrorCode.INVALID_ARGUMENT, tried=f"call {full_name}", happened="the call has no message"
    )


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
    try:
        await context.abort(
            network_errors.status_of(failure), network_errors.status_text(failure), trailer
        )
    except grpc.aio.InternalError:
        # The call was over before it could be told.
        raise asyncio.CancelledError from None
    raise AssertionError("abort returned")


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


def request_context(
    context: _Context, serving: Serving, room: CallRoom, message_room: MessageRoom
) -> RequestContext:
    """What handlers may know of a call."""
    listener, clock = serving.listener, serving.clock
    remaining_s: float | None = context.time_remaining()
    deadline_ns = NO_DEADLINE_NS
    if remaining_s is not None:
        deadline_ns = min(
            NO_DEADLINE_NS, clock.monotonic_ns() + int(max(0.0, remaining_s) * NS_PER_S)
        )
    proved = {} if listener.tls is None else context.auth_context()
    return RequestContext(
        principal=principal_of(proved),
        listener=listener.name,
        client_id=_client_id(context),
        address=normalise_address(context.peer()),
        deadline_ns=deadline_ns,
        certificate=certificate_of(proved),
        answer_room=room,
        request_room=message_room,
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


def certificate_of(proved: Mapping[str, Iterable[bytes]]) -> CertificateNames:
    """Subject and further names, each only from its own place in the certificate."""
    subjects, names = (
        tuple(value.decode("utf-8", errors="replace") for value in proved.get(key, ()))
        for key in (_SUBJECT_KEY, _NAMES_KEY)
    )
    return CertificateNames(subject="".join(subjects[:1]), names=names)


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
