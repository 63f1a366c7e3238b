"""Who may call what, as the contract's options say, and the check of it.

Owns how an option is read, and the two refusals that every listener gives in the same words. Who
asks is the middleware of a node, before each call, and the controller, for the client of a call
that a broker forwards.
"""

from collections.abc import Sequence

import msgspec
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError

from tidelog.ports import Authorizer, RequestContext
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


def malformed(name: str, error: DecodeError) -> TidelogError:
    """The message is none of the method's."""
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=f"call {name}",
        happened=f"the message does not fit the contract: {error}",
    )


def access_of(name: str) -> Access:
    """The access of a method by the name that gRPC uses; its file has been imported."""
    found = name.removeprefix("/").replace("/", ".")
    return read_access(descriptor_pool.Default().FindMethodByName(found))


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
