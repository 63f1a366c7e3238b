"""The group member of an asyncio consumer: its core on the user's loop, and the effects performed.

Owns the core and its sequence in time: heartbeats go out while the user awaits something else.
"""

import asyncio
import time
from collections.abc import Callable
from typing import assert_never

from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.aio.driver import Driver
from tidelog.client.engine.group.group import GroupCore
from tidelog.client.engine.group.messages import (
    FindCoordinator,
    GroupEffect,
    GroupMessage,
    HasLeft,
    LeaveWanted,
    Note,
    SendCommit,
    SendHeartbeat,
    SendLookup,
    Tell,
)
from tidelog.client.reading.group_side import GroupSide
from tidelog.client.reading.member_parts import note, standing_of
from tidelog.client.wire import groups as wire_groups
from tidelog.wire.errors import TidelogError


class AsyncMemberLoop:
    """One per consumer with a group; everything runs on the user's loop."""

    def __init__(
        self,
        core: GroupCore,
        details: wire_groups.MemberDetails,
        connections: AsyncConnections,
        calls: AsyncClusterCalls,
        on_news: Callable[[], None],
    ) -> None:
        self.driver = Driver("member of a group", self._turn, on_news)
        self._core = core
        self._details = details
        self._connections = connections
        self._calls = calls
        self._on_news = on_news
        self._side: GroupSide | None = None
        self._early: list[GroupMessage] = []
        """Wanted before there was a loop to run on."""
        self._left: asyncio.Event | None = None

    def put(self, message: GroupMessage) -> None:
        """From the user's side; performed with the next turn."""
        self._early.append(message)
        self.driver.wake()

    def start(self, side: GroupSide) -> None:
        """With the first call that waits; again: make sure that the loop is still this one."""
        self._side = side
        self.driver.start()

    @property
    def is_running(self) -> bool:
        """Whether anybody would answer."""
        return self.driver.has_started and self.driver.failure is None

    async def leave(self, timeout_s: float) -> None:
        """Tell the coordinator, for as long as that."""
        self._left = asyncio.Event()
        self.put(LeaveWanted(deadline_ns=time.monotonic_ns() + int(timeout_s * 1e9)))
        try:
            async with asyncio.timeout(timeout_s):
                await self._left.wait()
        except TimeoutError:
            return

    async def stop(self) -> None:
        """End everything; what is under way is forgotten."""
        await self.driver.stop()

    def _turn(self) -> int | None:
        assert self._side is not None, "the member runs for somebody"
        now_ns = time.monotonic_ns()
        self._core.note_poll(self._side.polled_at_ns)
        while self._early:
            self._perform(self._core.step(self._early.pop(0), now_ns))
        self._perform(self._core.tick(now_ns))
        return self._core.next_deadline_ns()

    def _step(self, message: GroupMessage) -> None:
        self._perform(self._core.step(message, time.monotonic_ns()))
        self.driver.wake()

    def _perform(self, effects: list[GroupEffect]) -> None:
        side = self._side
        assert side is not None, "the member runs for somebody"
        side.standing = standing_of(self._core)
        for effect in effects:
            match effect:
                case Tell(news=HasLeft()):
                    if self._left is not None:
                        self._left.set()
                case Tell():
                    side.receive(effect.news)
                    self._on_news()
                case Note():
                    note(effect)
                case FindCoordinator():
                    self.driver.spawn(self._find(), "find the coordinator")
                case SendHeartbeat() | SendCommit() | SendLookup():
                    self.driver.spawn(self._call(effect), "call the coordinator")
                case _:
                    assert_never(effect)

    async def _find(self) -> None:
        answer: bytes | TidelogError
        try:
            answer = await self._connections.call_any(
                self._calls.addresses(),
                wire_groups.FIND_COORDINATORS,
                wire_groups.find_coordinators_request([self._details.group]),
                self._core.settings.request_timeout_ms,
            )
        except TidelogError as error:
            answer = error
        self._step(wire_groups.coordinator_came(answer))

    async def _call(self, effect: SendHeartbeat | SendCommit | SendLookup) -> None:
        method, request = wire_groups.request_of(effect, self._details)
        answer: bytes | TidelogError
        try:
            answer = await self._connections.call(
                effect.address, method, request, effect.timeout_ms
            )
        except TidelogError as error:
            answer = error
        self._step(wire_groups.answer_came(effect, answer))
