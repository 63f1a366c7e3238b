"""The Network port over gRPC: listeners here, connections to peers there.

Owns every socket of a node or client. Stops 4, 7 and 9 of a record's walk pass through here.
"""

from collections.abc import Mapping

from tidelog.ports.clock import Clock
from tidelog.ports.network import Listener, Method
from tidelog.ports.real.network_client import CallerStream, Connection, closed
from tidelog.ports.real.network_server import GrpcServer, start_server


class GrpcNetwork:
    """One connection per peer, made at the first use and kept until `close`."""

    def __init__(self, clock: Clock, *, client_id: str = "") -> None:
        self._clock = clock
        self._client_id = client_id
        self._connections: dict[str, Connection] = {}
        self._is_closed = False

    async def serve(self, listener: Listener, methods: Mapping[str, Method]) -> GrpcServer:
        """Serve methods by full name."""
        return await start_server(listener, methods, self._clock)

    async def call(self, peer: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        """One message there and one back."""
        return await self._connection(peer).call(method, message, timeout_ms)

    def stream(self, peer: str, method: str) -> CallerStream:
        """Begin a stream; a failure to connect shows at the first send or receive."""
        return self._connection(peer).stream(method)

    async def close(self) -> None:
        """Break every connection made from here."""
        self._is_closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.close()

    def _connection(self, peer: str) -> Connection:
        if self._is_closed:
            raise closed(f"reach {peer}")
        connection = self._connections.get(peer)
        if connection is None:
            connection = self._connections[peer] = Connection(peer, self._client_id)
        return connection
