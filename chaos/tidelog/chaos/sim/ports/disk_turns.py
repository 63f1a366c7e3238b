"""Work on a simulated disk that waits for its thread: one after the other, each takes its time.

Owns the queue of one thread. It must never let work take effect before its time is over, nor for a
process that has died.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar, cast

from tidelog.chaos.sim.base.loop import SimulatedLoop
from tidelog.chaos.sim.ports.clock import set_done
from tidelog.wire.errors import TidelogError

_T = TypeVar("_T")
Work = Callable[[bool], _T]
"""An effect on the medium; told whether its process died in the middle of it."""


class _Turn:
    def __init__(
        self,
        *,
        work: Callable[[bool], object],
        take_ns: Callable[[], int],
        done: asyncio.Future[None],
    ) -> None:
        self.work = work
        self.take_ns = take_ns
        """How long it takes, drawn when it begins."""
        self.done = done
        self.result: object = None


class Turns:
    """What waits for one thread."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._waiting: list[_Turn] = []

    async def take(self, work: Work[_T], take_ns: Callable[[], int]) -> _T:
        """Queue work. It takes effect even if the caller does not wait for it."""
        done: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        turn = _Turn(work=work, take_ns=take_ns, done=done)
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._begin()
        await asyncio.shield(done)
        return cast("_T", turn.result)

    async def finish(self) -> None:
        """Until all that waits has been done."""
        if self._waiting:
            with contextlib.suppress(TidelogError):
                await asyncio.shield(self._waiting[-1].done)

    def die(self) -> Work[object] | None:
        """Nothing of what waits is done any more; returns what was under way."""
        under_way = self._waiting[0].work if self._waiting else None
        self._waiting.clear()
        return under_way

    def _begin(self) -> None:
        turn = self._waiting[0]
        self._loop.call_at_ns(
            self._loop.now_ns + turn.take_ns(),
            self._end,
            turn,
            context=self._loop.world_context,
        )

    def _end(self, turn: _Turn) -> None:
        if not self._waiting or self._waiting[0] is not turn:
            return  # the process died meanwhile
        del self._waiting[0]
        try:
            turn.result = turn.work(False)
        except TidelogError as error:
            if not turn.done.done():
                turn.done.set_exception(error)
                turn.done.exception()
        else:
            set_done(turn.done)
        if self._waiting:
            self._begin()
