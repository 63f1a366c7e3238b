"""The Network port over gRPC: listeners here, connections to peers there.

Owns every socket of a node or client. Stops 4, 7 and 9 of a record's walk pass through here.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.ports.clock import Clock
from tidelog.ports.network import Listener, Method, TlsFiles
from tidelog.ports.real.network.client import CallerStream, Connection, closed
from tidelog.ports.real.network.server import GrpcServer, start_server
from tidelog.ports.real.network.tls import RealCertificates

RETIRED_MAX: Final = 64
"""Connections under replaced certificates that are kept for the streams on them; beyond it the
oldest are broken, and whoever streamed there begins anew."""


class GrpcNetwork:
    """One connection per peer, made at the first use and kept until `close`, or until this end's
    certificates change: what is open stays, what begins then uses the new ones.
    """

    def __init__(
        self, clock: Clock, *, client_id: str = "", outbound: TlsFiles | None = None
    ) -> None:
        self._clock = clock
        self._client_id = client_id
        self._connections: dict[str, Connection] = {}
        self._retired: list[Connection] = []
        self._generation = 0
        self._is_closed = False
        self.certificates = RealCertificates(outbound)

    async def serve(self, listener: Listener, methods: Mapping[str, Method]) -> GrpcServer:
        """Serve methods by full name."""
        return await start_server(listener, methods, self._clock, self.certificates)

    async def call(self, peer: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        """One message there and one back."""
        while len(self._retired) > RETIRED_MAX:
            await self._retired.pop(0).close()
        return await self._connection(peer).call(method, message, timeout_ms)

    def stream(self, peer: str, method: str) -> CallerStream:
        """Begin a stream; a failure to connect shows at the first send or receive."""
        return self._connection(peer).stream(method)

    async def close(self) -> None:
        """Break every connection made from here."""
        self._is_closed = True
        connections = [*self._connections.values(), *self._retired]
        self._connections.clear()
        self._retired.clear()
        for connection in connections:
            await connection.close()

    def _connection(self, peer: str) -> Connection:
        if self._is_closed:
            raise closed(f"reach {peer}")
        outbound = self.certificates.outbound
        if outbound is not None and outbound.generation != self._generation:
            self._generation = outbound.generation
            self._retired += self._connections.values()
            self._connections.clear()
        connection = self._connections.get(peer)
        if connection is None:
            material = None if outbound is None else outbound.material
            connection = self._connections[peer] = Connection(
                peer, self._client_id, material, self.certificates.report
            )
        return connection
