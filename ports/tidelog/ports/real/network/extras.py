"""What gRPC tools expect of a listener: the health service, and reflection if asked for.

Both are methods of the Network port like all others, so that their messages and calls count, are
bounded and end in time as those of the contract do. Imports its libraries only when a listener
starts, so that nothing else pays for them.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from tidelog.ports.network import Method, Stream, StreamMethod, UnaryMethod
from tidelog.ports.real.network.errors import UnknownService
from tidelog.ports.request_context import RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError

HEALTH_SERVICE: Final = "grpc.health.v1.Health"
REFLECTION_SERVICE: Final = "grpc.reflection.v1alpha.ServerReflection"
REQUEST_BYTES_MAX: Final = 4_096
"""Of one message: a name, of a service, a file or a symbol."""


class Extras:
    """The health of one listener's services; the empty name is the listener as a whole."""

    def __init__(self, services: Sequence[str], *, starts_serving: bool) -> None:
        from grpc_health.v1 import health_pb2

        self._messages: Any = health_pb2
        self._kinds: Any = health_pb2.HealthCheckResponse
        first = self._kinds.SERVING if starts_serving else self._kinds.NOT_SERVING
        self._statuses: dict[str, int] = dict.fromkeys(("", *services), first)
        self._has_ended = False
        self._changed = asyncio.Event()

    def methods(self) -> Mapping[str, Method]:
        """Of the health service, by full name."""
        return {
            f"/{HEALTH_SERVICE}/Check": UnaryMethod(self._check),
            f"/{HEALTH_SERVICE}/Watch": StreamMethod(self._watch),
        }

    async def set(self, services: Sequence[str], *, is_serving: bool) -> None:
        """Whoever watches one of them is told; after `stop` nobody is."""
        if not self._has_ended:
            kinds = self._kinds
            self._set(services, kinds.SERVING if is_serving else kinds.NOT_SERVING)

    async def stop(self) -> None:
        """Tell watchers that the listener goes away; a second time changes nothing."""
        self._has_ended = True
        self._set(tuple(self._statuses), self._kinds.NOT_SERVING)

    def _set(self, services: Sequence[str], status: int) -> None:
        self._statuses |= dict.fromkeys(services, status)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _check(self, _: RequestContext, message: bytes) -> bytes:
        service = self._service(message)
        status = self._statuses.get(service)
        if status is None:
            raise UnknownService(
                ErrorCode.INVALID_ARGUMENT,
                tried="check the health of a service",
                happened=f"this listener serves no {service[:200]!r}",
            )
        return self._answer(status)

    async def _watch(self, _: RequestContext, stream: Stream) -> None:
        """As gRPC's health protocol has it: a service that is not known may come to be."""
        message = await stream.receive()
        if message is None:
            return
        service = self._service(message)
        stream.let_go()
        told: int | None = None
        while True:
            changed = self._changed
            status = self._statuses.get(service, self._kinds.SERVICE_UNKNOWN)
            if status != told:
                told = status
                await stream.send(self._answer(status))
            await changed.wait()

    def _service(self, message: bytes) -> str:
        kind = self._messages.HealthCheckRequest
        service: str = _parse(kind, message, "check the health of a service").service
        return service

    def _answer(self, status: int) -> bytes:
        data: bytes = self._kinds(status=status).SerializeToString()
        return data


def reflection_methods(services: Sequence[str]) -> Mapping[str, Method]:
    """Tells these services, and those of this module; none: there is no reflection."""
    if not services:
        return {}
    from grpc_health.v1 import health_pb2
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    # Named as a use: its descriptors are told too.
    assert HEALTH_SERVICE in (each.full_name for each in _services_of(health_pb2)), HEALTH_SERVICE
    names = (*services, HEALTH_SERVICE, REFLECTION_SERVICE)
    servicer: Any = reflection.aio.ReflectionServicer(names)
    kind: Any = reflection_pb2.ServerReflectionRequest

    async def requests(stream: Stream) -> AsyncIterator[Any]:
        while (message := await stream.receive()) is not None:
            yield _parse(kind, message, "reflect")

    async def reflect(_: RequestContext, stream: Stream) -> None:
        async for answer in servicer.ServerReflectionInfo(requests(stream), None):
            await stream.send(answer.SerializeToString())

    return {f"/{REFLECTION_SERVICE}/ServerReflectionInfo": StreamMethod(reflect)}


def _services_of(file: Any) -> Sequence[Any]:
    return tuple(file.DESCRIPTOR.services_by_name.values())


def _parse(kind: Any, message: bytes, tried: str) -> Any:
    from google.protobuf.message import DecodeError

    if len(message) > REQUEST_BYTES_MAX:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=tried,
            happened=f"the message has {len(message)} bytes, at most {REQUEST_BYTES_MAX} are taken",
        )
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=tried,
            happened=f"the message does not fit gRPC's protocol: {error}",
        ) from None
