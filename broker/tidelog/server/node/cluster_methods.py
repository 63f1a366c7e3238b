"""What nodes ask of each other, by who answers it, and the routes to a broker that is made later.

Owns the split of the `cluster` listener: a voter serves the controller's files whole, a broker
those of replicas. The listener is bound before there is a broker: a node learns its own address by
that, and the quorum has to be reachable for the broker to come up.
"""

from collections.abc import Sequence
from typing import Final

from google.protobuf.descriptor import FileDescriptor

from tidelog.broker.services.middleware.middleware import Served
from tidelog.metadata_quorum.admin.access import method_name
from tidelog.ports import Method, RequestContext, Stream, StreamMethod, UnaryMethod
from tidelog.v1 import (
    broker_peer_pb2,
    broker_session_pb2,
    controller_pb2,
    marker_pb2,
    metadata_stream_pb2,
    quorum_pb2,
    replica_pb2,
    transaction_coordinator_pb2,
)

CONTROLLER_FILES: Final = (
    quorum_pb2.DESCRIPTOR,
    metadata_stream_pb2.DESCRIPTOR,
    broker_session_pb2.DESCRIPTOR,
    controller_pb2.DESCRIPTOR,
)
"""Every service in these files is served whole by a controller."""
REPLICA_FILES: Final = (
    replica_pb2.DESCRIPTOR,
    broker_peer_pb2.DESCRIPTOR,
    transaction_coordinator_pb2.DESCRIPTOR,
    marker_pb2.DESCRIPTOR,
)
"""Every service in these files is served whole by a broker."""


class Routes:
    """Methods that are bound before those who answer them are made; `lead_to` them once."""

    def __init__(self, files: Sequence[FileDescriptor]) -> None:
        self._methods = [
            method
            for file in files
            for service in file.services_by_name.values()
            for method in service.methods
        ]
        self._table: Served | None = None

    def served(self) -> Served:
        """The methods; nobody is ready for a call before the routes lead anywhere."""
        methods: dict[str, Method] = {}
        for method in self._methods:
            name = method_name(method)
            is_stream = method.client_streaming or method.server_streaming
            methods[name] = self._stream(name) if is_stream else self._unary(name)
        return Served(methods=methods, is_ready=self._is_ready, is_late=True)

    def lead_to(self, table: Served) -> None:
        """From now on these answer."""
        assert self._table is None, "routes are swapped once"
        bound = {method_name(each) for each in self._methods}
        assert table.methods.keys() == bound, "every method that was bound has a handler, no other"
        self._table = table

    def _is_ready(self) -> bool:
        return self._table is not None and self._table.is_ready()

    def _found(self, name: str) -> Method:
        assert self._table is not None, "calls that come before the handlers are refused"
        return self._table.methods[name]

    def _unary(self, name: str) -> UnaryMethod:
        async def answer(context: RequestContext, message: bytes) -> bytes:
            method = self._found(name)
            assert isinstance(method, UnaryMethod), f"{name} is answered once"
            return await method.handler(context, message)

        return UnaryMethod(answer)

    def _stream(self, name: str) -> StreamMethod:
        async def talk(context: RequestContext, stream: Stream) -> None:
            method = self._found(name)
            assert isinstance(method, StreamMethod), f"{name} is a stream"
            await method.handler(context, stream)

        return StreamMethod(talk)
