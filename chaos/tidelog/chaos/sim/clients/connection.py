"""One connection as gRPC keeps it: it connects, is pinged, breaks, and fails fast for a while.

Owns what a client of the SDK can see of a peer that is dead, stands still or is cut off, with the
SDK's own times for it. The messages themselves travel over the simulated network.
"""

import asyncio
from typing import Final, Protocol

import grpc
from grpc import aio

from tidelog.chaos.sim.base.places import Place
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.ports.fabric import Fabric
from tidelog.chaos.sim.world.process import Process
from tidelog.client.shared.asking import ADDRESS_TIMEOUT_MS
from tidelog.client.wire import calls as wire
from tidelog.ports.network import DeathHint, PeerUnreachable
from tidelog.ports.real.network.errors import encode_error, status_of
from tidelog.ports.real.network.options import CLIENT_PING_MS, PING_TIMEOUT_MS
from tidelog.wire.errors import ErrorCode, TidelogError

_MS: Final = 1_000_000
SILENCE_NS: Final = (CLIENT_PING_MS + PING_TIMEOUT_MS) * _MS
"""A peer that answers no ping for so long is given up, with all calls to it."""
_CONNECT_NS: Final = ADDRESS_TIMEOUT_MS * _MS
_LOOK_NS: Final = 100 * _MS
_AGAIN_NS: Final = (100 * _MS, 1_000 * _MS)
"""How long a failure to connect is repeated to callers: at first, and at most."""
NEVER_CONNECTED: Final = "failed to connect to all addresses; last error: UNKNOWN: "


class Ended(Protocol):
    """A call that is open on a connection."""

    def fail(self, error: aio.AioRpcError) -> None:
        """The connection broke."""
        ...


class Connection:
    """Of one channel: idle, being made, or there."""

    def __init__(self, fabric: Fabric, process: Process, address: str) -> None:
        self.address = address
        self.process = process
        self.open_calls: dict[Ended, None] = {}
        self._fabric = fabric
        self._peer: Place | None = None
        self._making: asyncio.Task[None] | None = None
        self._pinging: asyncio.Task[None] | None = None
        self._failure: aio.AioRpcError | None = None
        self._again_at_ns = 0
        self._failures = 0

    async def ready(self) -> None:
        """Made, if it is not there; raises why it cannot be."""
        if self._is_there:
            return
        if self._failure is not None and self._fabric.loop.now_ns < self._again_at_ns:
            raise copy_of(self._failure)
        if self._making is None or self._making.done():
            self._making = self._fabric.loop.create_task(self._make(), name="connect")
        await asyncio.shield(self._making)
        if self._failure is not None:
            raise copy_of(self._failure)

    def enter(self, call: Ended) -> None:
        """A call is open from now on: the peer is pinged."""
        self.open_calls[call] = None
        if self._pinging is None or self._pinging.done():
            self._pinging = self._fabric.loop.create_task(self._ping(), name="ping")

    def leave(self, call: Ended) -> None:
        """It is over."""
        self.open_calls.pop(call, None)

    @property
    def _is_there(self) -> bool:
        endpoint = self._fabric.endpoint_at(self.address)
        return self._peer is not None and endpoint is not None and endpoint.place is self._peer

    @property
    def _is_silent(self) -> bool:
        """Whether nothing comes back from the address, not even a refusal."""
        owner = self._fabric.owner_of(self.address)
        if owner is None:
            return False
        cuts, here = self._fabric.cuts, self.process.name
        is_cut = (here, owner.name) in cuts or (owner.name, here) in cuts
        is_paused = isinstance(owner, Process) and owner.is_paused and not owner.is_dead
        return is_cut or is_paused or owner.is_machine_down

    async def _make(self) -> None:
        fabric = self._fabric
        self._peer, until_ns = None, fabric.loop.now_ns + _CONNECT_NS
        await sleep_ns(fabric.loop, 2 * fabric.delay_ns(self.process.name, self.address))
        while self._is_silent and fabric.loop.now_ns < until_ns:
            await sleep_ns(fabric.loop, _LOOK_NS)
        endpoint = fabric.endpoint_at(self.address)
        if self._is_silent:
            self._fail("connection attempt timed out before receiving SETTINGS frame")
        elif endpoint is None:
            self._fail("connect: Connection refused (111)")
        else:
            self._peer, self._failure, self._failures = endpoint.place, None, 0

    def _fail(self, reason: str) -> None:
        first_ns, most_ns = _AGAIN_NS
        delay_ns = min(most_ns, first_ns << min(self._failures, 10))
        self._failures += 1
        self._again_at_ns = self._fabric.loop.now_ns + delay_ns
        details = f"{NEVER_CONNECTED}{self.address}: {reason}"
        self._failure = lost(grpc.StatusCode.UNAVAILABLE, details)

    async def _ping(self) -> None:
        loop = self._fabric.loop
        heard_ns = loop.now_ns
        while self.open_calls:
            await sleep_ns(loop, _LOOK_NS)
            if not self._is_silent:
                heard_ns = loop.now_ns
            elif loop.now_ns - heard_ns >= SILENCE_NS:
                self._peer, heard_ns = None, loop.now_ns
                for call in list(self.open_calls):
                    call.fail(lost(grpc.StatusCode.UNAVAILABLE, "ping timeout"))


def lost(status: grpc.StatusCode, details: str) -> aio.AioRpcError:
    """What gRPC itself raises."""
    return aio.AioRpcError(status, aio.Metadata(), aio.Metadata(), details)


def copy_of(error: aio.AioRpcError) -> aio.AioRpcError:
    """With a traceback of its own."""
    trailing = error.trailing_metadata() or aio.Metadata()
    return aio.AioRpcError(error.code(), aio.Metadata(), trailing, error.details())


def told_by(error: TidelogError) -> aio.AioRpcError:
    """What the network port has raised, as gRPC would: an answer has a trailer, a break has not."""
    if isinstance(error, PeerUnreachable):
        if error.death_hint is DeathHint.NONE:
            return lost(grpc.StatusCode.UNAVAILABLE, f"recvmsg:{error.happened}")
        details = f"{NEVER_CONNECTED}connect: Connection refused (111)"
        return lost(grpc.StatusCode.UNAVAILABLE, details)
    if error.code is ErrorCode.CLOSED:
        return lost(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
    trailing = aio.Metadata((wire.ERROR_TRAILER, encode_error(error)))
    return aio.AioRpcError(status_of(error), aio.Metadata(), trailing, error.happened)
