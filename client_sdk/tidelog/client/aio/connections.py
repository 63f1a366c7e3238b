"""Channels of grpc.aio to brokers, calls on them, and what their failures mean in words.

Owns every gRPC object of an asyncio client. gRPC is imported by the first call, not before. What a
failure means is said by the synchronous driver's words: there is one list of reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.client.aio.rounds import Round
from tidelog.client.shared import lifecycle
from tidelog.client.shared.asking import OnFailure, nobody_is_told
from tidelog.client.sync import connections as words
from tidelog.client.tls.security import Security
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from grpc import aio


class AsyncConnections:
    """One per client; used on one loop."""

    def __init__(self, client_id: str, security: Security) -> None:
        self._metadata = ((words.CLIENT_ID_HEADER, client_id),)
        self._security = security
        self._channels: dict[str, aio.Channel] = {}
        self._unnamed: set[str] = set()
        """Addresses whose channel wants a name that their node does not have any more."""
        self._answered: dict[str, None] = {}
        self._is_closed = False

    async def channel(self, address: str) -> aio.Channel:
        """The channel to an address; it connects with its first call."""
        if address in self._unnamed:
            self._unnamed.discard(address)
            await self._drop(address)
        names = [] if address in self._channels else await self._names(address)
        self._check_open(address)
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._make(address, names)
        return channel

    def _make(self, address: str, names: list[tuple[str, str]]) -> aio.Channel:
        from grpc import aio

        from tidelog.ports.real.network import options as network_options

        options = [*words.CHANNEL_OPTIONS, *network_options.ping_options(), *names]
        if self._security.is_encrypted:
            credentials = self._security.credentials()
            channel = aio.secure_channel(address, credentials, options=options)
        else:
            channel = aio.insecure_channel(address, options=options)
        lifecycle.hold(channel)
        return channel

    def _check_open(self, address: str) -> None:
        if self._is_closed:
            raise TidelogError(
                ErrorCode.CLOSED, tried=f"call {address}", happened="the client is closed"
            )

    async def _names(self, address: str) -> list[tuple[str, str]]:
        """As in the synchronous driver: without the check the name in the certificate counts."""
        if not self._security.is_encrypted or self._security.checks_host_name:
            return []
        from tidelog.client.aio import tls_probe

        return words.name_options(await tls_probe.look(address, self._security))

    async def _drop(self, address: str) -> None:
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()
            lifecycle.let_go(channel)

    async def error_of(
        self, call: Any, *, address: str, tried: str, timeout_ms: int | None = None
    ) -> TidelogError:
        """What a failed call or stream means; a look at the address tells mistakes of TLS apart."""
        error = words.error_of(call, address=address, tried=tried, timeout_ms=timeout_ms)
        details = call.details() or ""
        if words.NEVER_CONNECTED not in details:
            return error
        if self._security.is_encrypted and not self._security.checks_host_name:
            self._unnamed.add(address)
        from tidelog.client.aio import tls_probe
        from tidelog.client.tls import look as tls_look

        is_wanted = tls_look.wants_look(details)
        seen = await tls_probe.look(address, self._security) if is_wanted else None
        mistake = tls_look.explain(address, details, self._security, seen)
        is_unnamed = address in self._unnamed
        return words.told_by_tls(error, mistake, address, tried, is_unnamed=is_unnamed)

    async def call(self, address: str, method: str, data: bytes, timeout_ms: int) -> bytes:
        """One call."""
        channel: Any = await self.channel(address)
        import grpc

        tried = f"call {method.rpartition('/')[2]} at {address}"
        try:
            answer: bytes = await channel.unary_unary(method)(
                data, timeout=max(1, timeout_ms) / 1000, metadata=self._metadata
            )
        except grpc.RpcError as error:
            failure = await self.error_of(
                error, address=address, tried=tried, timeout_ms=timeout_ms
            )
            raise failure from None
        self._answered[address] = None
        return answer

    async def call_any(
        self,
        addresses: Sequence[str],
        method: str,
        data: bytes,
        timeout_ms: int,
        on_failure: OnFailure = nobody_is_told,
    ) -> bytes:
        """Ask one address after the other (`rounds`); the error names each of them."""
        return await Round(self, addresses, method, data, timeout_ms, on_failure).answer()

    def has_answered(self, address: str) -> bool:
        """Whether a call to it succeeded since the client began: then it is not one that hangs."""
        return address in self._answered

    def stream(self, address: str, method: str) -> Any:
        """A bidirectional stream to where a call was just answered: `write`, `read`, `cancel`."""
        self._check_open(address)
        channel: Any = self._channels.get(address)
        if channel is None:
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried=f"open a stream to {address}",
                happened=f"{address}: the connection was given up",
            )
        return channel.stream_stream(method)(metadata=self._metadata)

    async def close(self) -> None:
        """Break everything."""
        self._is_closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()
            lifecycle.let_go(channel)
