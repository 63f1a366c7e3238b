"""The network between simulated processes: who listens where, what is cut, what is under way.

Theory of operation. An exchange opens with a frame to an address; what listens there when the
frame arrives starts the handler, as a task of its own process. Frames to a cut link wait in their
pipe until the link heals or keepalive breaks the exchange. A dead process resets its connections;
a dead machine says nothing, so that its peers wait for keepalive or their deadlines.

It must never deliver a frame twice or out of order within one exchange; between exchanges any order
is possible.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from tidelog.chaos.sim.exchange import End, Frame, FrameKind, Pipe, as_answer, too_large
from tidelog.chaos.sim.faults import FaultKind, Faults
from tidelog.chaos.sim.loop import SimulatedLoop
from tidelog.chaos.sim.seeds import SeededRandom
from tidelog.chaos.sim.trace import Trace
from tidelog.ports.network import (
    MESSAGE_BYTES_MAX,
    DeathHint,
    Listener,
    Method,
    PeerUnreachable,
    UnaryMethod,
)
from tidelog.ports.request_context import ANONYMOUS, NO_DEADLINE_NS, RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError

_DELAY_NS: Final = (20_000, 800_000)
_LONG_DELAY_NS: Final = (1_000_000, 3_000_000_000)
_LATE_NS_MAX: Final = 5_000_000_000
KEEPALIVE_NS: Final = 10_000_000_000
_CANCEL_STEPS_MAX: Final = 24


class Place(Protocol):
    """A process, as the network sees it."""

    name: str
    is_dead: bool

    @property
    def is_machine_down(self) -> bool:
        """Whether even the operating system is silent."""
        ...

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine as part of the process."""
        ...


class Endpoint:
    """Something that listens."""

    def __init__(
        self, place: Place, address: str, listener: Listener, methods: dict[str, Method]
    ) -> None:
        self.place = place
        self.address = address
        self.listener = listener
        self.methods = methods


class Caller:
    """Where calls come from: one Network port."""

    def __init__(self, place: Place, address: str, client_id: str) -> None:
        self.place = place
        self.address = address
        self.client_id = client_id


