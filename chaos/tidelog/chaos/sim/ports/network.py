"""The Network port of one simulated process, over the fabric."""

import asyncio
from collections.abc import Mapping

from tidelog.chaos.sim.base.places import Caller, Endpoint, Place
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.ports.exchange import Exchange
from tidelog.chaos.sim.ports.fabric import Fabric
from tidelog.chaos.sim.ports.pipes import End, closed, too_large
from tidelog.ports.network import MESSAGE_BYTES_MAX, Listener, Method, Stream
from tidelog.wire.errors import ErrorCode, TidelogError

_STOP_POLL_NS = 1_000_000


class SimulatedServer:
    """A listener at work."""

    def __init__(self, fabric: Fabric, endpoint: Endpoint) -> None:
        self._fabric = fabric
        self._endpoint = endpoint

    @property
    def address(self) -> str:
        """`host:port` with the port that was really taken."""
        return self._endpoint.address

    async def stop(self, grace_ms: int) -> None:
        """Accept nothing new; break what is still open after `grace_ms`."""
        self._fabric.unbind(self._endpoint)
        until_ns = self._fabric.loop.now_ns + grace_ms * 1_000_000
        while self._open() and self._fabric.loop.now_ns < until_ns:
            await sleep_ns(self._fabric.loop, _STOP_POLL_NS)
        for exchange in self._open():
            exchange.break_off("the peer stopped")

    def _open(self) -> list[Exchange]:
        return [
            exchange
            for exchange in self._fabric.exchanges()
            if exchange.belongs_to(self._endpoint) and exchange.is_served
        ]


class SimulatedNetwork:
    """All connections of one process."""

    def __init__(self, fabric: Fabric, place: Place, *, address: str, client_id: str = "") -> None:
        self._fabric = fabric
        self._place = place
        self._caller = Caller(place, address, client_id)
        self._is_closed = False

    async def serve(self, listener: Listener, methods: Mapping[str, Method]) -> SimulatedServer:
        """Serve methods by full name."""
        await self._fabric.maybe_yield()
        return SimulatedServer(
            self._fabric, self._fabric.bind(self._place, listener, dict(methods))
        )

    async def call(self, peer: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        """One message there and one back."""
        self._check_open(peer)
        if len(message) > MESSAGE_BYTES_MAX:
            raise too_large(f"call {method} at {peer}", len(message))
        exchange = self._fabric.open(self._caller, peer, method, timeout_ms)
        deadline = self._fabric.loop.call_at_ns(
            self._fabric.loop.now_ns + timeout_ms * 1_000_000,
            exchange.client.fail,
            TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=exchange.tried,
                happened="no answer within the deadline",
            ),
        )
        try:
            exchange.tap_request(message)
            await exchange.client.send(message)
            await exchange.client.end_sending()
            reply = await exchange.client.receive()
        finally:
            deadline.cancel()
            exchange.abandon()
        assert reply is not None, f"{exchange.tried}: a unary handler answers once"
        return reply

    def stream(self, peer: str, method: str) -> Stream:
        """Begin a stream; a failure to connect shows at the first send or receive."""
        self._check_open(peer)
        exchange = self._fabric.open(self._caller, peer, method, None)
        return CallerEnd(exchange)

    async def close(self) -> None:
        """Break every connection made from here."""
        self._is_closed = True
        for exchange in self._fabric.exchanges():
            if exchange.caller is self._caller:
                exchange.client.cancel()
        await asyncio.sleep(0)

    def _check_open(self, peer: str) -> None:
        if self._is_closed:
            raise closed(f"reach {peer}")


class CallerEnd:
    """The calling end of a stream."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._end: End = exchange.client

    async def send(self, message: bytes) -> None:
        """Queue a message; waits while the other side is slow."""
        self._exchange.tap_request(message)
        await self._end.send(message)

    async def receive(self) -> bytes | None:
        """The next message; None after the other side has ended its sending in order."""
        return await self._end.receive()

    def let_go(self) -> None:
        """The last message that was received is done with."""
        # No memory is counted here.

    async def end_sending(self) -> None:
        """No more messages from here."""
        await self._end.end_sending()

    def cancel(self) -> None:
        """Break the stream at once."""
        self._end.cancel()
