"""ReplicaService: the service's one method, over the handler of the leader's end."""

from collections.abc import Mapping
from typing import Final

from tidelog.broker.replication.tasks.leader_stream import ReplicaFetchHandler
from tidelog.broker.replication.tasks.wire import REPLICA_FETCH, FollowerEnd
from tidelog.ports import Method, RequestContext, Stream, StreamMethod
from tidelog.v1 import replica_pb2

REPLICA_FILES: Final = (replica_pb2.DESCRIPTOR,)
"""Every service in these files is served whole by a broker, on the `cluster` listener."""


class ReplicaRpc:
    """Serves the streams on which followers pull."""

    def __init__(self, handler: ReplicaFetchHandler) -> None:
        self._handler = handler

    def methods(self) -> Mapping[str, Method]:
        """By full name; whoever serves them puts the middleware around them."""
        return {REPLICA_FETCH: StreamMethod(self.replica_fetch)}

    async def replica_fetch(self, context: RequestContext, stream: Stream) -> None:
        """`ReplicaFetch`."""
        del context
        await self._handler.serve(FollowerEnd(stream))
