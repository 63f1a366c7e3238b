"""An asyncio event loop with virtual time: no selector, no executor, no order but the seed's.

Theory of operation. Callbacks that are ready lie in one list, from which the seed draws the next
one: whatever may happen in any order happens in every order, over enough seeds. When none is ready
time jumps to the next timer. Each step may cost some virtual time, so that timers also fall due
between steps. Every callback belongs to the process in whose context it was scheduled; the
callbacks of a dead process are dropped and those of a paused one are kept until it goes on.

    ready ── drawn by seed ──► run ──► trace.step(number)
      ▲                                    │
      └── timers (virtual nanoseconds) ◄───┘   nothing ready, nothing timed: Deadlock

It must never look at a real clock, and keeps every task and generator alive until `bury`, so that
neither reference counts nor the garbage collector decide when code runs.
"""

import asyncio
import contextvars
import gc
import heapq
import math
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, Protocol, TypeVar

from tidelog.chaos.sim.base.guard import breach, real_world_refused
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.base.trace import Trace
from tidelog.wire.errors import TidelogError

_T = TypeVar("_T")

START_NS: Final = 1_000_000_000_000
STEPS_MAX: Final = 3_000_000
_SWEEP_STEPS: Final = 4096

_REFUSED: Final = (
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "run_in_executor",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_sendall",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
)


class Deadlock(AssertionError):
    """Something is awaited that nothing will ever do."""


class Runaway(AssertionError):
    """The run took more steps than its budget: something spins."""


class Owner(Protocol):
    """What the loop has to know about a process."""

    name: str
    is_dead: bool
    is_paused: bool
    parked: list[asyncio.Handle]


