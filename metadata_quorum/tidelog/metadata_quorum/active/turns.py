"""Turns of calls that are much work for the controller: one at a time, callers in rotation.

Owns how much of the controller's time administration may take. What a call costs is counted, not
measured: its entries and the replicas that they stand for. It must never hold back a small call,
nor the calls of brokers: sessions, in-sync sets and log ends do not pass here.

Theory of operation. A call that counts no more than `small_call_max` passes. Larger ones wait in a
queue of their caller, and callers take turns, so that whoever sends many waits for itself. After a
turn the next one waits until the work of the last would be done at `work_per_s`: between two turns
the loop belongs to heartbeats, writes of others and the quorum itself. A caller that fills its
queue is refused, and so is everybody once too many wait.

    counted ──small──→ done
       └──→ queue of the caller ──its turn──→ rest of the turn before ──→ done
"""

import asyncio
from collections import deque
from typing import Final

import msgspec

from tidelog.ports import Clock
from tidelog.wire.errors import ErrorCode, TidelogError

_NS_PER_S: Final = 1_000_000_000


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Named limits of the turns."""

    small_call_max: int = 100
    """What counts no more passes."""
    work_per_s: int = 20_000
    """Entries and replicas; placing, applying and writing one takes some 10 µs."""
    waiting_of_caller_max: int = 16
    waiting_max: int = 256


class AdminTurns:
    """Of one active controller."""

    def __init__(self, clock: Clock, limits: TurnLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or TurnLimits()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """By caller, in the order of their turns."""
        self._has_turn = False
        self._rested_ns = 0
        """When the next turn may begin."""

    @property
    def waiting_count(self) -> int:
        """Calls without their turn."""
        return sum(len(queue) for queue in self._queues.values())

    async def wait(self, caller: str, work: int, *, tried: str, timeout_ms: int) -> None:
        """Until the call may begin; nothing of it was done if this raises."""
        if work <= self._limits.small_call_max:
            return
        self._check_room(caller, tried)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._take_turn(caller)
        except TimeoutError:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=tried,
                happened=f"it had no turn within {timeout_ms} ms: {self.waiting_count} large calls "
                "wait at the controller",
                hint="Send fewer large calls at a time.",
            ) from None
        self._end_turn(caller, work)

    async def _take_turn(self, caller: str) -> None:
        if self._has_turn:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queues.setdefault(caller, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._give_up(caller, turn)
                raise
        self._has_turn = True
        try:
            while (left_ns := self._rested_ns - self._clock.monotonic_ns()) > 0:
                await self._clock.sleep(-(-left_ns // 1_000_000))
        except asyncio.CancelledError:
            self._pass_on()
            raise

    def _end_turn(self, caller: str, work: int) -> None:
        self._rested_ns = self._clock.monotonic_ns() + work * _NS_PER_S // self._limits.work_per_s
        if caller in self._queues:
            # Behind the others: it has just had its turn.
            self._queues[caller] = self._queues.pop(caller)
        self._pass_on()

    def _pass_on(self) -> None:
        """To the first call of the caller that had no turn for longest."""
        self._has_turn = False
        while self._queues:
            caller, queue = next(iter(self._queues.items()))
            turn = queue.popleft()
            if not queue:
                del self._queues[caller]
            if not turn.done():
                self._has_turn = True
                turn.set_result(None)
                return

    def _give_up(self, caller: str, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            # It was given the turn at the same moment.
            self._pass_on()
            return
        queue = self._queues.get(caller)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[caller]

    def _check_room(self, caller: str, tried: str) -> None:
        limits, own = self._limits, len(self._queues.get(caller, ()))
        for count, most, whose in (
            (own, limits.waiting_of_caller_max, f"of {caller}"),
            (self.waiting_count, limits.waiting_max, "of all callers"),
        ):
            if count >= most:
                raise TidelogError(
                    ErrorCode.RESOURCE_EXHAUSTED,
                    tried=tried,
                    happened=f"{count} large calls {whose} wait at the controller; at most {most} "
                    "may",
                    hint="Wait for the answers of the others, or send fewer at a time.",
                )
