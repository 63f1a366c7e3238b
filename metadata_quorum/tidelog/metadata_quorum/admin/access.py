"""Who may call what, and the check that stands before each call: read from the contract's options.

Owns the gate of the methods that this room serves. The authorizer is asked before a request's
bytes are looked at; a message that does not fit the contract is the caller's error.
"""

from collections.abc import Mapping, Sequence

import msgspec
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError

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
from tidelog.ports.request_context import CLIENT_LISTENER, CLUSTER_LISTENER
from tidelog.v1 import options_pb2
from tidelog.wire.errors import ErrorCode, TidelogError


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What the authorizer is asked, and the listener that serves the method."""

    resource: str
    operation: str
    listener: str


def method_name(method: MethodDescriptor) -> str:
    """As gRPC spells it: `/tidelog.v1.FetchService/Fetch`."""
    return f"/{method.containing_service.full_name}/{method.name}"


def read_accesses(files: Sequence[FileDescriptor]) -> dict[str, Access]:
    """Full method name → its access, for every method of the files' services."""
    return {
        method_name(method): read_access(method)
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    }


def check_allowed(
    name: str, context: RequestContext, access: Access, authorizer: Authorizer
) -> None:
    """PERMISSION_DENIED unless the principal may."""
    if not authorizer.is_allowed(context, access.resource, access.operation):
        raise TidelogError(
            ErrorCode.PERMISSION_DENIED,
            tried=f"call {name}",
            happened=f"{context.principal} may not {access.operation} a {access.resource}",
        )


def guarded_methods(
    handlers: Mapping[str, UnaryHandler],
    streams: Mapping[str, StreamHandler],
    accesses: Mapping[str, Access],
    authorizer: Authorizer,
) -> dict[str, Method]:
    """Each handler behind the gate."""
    methods: dict[str, Method] = {}
    for name, handler in handlers.items():
        methods[name] = UnaryMethod(_guard_unary(name, handler, accesses[name], authorizer))
    for name, stream_handler in streams.items():
        methods[name] = StreamMethod(
            _guard_stream(name, stream_handler, accesses[name], authorizer)
        )
    return methods


def malformed(name: str, error: DecodeError) -> TidelogError:
    """The message is none of the method's."""
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=f"call {name}",
        happened=f"the message does not fit the contract: {error}",
    )


def _guard_unary(
    name: str, handler: UnaryHandler, access: Access, authorizer: Authorizer
) -> UnaryHandler:
    async def guarded(context: RequestContext, message: bytes) -> bytes:
        check_allowed(name, context, access, authorizer)
        try:
            return await handler(context, message)
        except DecodeError as error:
            raise malformed(name, error) from None

    return guarded


def _guard_stream(
    name: str, handler: StreamHandler, access: Access, authorizer: Authorizer
) -> StreamHandler:
    async def guarded(context: RequestContext, stream: Stream) -> None:
        check_allowed(name, context, access, authorizer)
        try:
            await handler(context, stream)
        except DecodeError as error:
            raise malformed(name, error) from None

    return guarded


def read_access(method: MethodDescriptor) -> Access:
    """The method's option; its absence is a bug in the contract."""
    options = method.GetOptions()
    assert options.HasExtension(options_pb2.access), f"{method.full_name} says not who may call it"
    option = options.Extensions[options_pb2.access]
    is_cluster = option.listener == options_pb2.LISTENER_CLUSTER
    return Access(
        resource=_word(options_pb2.Resource.Name(option.resource), "RESOURCE_"),
        operation=_word(options_pb2.Operation.Name(option.operation), "OPERATION_"),
        listener=CLUSTER_LISTENER if is_cluster else CLIENT_LISTENER,
    )


def _word(name: str, prefix: str) -> str:
    assert name != f"{prefix}UNSPECIFIED", f"an access option leaves {prefix.lower()[:-1]} open"
    return name.removeprefix(prefix).lower()
