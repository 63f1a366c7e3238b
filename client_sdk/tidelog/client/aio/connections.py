"""Channels of grpc.aio to brokers, calls on them, and what their failures mean in words.

Owns every gRPC object of an asyncio client. gRPC is imported by the first call, not before. What a
failure means is said by the synchronous driver's words: there is one list of reasons.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.client import lifecycle
from tidelog.client.options import invalid
from tidelog.client.security import Security
from tidelog.client.sync import connections as words
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from grpc import aio


def check_security(client: str, security: Security) -> None:
    """What this driver cannot do is refused before anything connects."""
    if security.is_encrypted and not security.checks_host_name:
        raise invalid(
            client,
            "ssl_check_hostname is False, which the asyncio clients do not have: name the nodes "
            "as their certificates do, or use the synchronous client",
        )


class AsyncConnections:
    """One per client; used on one loop."""

    def __init__(self, client_id: str, security: Security) -> None:
        self._metadata = ((words.CLIENT_ID_HEADER, client_id),)
        self._security = security
        self._channels: dict[str, aio.Channel] = {}
        self._is_closed = False

    def channel(self, address: str) -> aio.Channel:
        """The channel to an address; it connects with its first call."""
        from grpc import aio

        from tidelog.ports.real import network_options

        if self._is_closed:
            raise TidelogError(
                ErrorCode.CLOSED, tried=f"call {address}", happened="the client is closed"
            )
        channel = self._channels.get(address)
        if channel is None:
            options = [*words.CHANNEL_OPTIONS, *network_options.ping_options()]
            if self._security.is_encrypted:
                credentials = self._security.credentials()
                channel = aio.secure_channel(address, credentials, options=options)
            else:
                channel = aio.insecure_channel(address, options=options)
            lifecycle.hold(channel)
            self._channels[address] = channel
        return channel

    async def call(self, address: str, method: str, data: bytes, timeout_ms: int) -> bytes:
        """One call."""
        channel: Any = self.channel(address)
        import grpc

        tried = f"call {method.rpartition('/')[2]} at {address}"
        try:
            answer: bytes = await channel.unary_unary(method)(
                data, timeout=max(1, timeout_ms) / 1000, metadata=self._metadata
            )
        except grpc.RpcError as error:
            raise words.error_of(
                error, address=address, tried=tried, timeout_ms=timeout_ms
            ) from None
        return answer

    async def call_any(
        self, addresses: Sequence[str], method: str, data: bytes, timeout_ms: int
    ) -> bytes:
        """Ask one address after the other; the error names each of them."""
        assert addresses, "a round needs an address"
        deadline = time.monotonic() + timeout_ms / 1000
        failures: list[tuple[str, TidelogError]] = []
        for place, address in enumerate(addresses):
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            # The last address may use all that is left: nobody waits behind it.
            is_last = place == len(addresses) - 1
            share_ms = left_ms if is_last else min(left_ms, words.ADDRESS_TIMEOUT_MS)
            try:
                return await self.call(address, method, data, share_ms)
            except TidelogError as error:
                failures.append((address, error))
        raise words.all_failed(failures)

    def stream(self, address: str, method: str) -> Any:
        """A bidirectional stream: `write`, `read`, `cancel`."""
        channel: Any = self.channel(address)
        return channel.stream_stream(method)(metadata=self._metadata)

    async def close(self) -> None:
        """Break everything."""
        self._is_closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()
            lifecycle.let_go(channel)
