"""The network between simulated processes: who listens where, what is cut, what is under way.

Theory of operation. An exchange opens with a frame to an address; what listens there when the
frame arrives starts the handler, as a task of its own process. Frames to a cut link wait in their
pipe until the link heals or keepalive breaks the exchange. A dead process resets its connections;
a dead machine says nothing, so that its peers wait for keepalive or their deadlines.

It must never deliver a frame twice or out of order within one exchange; between exchanges any order
is possible.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.loop import SimulatedLoop
from tidelog.chaos.sim.base.places import Caller, Endpoint, Place
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.ports.exchange import Exchange
from tidelog.chaos.sim.ports.pipes import Pipe
from tidelog.ports.network import Listener, Method
from tidelog.wire.errors import ErrorCode, TidelogError

DELAY_NS: Final = (20_000, 800_000)
_LONG_DELAY_NS: Final = (1_000_000, 3_000_000_000)
_HELD_NS: Final = (300_000_000, 6_000_000_000)

Tap = Callable[[Exchange, str, bytes], None]
"""Told of every message that a side sends: exchange, `request` or `reply`, bytes."""


class Fabric:
    """All connections of a world."""

    def __init__(
        self, loop: SimulatedLoop, random: SeededRandom, faults: Faults, trace: Trace
    ) -> None:
        self.loop = loop
        self.random = random
        self.faults = faults
        self.trace = trace
        self.taps: list[Tap] = []
        self.held_methods: frozenset[str] = frozenset()
        """Names of methods of which a request or an answer may be held, and let go much later."""
        self.bugs: list[str] = []
        """What handlers raised that they must never raise."""
        self._endpoints: dict[str, Endpoint] = {}
        self._owners: dict[str, Place] = {}
        self._exchanges: dict[int, Exchange] = {}
        self.cuts: dict[tuple[str, str], FaultKind] = {}
        self._made = 0
        self._ports_taken = 0

    # -- the wire, for pipes -------------------------------------------------------------------

    def delay_ns(self, source: str, target: str) -> int:
        """How long the next frame travels; within a machine no network is in between."""
        if source == target:
            return self.random.between(*DELAY_NS)
        if self.faults.fires(FaultKind.NETWORK_DELAY):
            delay = self.random.between(*_LONG_DELAY_NS)
            self.faults.took_effect(FaultKind.NETWORK_DELAY, f"{source}>{target}", f"{delay} ns")
            return delay
        return self.random.between(*DELAY_NS)

    def hold(self, pipe: Pipe, method: str) -> None:
        """By seed: the next message of the pipe stays on its way for long, whoever gives it up."""
        name = method.rpartition("/")[2]
        if name not in self.held_methods or not self.faults.fires(FaultKind.HELD_MESSAGE):
            return
        subject = f"{pipe.source}>{pipe.target}"

        def on_let_go() -> None:
            self.faults.took_effect(FaultKind.HELD_MESSAGE, subject, name)

        pipe.hold_next(self.random.between(*_HELD_NS), on_let_go)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets through; that somebody tried is when a partition is felt."""
        kind = self.cuts.get((source, target))
        if kind is None:
            return False
        self.faults.took_effect(kind, f"{source}>{target}")
        return True

    async def maybe_yield(self) -> None:
        """Let others run first, or not."""
        if self.random.unit() < 0.3:
            await asyncio.sleep(0)

    # -- listening -----------------------------------------------------------------------------

    def bind(self, place: Place, listener: Listener, methods: dict[str, Method]) -> Endpoint:
        """Listen; an address that is taken or malformed raises UNAVAILABLE."""
        host, colon, port = listener.bind.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65535:
            raise _cannot_bind(listener, "the address is not `host:port`")
        if int(port) == 0:
            self._ports_taken += 1
            port = str(20_000 + self._ports_taken)
        address = f"{host}:{port}"
        if address in self._endpoints:
            raise _cannot_bind(listener, "the address is in use")
        endpoint = Endpoint(place, address, listener, methods)
        self._endpoints[address] = endpoint
        self._owners[address] = place
        return endpoint

    def unbind(self, endpoint: Endpoint) -> None:
        """Accept nothing new."""
        if self._endpoints.get(endpoint.address) is endpoint:
            del self._endpoints[endpoint.address]

    def endpoint_at(self, address: str) -> Endpoint | None:
        """Who listens there now."""
        return self._endpoints.get(address)

    def owner_of(self, address: str) -> Place | None:
        """Who listens or last listened there."""
        return self._owners.get(address)

    def exchanges(self) -> list[Exchange]:
        """What is under way, oldest first."""
        return list(self._exchanges.values())

    # -- calling -------------------------------------------------------------------------------

    def open(self, caller: Caller, peer: str, method: str, timeout_ms: int | None) -> Exchange:
        """Begin an exchange."""
        self._made += 1
        exchange = Exchange(self, self._made, caller, peer, method, timeout_ms)
        self._exchanges[exchange.number] = exchange
        return exchange

    def forget(self, exchange: Exchange) -> None:
        """The caller has what it will ever get."""
        self._exchanges.pop(exchange.number, None)

    # -- faults --------------------------------------------------------------------------------

    def cut(self, source: str, target: str, kind: FaultKind) -> None:
        """Let nothing through from one process to another; keepalive breaks what waits long."""
        self.cuts[source, target] = kind
        self.trace.note(f"{source}>{target}", "net:cut")
        for exchange in self.exchanges():
            if exchange.is_between(source, target):
                exchange.watch()

    def heal(self) -> None:
        """Everything gets through again, also what waited."""
        if not self.cuts:
            return
        self.cuts.clear()
        self.trace.note("network", "net:heal")
        for exchange in self.exchanges():
            exchange.flow()

    def maybe_break(self, exchange: Exchange) -> None:
        """By seed: the connection breaks, with everything on it; never one within a machine."""
        if exchange.caller.place.name == exchange.peer.partition(":")[0]:
            return
        if not self.faults.fires(FaultKind.BREAK):
            return
        self.faults.took_effect(FaultKind.BREAK, f"{exchange.caller.place.name}>{exchange.peer}")
        for other in self.exchanges():
            if other.caller is exchange.caller and other.peer == exchange.peer:
                other.break_off("the connection was reset")

    def on_death(self, place: Place) -> None:
        """A process is gone: nothing listens, its connections are reset or go silent."""
        for address in [a for a, e in self._endpoints.items() if e.place is place]:
            del self._endpoints[address]
        for exchange in self.exchanges():
            if exchange.caller.place is place:
                exchange.abandon()
            elif exchange.server_place is place:
                exchange.on_server_death(is_silent=place.is_machine_down)

    def report_bug(self, subject: str, error: BaseException) -> None:
        """A handler raised what it must never raise."""
        self.bugs.append(f"{subject}: {error!r}")
        self.trace.note(subject, "bug", name=type(error).__name__)


def _cannot_bind(listener: Listener, reason: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"listen on {listener.bind} (listener {listener.name})",
        happened=reason,
        hint="Choose another port or address for the listener, or stop what uses it.",
    )
