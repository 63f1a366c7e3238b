"""Who may call what: read from the contract's own method options, so that none is forgotten."""

from collections.abc import Sequence

import msgspec
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

from tidelog.ports.request_context import CLIENT_LISTENER, CLUSTER_LISTENER
from tidelog.v1 import options_pb2


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What the authorizer is asked, and the listener that serves the method."""

    resource: str
    operation: str
    listener: str


def method_name(method: MethodDescriptor) -> str:
    """As gRPC spells it: `/tidelog.v1.FetchService/Fetch`."""
    return f"/{method.containing_service.full_name}/{method.name}"


def read_accesses(files: Sequence[FileDescriptor]) -> dict[str, Access]:
    """The access option of every method of the files' services."""
    return {
        method_name(method): read_access(method)
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    }


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
