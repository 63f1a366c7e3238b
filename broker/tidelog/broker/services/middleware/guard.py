"""What stands before every method of a node: may the caller do this, is the node ready for it, does
the message hold no more than the contract allows, and is the caller the node that it says it is.

Owns the gate. The authorizer is asked before a request's bytes are looked at, and nothing is made
of them before they are counted; a message that does not fit the contract is the caller's error.
"""

from collections.abc import Callable, Mapping

import msgspec
from google.protobuf.message import DecodeError

from tidelog.broker.services.middleware.node_callers import NodeCallers
from tidelog.metadata_quorum.admin.access import Access
from tidelog.ports import (
    Authorizer,
    Method,
    RequestContext,
    Stream,
    StreamHandler,
    StreamMethod,
    UnaryHandler,
    UnaryMethod,
)
from tidelog.ports.bounds import bounded_stream, bounded_unary
from tidelog.wire.errors import ErrorCode, TidelogError


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Asked before every call."""

    authorizer: Authorizer
    is_ready: Callable[[], bool]
    callers: NodeCallers | None = None
    """Holds callers that name a node against their certificates; None: none is bound to an id."""


def guard_all(
    unary: Mapping[str, UnaryHandler],
    streams: Mapping[str, StreamHandler],
    accesses: Mapping[str, Access],
    gate: Gate,
) -> dict[str, Method]:
    """Each handler behind the gate."""
    methods: dict[str, Method] = {}
    for name, handler in unary.items():
        bound = handler if gate.callers is None else gate.callers.unary(name, handler)
        counted = bounded_unary(name, bound)
        methods[name] = UnaryMethod(_guard_unary(name, counted, accesses[name], gate))
    for name, stream_handler in streams.items():
        bound_stream = (
            stream_handler if gate.callers is None else gate.callers.stream(name, stream_handler)
        )
        counted_stream = bounded_stream(name, bound_stream)
        methods[name] = StreamMethod(_guard_stream(name, counted_stream, accesses[name], gate))
    return methods


def guard_methods(
    methods: Mapping[str, Method], accesses: Mapping[str, Access], gate: Gate
) -> dict[str, Method]:
    """The same for methods that are wrapped already."""
    unary = {
        name: method.handler for name, method in methods.items() if isinstance(method, UnaryMethod)
    }
    streams = {
        name: method.handler for name, method in methods.items() if isinstance(method, StreamMethod)
    }
    return guard_all(unary, streams, accesses, gate)


def _guard_unary(name: str, handler: UnaryHandler, access: Access, gate: Gate) -> UnaryHandler:
    async def guarded(context: RequestContext, message: bytes) -> bytes:
        _check(name, context, access, gate)
        try:
            return await handler(context, message)
        except DecodeError as error:
            raise _malformed(name, error) from None

    return guarded


def _guard_stream(name: str, handler: StreamHandler, access: Access, gate: Gate) -> StreamHandler:
    async def guarded(context: RequestContext, stream: Stream) -> None:
        _check(name, context, access, gate)
        try:
            await handler(context, stream)
        except DecodeError as error:
            raise _malformed(name, error) from None

    return guarded


def _check(name: str, context: RequestContext, access: Access, gate: Gate) -> None:
    if not gate.authorizer.is_allowed(context, access.resource, access.operation):
        raise TidelogError(
            ErrorCode.PERMISSION_DENIED,
            tried=f"call {name}",
            happened=f"{context.principal} may not {access.operation} a {access.resource}",
        )
    if not gate.is_ready():
        raise TidelogError(
            ErrorCode.UNAVAILABLE, tried=f"call {name}", happened="the node is starting or stopping"
        )


def _malformed(name: str, error: DecodeError) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=f"call {name}",
        happened=f"the message does not fit the contract: {error}",
    )