Tap = Callable[["Exchange", str, bytes], None]
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
        self.bugs: list[str] = []
        """What handlers raised that they must never raise."""
        self._endpoints: dict[str, Endpoint] = {}
        self._owners: dict[str, Place] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._cuts: dict[tuple[str, str], FaultKind] = {}
        self._made = 0
        self._ports_taken = 0

    # -- the wire, for pipes -------------------------------------------------------------------

    def delay_ns(self, source: str, target: str) -> int:
        """How long the next frame travels."""
        if self.faults.fires(FaultKind.NETWORK_DELAY):
            delay = self.random.between(*_LONG_DELAY_NS)
            self.faults.took_effect(FaultKind.NETWORK_DELAY, f"{source}>{target}", f"{delay} ns")
            return delay
        return self.random.between(*_DELAY_NS)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets through; that somebody tried is when a partition is felt."""
        kind = self._cuts.get((source, target))
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

    def exchanges(self) -> "list[Exchange]":
        """What is under way, oldest first."""
        return list(self._exchanges.values())

    # -- calling -------------------------------------------------------------------------------

    def open(self, caller: Caller, peer: str, method: str, timeout_ms: int | None) -> "Exchange":
        """Begin an exchange."""
        self._made += 1
        exchange = Exchange(self, self._made, caller, peer, method, timeout_ms)
        self._exchanges[exchange.number] = exchange
        return exchange

    def forget(self, exchange: "Exchange") -> None:
        """The caller has what it will ever get."""
        self._exchanges.pop(exchange.number, None)

    # -- faults --------------------------------------------------------------------------------

    def cut(self, source: str, target: str, kind: FaultKind) -> None:
        """Let nothing through from one process to another; keepalive breaks what waits long."""
        self._cuts[source, target] = kind
        self.trace.note(f"{source}>{target}", "net:cut")
        for exchange in self.exchanges():
            if exchange.is_between(source, target):
                exchange.watch()

    def heal(self) -> None:
        """Everything gets through again, also what waited."""
        if not self._cuts:
            return
        self._cuts.clear()
        self.trace.note("network", "net:heal")
        for exchange in self.exchanges():
            exchange.flow()

    def maybe_break(self, exchange: "Exchange") -> None:
        """By seed: the connection breaks, with everything on it."""
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
        self.trace.note(subject, "bug", type(error).__name__)


class Exchange:
    """One call or stream."""

    def __init__(
        self,
        fabric: Fabric,
        number: int,
        caller: Caller,
        peer: str,
        method: str,
        timeout_ms: int | None,
    ) -> None:
        self.number = number
        self.caller = caller
        self.peer = peer
        self.method = method
        self.server_place: Place | None = fabric.owner_of(peer)
        self._fabric = fabric
        self._timeout_ms = timeout_ms
        self._task: asyncio.Task[None] | None = None
        self._endpoint: Endpoint | None = None
        target = peer if self.server_place is None else self.server_place.name
        self.tried = f"{'stream' if timeout_ms is None else 'call'} {method} at {peer}"
        self.client = End(fabric, self.tried, is_caller=True)
        self.server = End(fabric, f"serve {method}", is_caller=False)
        there = Pipe(fabric, caller.place.name, target, self._on_request_frame)
        back = Pipe(fabric, target, caller.place.name, self._on_reply_frame)
        self.client.connect(there, back)
        self.server.connect(back, there)
        self._there = there
        self._back = back
        self.client.on_give_up = self.abandon
        self.client.on_final = lambda: fabric.forget(self)
        self.server.on_give_up = self._cancel_by_handler
        there.put(Frame(FrameKind.OPEN))
        if fabric.is_cut(caller.place.name, target):
            self.watch()

    def is_between(self, source: str, target: str) -> bool:
        """Whether one of the pipes goes there."""
        return any((p.source, p.target) == (source, target) for p in (self._there, self._back))

    @property
    def is_served(self) -> bool:
        """Whether a handler is at work."""
        return self._task is not None and not self._task.done()

    def belongs_to(self, endpoint: Endpoint) -> bool:
        """Whether this endpoint accepted it."""
        return self._endpoint is endpoint

    def flow(self) -> None:
        """After a heal."""
        self._there.flow()
        self._back.flow()

    # -- ends that come from outside -----------------------------------------------------------

    def abandon(self) -> None:
        """The caller is gone; the handler hears of it some time, or late."""
        self._fabric.forget(self)
        self._there.break_off(self._some_prefix(self._there), lambda: None)
        self._back.break_off(0, lambda: None)
        self._cancel_later()

    def break_off(self, happened: str) -> None:
        """The connection breaks: any suffix is lost in both directions."""
        self._there.break_off(self._some_prefix(self._there), lambda: None)
        self._back.break_off(
            self._some_prefix(self._back), lambda: self._fail_later(happened, DeathHint.NONE)
        )
        self._cancel_later()

    def on_server_death(self, *, is_silent: bool) -> None:
        """The serving process died; its answers on the way may still come."""
        self._there.break_off(0, lambda: None)
        if not is_silent:
            self._back.break_off(
                self._some_prefix(self._back),
                lambda: self._fail_later("the connection was reset", DeathHint.NONE),
            )
            return
        self._back.break_off(0, lambda: None)
        self._fail_at(KEEPALIVE_NS, "no answer to keepalive", DeathHint.NONE)

    def watch(self) -> None:
        """A link is cut: if it still is when keepalive ends, both sides give up."""
        loop = self._fabric.loop
        loop.call_at_ns(loop.now_ns + KEEPALIVE_NS, self._on_keepalive, context=loop.world_context)

    def _on_keepalive(self) -> None:
        cuts = [
            pipe
            for pipe in (self._there, self._back)
            if (pipe.source, pipe.target) in self._fabric._cuts
        ]
        if not cuts or self.client.is_over:
            return
        for pipe in cuts:
            pipe.break_off(0, lambda: None)
        self._fail_later("no answer to keepalive", DeathHint.NONE)
        self._cancel_later()

    def _some_prefix(self, pipe: Pipe) -> int:
        return self._fabric.random.between(0, pipe.queued)

    def _fail_later(self, happened: str, hint: DeathHint) -> None:
        self._fail_at(self._fabric.random.between(*_DELAY_NS), happened, hint)

    def _fail_at(self, delay_ns: int, happened: str, hint: DeathHint) -> None:
        error = PeerUnreachable(tried=self.tried, happened=happened, death_hint=hint)
        loop = self._fabric.loop
        loop.call_at_ns(loop.now_ns + delay_ns, self.client.fail, error, context=loop.world_context)

    def _cancel_later(self) -> None:
        loop, faults = self._fabric.loop, self._fabric.faults
        delay_ns = self._fabric.random.between(*_DELAY_NS)
        if faults.fires(FaultKind.LATE_PROCESSING):
            delay_ns = self._fabric.random.below(_LATE_NS_MAX)
            if self.is_served:
                faults.took_effect(FaultKind.LATE_PROCESSING, self.method)
        loop.call_at_ns(loop.now_ns + delay_ns, self._cancel_now, context=loop.world_context)

    def _cancel_now(self) -> None:
        if self._task is not None and not self._task.done():
            self._fabric.trace.note(self.method, "net:cancel_handler")
            self._task.cancel()

    def _cancel_by_handler(self) -> None:
        """The handler broke its own stream."""
        self._back.break_off(
            0, lambda: self._fail_later("the peer broke the stream", DeathHint.NONE)
        )
        self._cancel_now()

    # -- the serving side ----------------------------------------------------------------------

    def _on_request_frame(self, frame: Frame) -> None:
        if frame.kind is FrameKind.OPEN:
            self._accept()
            return
        if self._endpoint is None:
            return
        self._fabric.trace.note(self._endpoint.place.name, "net:request", self.method)
        method = self._endpoint.methods.get(self.method)
        if frame.kind is FrameKind.MESSAGE and isinstance(method, UnaryMethod):
            self._there.release(frame)
            self._start(self._endpoint, method, frame.message)
        else:
            self.server.take(frame)
            if self._task is None and frame.kind is FrameKind.MESSAGE:
                self._there.release(frame)
        self._fabric.maybe_break(self)

    def _accept(self) -> None:
        fabric = self._fabric
        endpoint = fabric.endpoint_at(self.peer)
        if endpoint is None:
            self._refuse()
            return
        self._endpoint = endpoint
        self.server_place = endpoint.place
        method = endpoint.methods.get(self.method)
        if method is None:
            error = TidelogError(
                ErrorCode.NOT_IMPLEMENTED, tried=self.tried, happened="there is no such method"
            )
            self._back.put(Frame(FrameKind.ERROR, error=error))
        elif not isinstance(method, UnaryMethod):
            self._start(endpoint, method, b"")

    def _refuse(self) -> None:
        """Nothing listens: say so, unless the machine itself is silent."""
        owner = self._fabric.owner_of(self.peer)
        if owner is not None and owner.is_machine_down:
            self._fail_at(KEEPALIVE_NS, "no answer while connecting", DeathHint.NONE)
            return
        hint = DeathHint.REFUSED
        if self._fabric.faults.fires(FaultKind.CLOSED_EARLY):
            self._fabric.faults.took_effect(FaultKind.CLOSED_EARLY, self.peer)
            hint = DeathHint.CLOSED_EARLY
        self._fail_later("the connection was not accepted", hint)

    def _start(self, endpoint: Endpoint, method: Method, message: bytes) -> None:
        fabric = self._fabric
        task = endpoint.place.start_task(
            self._serve(endpoint, method, message), f"handler-{self.number}"
        )
        self._task = task
        if fabric.faults.fires(FaultKind.CANCEL_HANDLER):
            steps = fabric.random.below(1 + fabric.random.below(_CANCEL_STEPS_MAX))
            fabric.loop.cancel_after(task, steps, self._on_cancelled_at_step)

    def _on_cancelled_at_step(self) -> None:
        self._fabric.faults.took_effect(FaultKind.CANCEL_HANDLER, self.method)
        self.break_off("the connection was reset")

    async def _serve(self, endpoint: Endpoint, method: Method, message: bytes) -> None:
        """Run a handler; whatever it raises becomes the end of this exchange and nothing else."""
        try:
            if isinstance(method, UnaryMethod):
                reply = await method.handler(self._request_context(endpoint), message)
                if len(reply) > MESSAGE_BYTES_MAX:
                    raise too_large(f"answer {self.method}", len(reply))
                self._reply(Frame(FrameKind.MESSAGE, reply))
            else:
                stream = HandlerEnd(self)
                await method.handler(self._request_context(endpoint), stream)
        except TidelogError as error:
            self._back.put(Frame(FrameKind.ERROR, error=as_answer(error)))
        except Exception as error:  # noqa: BLE001 - stands for the supervisor of the real adapter
            self._fabric.report_bug(f"the handler of {self.method}", error)
            failure = TidelogError(
                ErrorCode.UNKNOWN, tried=f"serve {self.method}", happened="the handler failed"
            )
            self._back.put(Frame(FrameKind.ERROR, error=failure))
        else:
            self._back.put(Frame(FrameKind.END))

    def _reply(self, frame: Frame) -> None:
        for tap in self._fabric.taps:
            tap(self, "reply", frame.message)
        self._back.put(frame)

    def tap_request(self, message: bytes) -> None:
        """Tell the taps of a message that the caller sends."""
        for tap in self._fabric.taps:
            tap(self, "request", message)

    def _request_context(self, endpoint: Endpoint) -> RequestContext:
        deadline_ns = NO_DEADLINE_NS
        if self._timeout_ms is not None:
            deadline_ns = self._fabric.loop.now_ns + self._timeout_ms * 1_000_000
        return RequestContext(
            principal=ANONYMOUS,
            listener=endpoint.listener.name,
            client_id=self.caller.client_id,
            address=self.caller.address,
            deadline_ns=deadline_ns,
        )

    def _on_reply_frame(self, frame: Frame) -> None:
        self._fabric.trace.note(
            self.caller.place.name, "net:reply", f"{self.method} {frame.kind.value}"
        )
        self.client.take(frame)
        if not self.client.is_over:
            self._fabric.maybe_break(self)


class HandlerEnd:
    """The handler's end of a stream."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def send(self, message: bytes) -> None:
        """Queue a message; waits while the caller is slow."""
        for tap in self._exchange._fabric.taps:
            tap(self._exchange, "reply", message)
        await self._exchange.server.send(message)

    async def receive(self) -> bytes | None:
        """The caller's next message; None after it has ended its sending."""
        return await self._exchange.server.receive()

    async def end_sending(self) -> None:
        """A handler ends its sending by returning."""
        raise AssertionError("a handler returns to end its stream")

    def cancel(self) -> None:
        """Break the stream at once: the handler's task is cancelled and the caller told nothing."""
        self._exchange.server.cancel()


def _cannot_bind(listener: Listener, reason: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"listen on {listener.bind} (listener {listener.name})",
        happened=reason,
        hint="Choose another port or address for the listener, or stop what uses it.",
    )
