"""One unary call or stream under way: two pipes, and the handler's task between them.

    caller's End ── Pipe ──► server side ── handler task
         ▲                        │
         └───────── Pipe ◄────────┘

It must never tell one side what became of a frame at the other.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.base.places import Caller, Endpoint, Place
from tidelog.chaos.sim.ports.pipes import End, Frame, FrameKind, Pipe, as_answer, too_large
from tidelog.ports.certificates import CertificateNames
from tidelog.ports.network import (
    MESSAGE_BYTES_MAX,
    DeathHint,
    Method,
    PeerUnreachable,
    UnaryMethod,
)
from tidelog.ports.request_context import ANONYMOUS, NO_DEADLINE_NS, RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.chaos.sim.ports.fabric import Fabric

KEEPALIVE_NS: Final = 10_000_000_000
_NOTICE_NS: Final = (20_000, 800_000)
_LATE_NS_MAX: Final = 5_000_000_000
_MOMENT_NS_MAX: Final = 500_000
"""From the end that a handler may read after a break to the cancellation of the handler."""
_CANCEL_STEPS_MAX: Final = 24


class Exchange:
    """One call or stream."""

    def __init__(
        self,
        fabric: "Fabric",
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
        self.fabric = fabric
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
        self.fabric.forget(self)
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
        loop = self.fabric.loop
        loop.call_at_ns(loop.now_ns + KEEPALIVE_NS, self._on_keepalive, context=loop.world_context)

    def _on_keepalive(self) -> None:
        cuts = [
            pipe
            for pipe in (self._there, self._back)
            if (pipe.source, pipe.target) in self.fabric.cuts
        ]
        if not cuts or self.client.is_over:
            return
        for pipe in (self._there, self._back):
            # The connection is gone in both directions, also if one of them was whole.
            pipe.break_off(0 if pipe in cuts else self._some_prefix(pipe), lambda: None)
        self._fail_later("no answer to keepalive", DeathHint.NONE)
        self._cancel_later()

    def _some_prefix(self, pipe: Pipe) -> int:
        if pipe.is_holding:
            return pipe.queued
        return self.fabric.random.between(0, pipe.queued)

    def _fail_later(self, happened: str, hint: DeathHint) -> None:
        self._fail_at(self.fabric.random.between(*_NOTICE_NS), happened, hint)

    def _fail_at(self, delay_ns: int, happened: str, hint: DeathHint) -> None:
        error = PeerUnreachable(tried=self.tried, happened=happened, death_hint=hint)
        loop = self.fabric.loop
        loop.call_at_ns(loop.now_ns + delay_ns, self.client.fail, error, context=loop.world_context)

    def _cancel_later(self) -> None:
        loop, faults = self.fabric.loop, self.fabric.faults
        delay_ns = self.fabric.random.between(*_NOTICE_NS)
        if faults.fires(FaultKind.LATE_PROCESSING):
            delay_ns = self.fabric.random.below(_LATE_NS_MAX)
            if self.is_served:
                faults.took_effect(FaultKind.LATE_PROCESSING, self.method)
        if self.fabric.random.chance(0.5):
            ended_ns = loop.now_ns + max(0, delay_ns - self.fabric.random.below(_MOMENT_NS_MAX))
            loop.call_at_ns(ended_ns, self.server.end_by_break, context=loop.world_context)
        loop.call_at_ns(loop.now_ns + delay_ns, self._cancel_now, context=loop.world_context)

    def _cancel_now(self) -> None:
        if self._task is not None and not self._task.done():
            self.fabric.trace.note(self.method, "net:cancel_handler")
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
        self.fabric.trace.note(self._endpoint.place.name, "net:request", self.method)
        method = self._endpoint.methods.get(self.method)
        if frame.kind is FrameKind.MESSAGE and isinstance(method, UnaryMethod):
            self._there.release(frame)
            self._start(self._endpoint, method, frame.message)
        else:
            self.server.take(frame)
            if self._task is None and frame.kind is FrameKind.MESSAGE:
                self._there.release(frame)
        self.fabric.maybe_break(self)

    def _accept(self) -> None:
        fabric = self.fabric
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
        owner = self.fabric.owner_of(self.peer)
        if owner is not None and owner.is_machine_down:
            self._fail_at(KEEPALIVE_NS, "no answer while connecting", DeathHint.NONE)
            return
        hint = DeathHint.REFUSED
        if self.fabric.faults.fires(FaultKind.CLOSED_EARLY):
            self.fabric.faults.took_effect(FaultKind.CLOSED_EARLY, self.peer)
            hint = DeathHint.CLOSED_EARLY
        self._fail_later("the connection was not accepted", hint)

    def _start(self, endpoint: Endpoint, method: Method, message: bytes) -> None:
        fabric = self.fabric
        task = endpoint.place.start_task(
            self._serve(endpoint, method, message), f"handler-{self.number}"
        )
        self._task = task
        if fabric.faults.fires(FaultKind.CANCEL_HANDLER):
            steps = fabric.random.below(1 + fabric.random.below(_CANCEL_STEPS_MAX))
            fabric.loop.cancel_after(task, steps, self._on_cancelled_at_step)

    def _on_cancelled_at_step(self) -> None:
        self.fabric.faults.took_effect(FaultKind.CANCEL_HANDLER, self.method)
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
            self.fabric.report_bug(f"the handler of {self.method}", error)
            failure = TidelogError(
                ErrorCode.UNKNOWN, tried=f"serve {self.method}", happened="the handler failed"
            )
            self._back.put(Frame(FrameKind.ERROR, error=failure))
        else:
            self._back.put(Frame(FrameKind.END))

    def _reply(self, frame: Frame) -> None:
        self.tap_reply(frame.message)
        self._back.put(frame)

    def tap_request(self, message: bytes) -> None:
        """Tell the taps of a message that the caller sends, and perhaps hold it."""
        for tap in self.fabric.taps:
            tap(self, "request", message)
        self.fabric.hold(self._there, self.method)

    def tap_reply(self, message: bytes) -> None:
        """The same of a message that the handler sends."""
        for tap in self.fabric.taps:
            tap(self, "reply", message)
        self.fabric.hold(self._back, self.method)

    def _request_context(self, endpoint: Endpoint) -> RequestContext:
        deadline_ns = NO_DEADLINE_NS
        if self._timeout_ms is not None:
            deadline_ns = self.fabric.loop.now_ns + self._timeout_ms * 1_000_000
        # Each machine has a certificate that is for it; only an encrypted listener asks.
        is_asked = endpoint.listener.requires_client_certificate
        subject = f"CN={self.caller.place.name}" if is_asked else ""
        return RequestContext(
            principal=ANONYMOUS,
            listener=endpoint.listener.name,
            client_id=self.caller.client_id,
            address=self.caller.address,
            deadline_ns=deadline_ns,
            certificate=CertificateNames(subject=subject),
        )

    def _on_reply_frame(self, frame: Frame) -> None:
        self.fabric.trace.note(
            self.caller.place.name, "net:reply", f"{self.method} {frame.kind.value}"
        )
        self.client.take(frame)
        if not self.client.is_over:
            self.fabric.maybe_break(self)


class HandlerEnd:
    """The handler's end of a stream."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def send(self, message: bytes) -> None:
        """Queue a message; waits while the caller is slow."""
        self._exchange.tap_reply(message)
        await self._exchange.server.send(message)

    async def receive(self) -> bytes | None:
        """The caller's next message; None after it has ended its sending, or after a break."""
        return await self._exchange.server.receive()

    def let_go(self) -> None:
        """The last message that was received is done with."""
        # No memory is counted here.

    async def end_sending(self) -> None:
        """A handler ends its sending by returning."""
        raise AssertionError("a handler returns to end its stream")

    def cancel(self) -> None:
        """Break the stream at once: the handler's task is cancelled and the caller told nothing."""
        self._exchange.server.cancel()
