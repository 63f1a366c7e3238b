"""How a consumer on threads waits and who may call: what its text leaves to the driver.

Owns the lock that tells concurrent use, and the call of a rebalance listener, on the thread that
polls. Every wait ends with its deadline, a wake-up or Ctrl-C. The text of what the consumer does
with its group is `tidelog.client.aio.group_consumer`; `tidelog.client.aio.group_waiting` is this
for asyncio.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from tidelog.client.arguments.functions import refuse_awaitable
from tidelog.client.arguments.options import ConsumerArguments
from tidelog.client.engine.group.group import GroupCore
from tidelog.client.errors import WakeupError
from tidelog.client.reading.consumer_parts import concurrent_use, loop_settings
from tidelog.client.reading.group_base import GroupBase
from tidelog.client.reading.group_options import details_of, settings_of
from tidelog.client.reading.group_side import GroupSide, Told
from tidelog.client.shared import io_threads
from tidelog.client.sync.cluster_calls import ClusterCalls
from tidelog.client.sync.connections import Connections
from tidelog.client.sync.fetch_loop import NEWS, FetchLoop
from tidelog.client.sync.member_loop import MemberLoop

T = TypeVar("T")


class GroupWaiting(GroupBase):
    """With or without a group; without one nothing here ever waits."""

    def __init__(self, name: str, arguments: ConsumerArguments) -> None:
        super().__init__(name, arguments)
        self._busy = threading.RLock()
        self._is_listening = False
        self._connections = Connections(self._options.client_id, self._security)
        self._calls = ClusterCalls(
            self._connections,
            self._bootstrap,
            self._metadata,
            self._backoff,
            self._options.bootstrap_timeout_ms,
            self._options.request_timeout_ms,
        )
        self._loop = FetchLoop(
            loop_settings(self._options), self._core, self._connections, self._calls
        )
        self._member: MemberLoop | None = None
        if self._options.group_id is not None:
            self._be_in_group()

    def _be_in_group(self) -> None:
        settings = settings_of(self._options)
        inbox = self._loop.inbox
        self._member = MemberLoop(
            GroupCore(settings, self._backoff),
            details_of(self._options, settings),
            self._connections,
            self._calls,
            lambda: inbox.put(NEWS),
        )
        self._group = GroupSide(
            self._options, settings, self._core, self._member.inbox.put, self._user_hooks()
        )

    # Waiting.

    def _wait_for(
        self, group: GroupSide, look: Callable[[], T | None], deadline: float
    ) -> T | None:
        """What the member's thread tells; None when the time is over."""
        while True:
            self._start_member(group)
            found = look()
            if found is not None:
                return found
            self._raise_wakeup()
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._loop.turn(left)

    def _wait(self, left: float) -> bool:
        """Until something came; False: the time was over before."""
        if left <= 0:
            return False
        self._loop.turn(left)
        return True

    def _start_member(self, group: GroupSide) -> None:
        assert self._member is not None, "a group has a member's loop"
        self._member.start(group)

    def _call_listener(self, told: Told) -> None:
        self._is_listening = True
        try:
            refuse_awaitable(told(), "a listener's method", "tell the rebalance listener")
        finally:
            self._is_listening = False

    def _raise_wakeup(self) -> None:
        if self._loop.is_woken:
            self._loop.is_woken = False
            raise WakeupError(tried="wait for records", happened="wakeup() was called")

    def _raise_error(self) -> None:
        self._raise_wakeup()
        error = self._take_error()
        if error is not None:
            raise error

    # Who may call.

    @contextmanager
    def _exclusive(self, tried: str) -> Generator[None, None, None]:
        self._check_usable(tried)
        io_threads.refuse_waiting(tried)
        if not self._busy.acquire(blocking=False):
            raise concurrent_use(tried)
        try:
            yield
        finally:
            self._busy.release()

    def _entering(self, tried: str) -> AbstractContextManager[None]:
        return self._exclusive(tried)

    def _update(self) -> None:
        self._loop.update()
