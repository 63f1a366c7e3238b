"""Turns of those who have stored batches decoded by the broker: one at a time, so many waiting.

Owns how long decoding may hold up the loop, and who is next. A batch of a few kilobytes can hold
64 MiB, and each reader of it has it decoded again. Between two turns everything else runs, for as
long as the last one took.

The next turn is that of the caller that had the least of them lately, by time: who has cheap reads
never waits behind a row of dear ones. Callers that find too many of their own before them are
refused; where all together are too many, the one that had most gives way. Otherwise all of them
would hold their calls until these end.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from tidelog.ports import RequestContext
from tidelog.ports.request_context import ANONYMOUS
from tidelog.wire.errors import ErrorCode, TidelogError

T = TypeVar("T")
WAITING_MAX: Final = 256
WAITING_OF_CALLER_MAX: Final = 16
HALF_LIFE_SECONDS: Final = 10.0
"""After so long half as much of what a caller had counts."""
FORGOTTEN_SECONDS: Final = 0.001
"""Who has had less is as good as new."""
CALLERS_MAX: Final = 1_024
"""Remembered, beside those who wait."""


def caller_of(context: RequestContext) -> str:
    """Whose turns are counted together: a principal's, else a connection's."""
    return context.address if context.principal == ANONYMOUS else context.principal


class _Caller(msgspec.Struct):
    """One that waits or had turns lately."""

    waiting: deque[asyncio.Future[None]] = msgspec.field(default_factory=deque)
    used_s: float = 0.0
    used_at_s: float = 0.0

    def use(self, now_s: float) -> float:
        """What it had, as it counts now."""
        return self.used_s * math.exp2((self.used_at_s - now_s) / HALF_LIFE_SECONDS)


class DecodeTurns:
    """Of one broker."""

    def __init__(self, time_s: Callable[[], float] | None = None) -> None:
        self._time_s = time_s or (lambda: asyncio.get_running_loop().time())
        self._callers: dict[str, _Caller] = {}
        self._is_taken = False
        self._waiting = 0

    async def run(self, decode: Callable[[], T], *, caller: str, tried: str) -> T:
        """At its turn."""
        await self._wait_turn(caller, tried)
        loop = asyncio.get_running_loop()
        begun_s = self._time_s()
        try:
            return decode()
        finally:
            took_s = self._time_s() - begun_s
            self._note(caller, took_s, begun_s + took_s)
            # As long as it took belongs to all others: gRPC takes up one call of a method in a turn
            # of the loop, and withdraws without a word those that it has not taken up for 30 s.
            loop.call_later(took_s, self._end)

    async def _wait_turn(self, caller: str, tried: str) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        entry = self._callers.setdefault(caller, _Caller(used_at_s=self._time_s()))
        if len(entry.waiting) >= WAITING_OF_CALLER_MAX:
            raise _too_many(tried, len(entry.waiting), WAITING_OF_CALLER_MAX, "of this caller")
        if self._waiting >= WAITING_MAX:
            self._displace(entry, tried)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry.waiting.append(turn)
        self._waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn in entry.waiting:
                entry.waiting.remove(turn)
                self._waiting -= 1
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                # The turn came, and nobody takes it.
                self._end()
            raise

    def _displace(self, newcomer: _Caller, tried: str) -> None:
        """The last one of the caller that had most gives way; it may be the newcomer."""
        now_s = self._time_s()
        waiting = [each for each in self._callers.values() if each.waiting]
        most = max(waiting, key=lambda each: (each.use(now_s), len(each.waiting)))
        error = _too_many(tried, self._waiting, WAITING_MAX, "together")
        if newcomer.use(now_s) >= most.use(now_s) and len(newcomer.waiting) >= len(most.waiting):
            raise error
        last = most.waiting.pop()
        self._waiting -= 1
        if not last.done():
            last.set_exception(error)

    def _end(self) -> None:
        """The next one's turn, or nobody's."""
        now_s = self._time_s()
        while waiting := [each for each in self._callers.values() if each.waiting]:
            # Of equals whoever has waited longest: it is earlier in the table.
            least = min(waiting, key=lambda each: each.use(now_s))
            self._waiting -= 1
            turn = least.waiting.popleft()
            # One that was cancelled a moment ago has not run yet.
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
        self._forget(now_s)

    def _note(self, caller: str, took_s: float, now_s: float) -> None:
        """At the end of the table: of equals the others are before it."""
        entry = self._callers.pop(caller, None) or _Caller(used_at_s=now_s)
        entry.used_s, entry.used_at_s = entry.use(now_s) + took_s, now_s
        self._callers[caller] = entry
        if len(self._callers) > CALLERS_MAX:
            self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        """Those who had little, and the longest ago if they are too many."""
        kept = [
            (name, each)
            for name, each in self._callers.items()
            if each.waiting or each.use(now_s) >= FORGOTTEN_SECONDS
        ]
        left = max(0, len(kept) - CALLERS_MAX)
        self._callers = {
            name: each for place, (name, each) in enumerate(kept) if each.waiting or place >= left
        }


def _too_many(tried: str, count: int, limit: int, whose: str) -> TidelogError:
    return TidelogError(
        ErrorCode.RESOURCE_EXHAUSTED,
        tried=tried,
        happened=f"{count} readers {whose} wait to have their records decoded, at most {limit} may",
        hint="Read with fewer at a time, or with Fetch, which leaves decoding to clients.",
    )