PROCESS: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("process", default=None)
"""The process that owns whatever is scheduled from here; None: the world itself."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """`order` draws the next callback; None runs them in the order in which they got ready."""

    def __init__(
        self,
        trace: Trace,
        *,
        order: SeededRandom | None = None,
        step_cost_ns: int = 0,
        steps_max: int = STEPS_MAX,
    ) -> None:
        super().__init__()
        self.now_ns = START_NS
        self.steps = 0
        self.unhandled: list[str] = []
        """Exceptions that nobody caught: each one is a finding."""
        self.unretrieved: list[str] = []
        """Refusals that nobody waited for any more: a node would log them."""
        self.world_context = contextvars.Context()
        """Callbacks scheduled in it belong to no process and outlive every crash."""
        self._trace = trace
        trace.use_clock(lambda: self.now_ns)
        self._draw = None if order is None else order.unit
        self._step_cost_ns = step_cost_ns
        self._steps_max = steps_max
        self._queue: list[asyncio.Handle] = []
        self._timers: list[tuple[int, int, asyncio.Handle]] = []
        self._timers_made = 0
        self._tasks_made = 0
        self._owners: dict[asyncio.Task[Any], Owner | None] = {}
        self._numbers: dict[asyncio.Task[Any], int] = {}
        self._generators: list[object] = []
        self._cancel_at: dict[asyncio.Task[Any], tuple[int, Callable[[], None]]] = {}
        self._is_stopping = False
        self.set_debug(False)
        for name in _REFUSED:
            setattr(self, name, _refusal(name))

    # -- scheduling ----------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds."""
        return self.now_ns / 1e9

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Ready now, somewhere in the queue."""
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> NoReturn:
        """There are no other threads."""
        raise breach("call_soon_threadsafe")

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Not before `delay` virtual seconds from now."""
        when_ns = self.now_ns + max(0, math.ceil(delay * 1e9))
        return self.call_at_ns(when_ns, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Not before this virtual time in seconds."""
        return self.call_at_ns(math.ceil(when * 1e9), callback, *args, context=context)

    def call_at_ns(
        self,
        when_ns: int,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Not before this virtual time in nanoseconds."""
        handle = asyncio.TimerHandle(when_ns / 1e9, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when_ns, self._timers_made, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is skipped when its turn comes."""

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, _T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[_T]:
        """A task with a name that does not depend on what else ran in this interpreter."""
        self._tasks_made += 1
        owner = PROCESS.get() if context is None else context.get(PROCESS)
        name = name or f"task-{self._tasks_made}"
        if owner is not None:
            name = f"{owner.name}/{name}"
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._owners[task] = owner
        self._numbers[task] = self._tasks_made
        return task

    def cancel_after(
        self, task: asyncio.Task[Any], steps: int, on_cancel: Callable[[], None]
    ) -> None:
        """Cancel a task at its `steps`-th step from now, if it gets that far."""
        self._cancel_at[task] = (steps, on_cancel)

    def resume(self, owner: Owner) -> None:
        """Let a paused process go on with what it missed."""
        assert not owner.is_paused, "a process is marked as going on before it is resumed"
        self._queue.extend(owner.parked)
        owner.parked.clear()

    # -- running -------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to its end; the collector stays off, so that it decides nothing."""
        was_collecting = gc.isenabled()
        gc.disable()
        try:
            with real_world_refused():
                return self.run_until_complete(work)
        finally:
            if was_collecting:
                gc.enable()

    def stop(self) -> None:
        """Return from run_forever after the step in progress."""
        self._is_stopping = True
        super().stop()

    def _run_once(self) -> None:
        """Steps until somebody stops the loop (BaseEventLoop.run_forever calls this)."""
        while not self._is_stopping:
            if not self._queue or (self._step_cost_ns and self._is_timer_due()):
                self._take_due_timers()
            handle = self._take_next()
            if handle is None:
                continue
            self.steps += 1
            if self.steps >= self._steps_max:
                raise Runaway(f"{self.steps} steps without an end; {self._describe_tasks()}")
            if self.steps % _SWEEP_STEPS == 0:
                self._sweep()
            self._step(handle)
        self._is_stopping = False

    def _take_next(self) -> asyncio.Handle | None:
        """The next callback to run; None: the one drawn must not run (now)."""
        queue = self._queue
        if self._draw is None:
            handle = queue.pop(0)
        else:
            index = int(self._draw() * len(queue))
            handle = queue[index]
            queue[index] = queue[-1]
            queue.pop()
        if handle.cancelled():
            return None
        owner = _owner_of(handle)
        if owner is None:
            return handle
        if owner.is_dead:
            never_called(handle)
            return None
        if owner.is_paused:
            owner.parked.append(handle)
            return None
        return handle

    def _step(self, handle: asyncio.Handle) -> None:
        callback = handle._callback  # type: ignore[attr-defined]
        subject = getattr(callback, "__self__", None)
        self.now_ns += self._step_cost_ns
        if isinstance(subject, asyncio.Task):
            self._trace.step(self._numbers.get(subject, 0))
            handle._run()
            if subject in self._cancel_at:
                self._count_down(subject)
        else:
            self._trace.step(0)
            handle._run()

    def _count_down(self, task: asyncio.Task[Any]) -> None:
        steps, on_cancel = self._cancel_at[task]
        if task.done():
            del self._cancel_at[task]
        elif steps <= 0:
            del self._cancel_at[task]
            on_cancel()
            task.cancel()
        else:
            self._cancel_at[task] = (steps - 1, on_cancel)

    def _is_timer_due(self) -> bool:
        return bool(self._timers) and self._timers[0][0] <= self.now_ns

    def _take_due_timers(self) -> None:
        """Move the timers of the next instant to the queue; time jumps there."""
        while self._timers and _is_void(self._timers[0][2]):
            heapq.heappop(self._timers)
        if not self._timers:
            if not self._queue:
                raise Deadlock(f"nothing is ready and nothing is timed; {self._describe_tasks()}")
            return
        if not self._queue:
            self.now_ns = max(self.now_ns, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self.now_ns:
            handle = heapq.heappop(self._timers)[2]
            if not handle.cancelled():
                self._queue.append(handle)

    # -- what must not depend on the collector ---------------------------------------------------

    def _sweep(self) -> None:
        """Forget finished tasks."""
        for task in [task for task in self._owners if task.done()]:
            del self._owners[task]
            del self._numbers[task]
            self._cancel_at.pop(task, None)

    def _asyncgen_firstiter_hook(self, agen: object) -> None:
        self._generators.append(agen)

    def _describe_tasks(self) -> str:
        names = [
            task.get_name()
            for task, owner in self._owners.items()
            if not task.done() and (owner is None or not owner.is_dead)
        ]
        return f"waiting: {', '.join(names[:20])}"

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Remember what nobody caught; the run is judged by it."""
        if self.is_closed():
            return
        error = context.get("exception")
        if isinstance(error, TidelogError) and "never retrieved" in str(context.get("message")):
            self.unretrieved.append(f"{error!r}")
            return
        self.unhandled.append(f"{context.get('message')}: {error!r}")

    def bury(self) -> None:
        """After the run: end every coroutine that is left, where nothing can listen any more."""
        left = [task for task in self._owners if not task.done()]
        self._queue.clear()
        self._timers.clear()
        self._trace.is_closed = True
        self.close()
        with warnings.catch_warnings():
            # A task that never began had coroutines in its arguments; nobody will await them now.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close_coroutine(task)
        self._owners.clear()
        self._numbers.clear()
        self._generators.clear()
        self._queue.clear()


def never_called(handle: asyncio.Handle) -> None:
    """Its process died between a failure and the callback that would have looked at it: nobody is
    to blame for not having looked."""
    for argument in handle._args or ():
        if isinstance(argument, asyncio.Future) and argument.done() and not argument.cancelled():
            argument.exception()


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: object, **keywords: object) -> NoReturn:
        del arguments, keywords
        raise breach(name)

    return refuse


def _owner_of(handle: asyncio.Handle) -> Owner | None:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]
    return context.get(PROCESS)


def _is_void(handle: asyncio.Handle) -> bool:
    """Cancelled, or of a dead process: it must not move time."""
    if handle.cancelled():
        return True
    owner = _owner_of(handle)
    return owner is not None and owner.is_dead


def _close_coroutine(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    for _ in range(20):
        try:
            coroutine.close()
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - code of a dead process
            continue
        return
