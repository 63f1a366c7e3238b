"""What nodes ask of each other, by who answers it; and methods whose handlers come later.

Owns the split of the `cluster` listener: a voter serves the controller's files whole, a broker
those of replicas. The listener is bound before there is a broker, since the quorum has to be
reachable for the broker to come up.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.ports import Method, RequestContext, Stream, StreamMethod, UnaryMethod
from tidelog.v1 import (
    broker_peer_pb2,
    broker_session_pb2,
    controller_pb2,
    metadata_stream_pb2,
    quorum_pb2,
    replica_pb2,
)

CONTROLLER_FILES: Final = (
    quorum_pb2.DESCRIPTOR,
    metadata_stream_pb2.DESCRIPTOR,
    broker_session_pb2.DESCRIPTOR,
    controller_pb2.DESCRIPTOR,
)
"""Every service in these files is served whole by a controller."""
REPLICA_FILES: Final = (replica_pb2.DESCRIPTOR, broker_peer_pb2.DESCRIPTOR)
"""Every service in these files is served whole by a broker."""


def late_methods(found: Callable[[], Mapping[str, Method]]) -> dict[str, Method]:
    """The methods of a broker that is made later; whoever calls stands before a gate until then."""
    methods: dict[str, Method] = {}
    for file in REPLICA_FILES:
        for service in file.services_by_name.values():
            for method in service.methods:
                name = f"/{service.full_name}/{method.name}"
                is_stream = method.client_streaming or method.server_streaming
                methods[name] = _stream(name, found) if is_stream else _unary(name, found)
    return methods


def _unary(name: str, found: Callable[[], Mapping[str, Method]]) -> UnaryMethod:
    async def answer(context: RequestContext, message: bytes) -> bytes:
        method = found()[name]
        assert isinstance(method, UnaryMethod), f"{name} is answered once"
        return await method.handler(context, message)

    return UnaryMethod(answer)


def _stream(name: str, found: Callable[[], Mapping[str, Method]]) -> StreamMethod:
    async def talk(context: RequestContext, stream: Stream) -> None:
        method = found()[name]
        assert isinstance(method, StreamMethod), f"{name} is a stream"
        await method.handler(context, stream)

    return StreamMethod(talk)
