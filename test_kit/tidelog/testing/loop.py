"""The event loop of a cluster's nodes, in a thread of its own, on which each node can stand still.

Every callback belongs to the node in whose context it was scheduled. While a node stands still its
callbacks and timers are kept; they run, in their order, when it goes on. Nobody else's wait. It
must never run anything of the user's: a test that hangs leaves the nodes alone.
"""

import asyncio
import contextvars
import gc
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from tidelog.wire.errors import ErrorCode, TidelogError

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

THREAD_NAME: Final = "tidelog-test-cluster"
END_S: Final = 10.0
"""What the thread may take to end once it is told to."""
TURNS_MAX: Final = 20
"""Given to gRPC at the end, to hear of calls that were cancelled."""


class Owner:
    """Whose callbacks they are: one node in one of its lives."""

    def __init__(self) -> None:
        self.is_paused = False
        self.kept: list[asyncio.Handle] = []
        """What fell due while it stood still."""


OWNER: Final[contextvars.ContextVar[Owner | None]] = contextvars.ContextVar("owner", default=None)
"""Of what is scheduled from here; None: the cluster's own business."""


class ClusterLoop(asyncio.SelectorEventLoop):
    """Runs everybody's callbacks but those of owners that stand still."""

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """In the next turn, or when its owner goes on."""
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is None or not owner.is_paused:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        owner.kept.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """At that time, or when its owner goes on after it."""
        due = _Due(self, callback, args)
        due.timer = super().call_at(when, due, context=context)
        return due.timer

    def pause(self, owner: Owner) -> None:
        """From now on its callbacks are kept."""
        owner.is_paused = True

    def resume(self, owner: Owner) -> None:
        """What was kept runs in its order, before anything newer."""
        owner.is_paused = False
        kept, owner.kept = owner.kept, []
        for handle in kept:
            super().call_soon(_run, handle)


class _Due:
    """A timer's callback: it may come due while its owner stands still, and be cancelled then."""

    __slots__ = ("_arguments", "_callback", "_loop", "timer")

    def __init__(
        self, loop: ClusterLoop, callback: Callable[..., object], arguments: tuple[Any, ...]
    ) -> None:
        self._loop = loop
        self._callback = callback
        self._arguments = arguments
        self.timer: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        owner = OWNER.get()
        if owner is not None and owner.is_paused:
            owner.kept.append(asyncio.Handle(self, (), self._loop))
            return
        # Without the reference the two would keep each other until a collection.
        timer, self.timer = self.timer, None
        if timer is not None and not timer.cancelled():
            self._callback(*self._arguments)


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()


class LoopThread:
    """A thread with a running ClusterLoop, from `start` to `stop`."""

    def __init__(self) -> None:
        self.loop = ClusterLoop()
        self.loop.set_exception_handler(_on_unhandled)
        self._thread = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)

    def start(self) -> None:
        """Run."""
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Run a coroutine over there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, _T], timeout_s: float, tried: str) -> _T:
        """The same, and wait for its outcome."""
        future = self.submit(work)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED, tried=tried, happened=f"it took over {timeout_s:g} s"
            ) from None

    async def run_beside(self, work: Coroutine[Any, Any, _T], timeout_s: float, tried: str) -> _T:
        """The same for a caller with a loop of its own, which goes on meanwhile."""
        future = asyncio.wrap_future(self.submit(work))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED, tried=tried, happened=f"it took over {timeout_s:g} s"
            ) from None

    def stop(self) -> None:
        """End the loop and the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(END_S)
        if self._thread.is_alive():
            _log.error("test_cluster_thread_hangs seconds=%g", END_S)

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(_settle())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()


async def _settle() -> None:
    """Let go of gRPC's objects here: what it has to say of them later has nowhere to go."""
    gc.collect()
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)


def _on_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """gRPC serves all loops of a process from each of them, and trips over one that was closed."""
    handle, error = context.get("handle"), context.get("exception")
    if isinstance(error, RuntimeError | BlockingIOError) and "_handle_events" in repr(handle):
        return
    loop.default_exception_handler(context)
