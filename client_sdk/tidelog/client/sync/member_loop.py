"""The group member's thread: takes messages to its core and performs the effects.

Owns the core and its sequence in time: heartbeats go out while the user's code works. The user's
thread reaches it through the inbox only, and hears of it through the side's news. A bug in here
ends the membership, and the next poll raises it.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, assert_never

import msgspec

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
from tidelog.client.reading.group_side import OUTSIDE, GroupSide
from tidelog.client.reading.member_parts import bug_of, note, standing_of
from tidelog.client.shared import io_threads, lifecycle
from tidelog.client.shared.asking import Answer
from tidelog.client.sync.cluster_calls import ClusterCalls
from tidelog.client.sync.connections import Connections
from tidelog.client.wire import groups as wire_groups
from tidelog.wire.errors import TidelogError

_log = logging.getLogger("tidelog.client")
LONGEST_WAIT_S: Final = 3600.0
END_S: Final = 1.0
"""How long `stop` waits for the thread: it is never in a call."""


class Stop(msgspec.Struct, frozen=True):
    """End the thread."""


class MemberLoop:
    """Runs on its own thread from `start` to `stop`."""

    def __init__(
        self,
        core: GroupCore,
        details: wire_groups.MemberDetails,
        connections: Connections,
        calls: ClusterCalls,
        on_news: Callable[[], None],
    ) -> None:
        self.inbox: queue.SimpleQueue[GroupMessage | Stop] = queue.SimpleQueue()
        self.has_left = threading.Event()
        """Set once the member has left for good."""
        self._core = core
        self._details = details
        self._connections = connections
        self._calls = calls
        self._on_news = on_news
        self._side: GroupSide | None = None
        self._thread: threading.Thread | None = None
        self._failure: TidelogError | None = None

    @property
    def is_running(self) -> bool:
        """Whether anybody would answer."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, side: GroupSide) -> None:
        """With the first call that waits; again: raise what ended it, if it has."""
        if self._failure is not None:
            raise self._failure
        if self._thread is not None:
            return
        self._side = side
        name = f"tidelog-member-{self._details.group}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        with lifecycle.watching_threads():
            self._thread.start()

    def leave(self, timeout_s: float) -> None:
        """Tell the coordinator, for as long as that."""
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        self.inbox.put(LeaveWanted(deadline_ns=deadline_ns))
        self.has_left.wait(timeout_s)

    def stop(self) -> None:
        """End the thread; what is under way is forgotten."""
        if self._thread is None:
            return
        self.inbox.put(Stop())
        if self._thread is not threading.current_thread():
            self._thread.join(END_S)

    def _run(self) -> None:
        io_threads.become_io_thread()
        side = self._side
        assert side is not None, "the thread runs for somebody"
        try:
            while self._turn(side):
                pass
        except Exception as error:  # noqa: BLE001 - the member's supervisor
            _log.exception("the member of group %r failed", self._details.group)
            side.standing = OUTSIDE
            self._failure = bug_of(self._details.group, error)
            self._on_news()

    def _turn(self, side: GroupSide) -> bool:
        """Bring the core up to date, wait for a message, take all that came; False: stopped."""
        now_ns = time.monotonic_ns()
        self._core.note_poll(side.polled_at_ns)
        self._perform(side, self._core.tick(now_ns))
        deadline_ns = self._core.next_deadline_ns()
        wait_s = LONGEST_WAIT_S
        if deadline_ns is not None:
            wait_s = min(wait_s, max(0.001, (deadline_ns - time.monotonic_ns()) / 1e9))
        try:
            item = self.inbox.get(timeout=wait_s)
            while not isinstance(item, Stop):
                self._perform(side, self._core.step(item, time.monotonic_ns()))
                item = self.inbox.get_nowait()
        except queue.Empty:
            return True
        return False

    def _perform(self, side: GroupSide, effects: list[GroupEffect]) -> None:
        # First of all: who has lost the lease delivers nothing from this moment on.
        side.standing = standing_of(self._core)
        for effect in effects:
            match effect:
                case Tell(news=HasLeft()):
                    self.has_left.set()
                case Tell():
                    side.receive(effect.news)
                    self._on_news()
                case Note():
                    note(effect)
                case FindCoordinator():
                    self._find()
                case SendHeartbeat() | SendCommit() | SendLookup():
                    self._call(effect)
                case _:
                    assert_never(effect)

    def _find(self) -> None:
        def on_answer(answer: Answer) -> None:
            self.inbox.put(wire_groups.coordinator_came(answer))

        self._connections.call_any_later(
            self._calls.addresses(),
            wire_groups.FIND_COORDINATORS,
            wire_groups.find_coordinators_request([self._details.group]),
            self._core.settings.request_timeout_ms,
            on_answer,
        )

    def _call(self, effect: SendHeartbeat | SendCommit | SendLookup) -> None:
        def on_answer(answer: Answer) -> None:
            self.inbox.put(wire_groups.answer_came(effect, answer))

        method, request = wire_groups.request_of(effect, self._details)
        self._connections.call_later(effect.address, method, request, effect.timeout_ms, on_answer)
