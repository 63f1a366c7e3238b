"""Runs a pure engine on the user's loop: one task, its children in a scope, wakes for who waits.

Owns the life of an asyncio client: it starts with the first use, and ends with `close`. A bug in
here ends the client, and everybody who waits is told.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Final

from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError

_log = logging.getLogger("tidelog.client")
_LONGEST_S: Final = 3600.0


class Driver:
    """`on_turn` does what is due and tells when it wants to be called again, in nanoseconds.

    `on_end` is called once it is over, whatever ended it.
    """

    def __init__(
        self,
        name: str,
        on_turn: Callable[[], int | None],
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self._on_turn = on_turn
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        self._scope: TaskScope | None = None
        self._waiting: list[tuple[Coroutine[object, object, None], str]] = []
        """Children that were wanted before the scope was entered."""
        self._nudge: asyncio.Event | None = None
        self._ended: asyncio.Event | None = None
        self._changed: dict[asyncio.Future[None], None] = {}
        self.failure: TidelogError | None = None

    def start(self) -> None:
        """Begin, on the running loop; again: make sure that it is still this one."""
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._nudge, self._ended = asyncio.Event(), asyncio.Event()
            self._task = loop.create_task(self._run(), name=self._name)
            # One that is cancelled before its first step runs no line of `_run`.
            self._task.add_done_callback(lambda _: self._become_ended())
        elif self._task.get_loop() is not loop:
            raise TidelogError(
                ErrorCode.CONCURRENT_USE,
                tried=f"use an {self._name}",
                happened="it belongs to another event loop, on which it was first used",
                hint="make a client on each loop",
            )
        if self.failure is not None:
            raise self.failure

    @property
    def has_started(self) -> bool:
        """Whether it was ever used."""
        return self._task is not None

    def wake(self) -> None:
        """Something is due: run a turn soon."""
        if self._nudge is not None:
            self._nudge.set()

    def spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        """Run a child of the client."""
        if self._scope is None:
            self._waiting.append((work, name))
        else:
            self._scope.start(work, name=name)

    @property
    def scope(self) -> TaskScope:
        """Of the client's children."""
        assert self._scope is not None, f"the {self._name} runs"
        return self._scope

    def notify(self) -> None:
        """Whoever waits looks again."""
        waiting, self._changed = self._changed, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """Until `notify`, or the time is over: False."""
        waiter = asyncio.get_running_loop().create_future()
        self._changed[waiter] = None
        try:
            async with asyncio.timeout(min(max(0.0, timeout_s), _LONGEST_S)):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._changed.pop(waiter, None)
        if self.failure is not None:
            raise self.failure
        return True

    async def stop(self) -> None:
        """End all children."""
        if self._task is not None and self._ended is not None:
            self._task.cancel()
            await self._ended.wait()
        for work, _ in self._waiting:
            work.close()
        self._waiting.clear()

    async def _run(self) -> None:
        is_freed = False
        try:
            async with TaskScope() as scope:
                self._scope = scope
                for work, name in self._waiting:
                    scope.start(work, name=name)
                self._waiting.clear()
                try:
                    await self._turn_always()
                except GeneratorExit:
                    # Its loop was closed before, and nobody can wait for the children.
                    is_freed = True
                    raise
        except Exception as error:  # noqa: BLE001 - the client's supervisor
            if is_freed:
                return
            _log.exception("the %s failed", self._name)
            self.failure = TidelogError(
                ErrorCode.UNKNOWN,
                tried=f"run the {self._name}",
                happened=f"{type(error).__name__}: {error}",
                hint="this is a bug of the SDK: report it with the log",
            )
        finally:
            self._become_ended()

    def _become_ended(self) -> None:
        """Once; whoever waits is told."""
        assert self._ended is not None, "a client that ends has begun"
        if self._ended.is_set():
            return
        self._ended.set()
        self.notify()
        if self._on_end is not None:
            self._on_end()

    async def _turn_always(self) -> None:
        assert self._nudge is not None, "a client that runs can be woken"
        while True:
            self._nudge.clear()
            deadline_ns = self._on_turn()
            left_s = _LONGEST_S
            if deadline_ns is not None:
                left_s = min(left_s, (deadline_ns - time.monotonic_ns()) / 1e9)
            if left_s <= 0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(left_s):
                    await self._nudge.wait()
            except TimeoutError:
                continue
