"""How an asyncio consumer waits and who may call: what its text leaves to the driver.

Owns the order of the calls of several coroutines, and the call of a rebalance listener, whose
methods may be coroutines. Every wait ends with its deadline or a cancellation. The text of what the
consumer does with its group is `tidelog.client.aio.group_consumer`;
`tidelog.client.sync.group_waiting` is this for threads.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.aio.fetch_loop import AsyncFetchLoop
from tidelog.client.aio.member_loop import AsyncMemberLoop
from tidelog.client.aio.unstopped import tell_unstopped
from tidelog.client.arguments.options import ConsumerArguments
from tidelog.client.engine.group.group import GroupCore
from tidelog.client.reading.consumer_parts import loop_settings
from tidelog.client.reading.group_base import GroupBase
from tidelog.client.reading.group_options import details_of, settings_of
from tidelog.client.reading.group_side import GroupSide, Told
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

T = TypeVar("T")


class AsyncGroupWaiting(GroupBase):
    """With or without a group; without one nothing here ever waits."""

    _is_in_use = False
    """Made, and neither stopped nor told of."""

    def __init__(self, name: str, arguments: ConsumerArguments) -> None:
        super().__init__(name, arguments)
        self.called = name
        """By who complains that it was not closed."""
        self._is_busy = False
        self._busy_task: asyncio.Task[object] | None = None
        self._is_listening = False
        self._connections = AsyncConnections(self._options.client_id, self._security)
        self._calls = AsyncClusterCalls(
            self._connections,
            self._bootstrap,
            self._metadata,
            self._backoff,
            self._options.bootstrap_timeout_ms,
            self._options.request_timeout_ms,
        )
        self._loop = AsyncFetchLoop(
            loop_settings(self._options),
            self._core,
            self._connections,
            self._calls,
            self._note_position,
            self._drop_void_chunk,
            self._tell_unstopped,
        )
        self._member: AsyncMemberLoop | None = None
        if self._options.group_id is not None:
            self._be_in_group()
        self._is_in_use = True

    def __del__(self) -> None:
        self._tell_unstopped()

    def close_at_exit(self) -> None:
        """There is no loop any more on which the group could be left: say what that means."""
        self._tell_unstopped()

    def _tell_unstopped(self) -> None:
        """Once, of a consumer that was used and not stopped."""
        driver = self._loop.driver if self._is_in_use else None
        if driver is None or self._is_forked or not driver.has_started or driver.failure:
            return
        self._is_in_use = False
        group, lost = self._group, ""
        if group is not None and group.is_member:
            lost = (
                f"it has not left group {group.settings.group!r}, where its partitions wait until "
                "its session is over, and nothing was committed"
            )
        tell_unstopped(self, self.called, lost)

    def _be_in_group(self) -> None:
        settings = settings_of(self._options)
        self._member = AsyncMemberLoop(
            GroupCore(settings, self._backoff),
            details_of(self._options, settings),
            self._connections,
            self._calls,
            self._loop.driver.notify,
        )
        self._group = GroupSide(
            self._options, settings, self._core, self._member.put, self._user_hooks()
        )

    # Waiting.

    async def _wait_for(
        self, group: GroupSide, look: Callable[[], T | None], deadline: float
    ) -> T | None:
        """What the member tells; None when the time is over."""
        self._loop.driver.start()
        while True:
            self._start_member(group)
            found = look()
            if found is not None:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            await self._loop.driver.wait(left)

    async def _wait(self, left: float) -> bool:
        """Until something came; False: the time was over before."""
        return await self._loop.driver.wait(left)

    def _start_member(self, group: GroupSide) -> None:
        assert self._member is not None, "a group has a member's loop"
        self._member.start(group)

    async def _await_listener(self, told: Told) -> None:
        self._is_listening = True
        try:
            waiting = told()
            if inspect.isawaitable(waiting):
                await waiting
        finally:
            self._is_listening = False

    def _call_listener(self, told: Told) -> None:
        waiting = told()
        if inspect.isawaitable(waiting):
            self._loop.driver.spawn(_awaited(waiting), "rebalance listener")

    def _raise_error(self) -> None:
        error = self._take_error()
        if error is not None:
            self._loop.update()
            raise error

    def _wanted_of_assigned(
        self,
        group: GroupSide,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
        tried: str,
    ) -> dict[TopicPartition, OffsetAndMetadata] | None:
        """What is to be committed, of topics whose ids are known without asking anybody."""
        wanted = self._chosen(offsets)
        for name in wanted or ():
            if not group.offsets.id_of(name):
                self._state(name, tried)
        return wanted

    # Who may call.

    @contextmanager
    def _exclusive(self, tried: str) -> Generator[None, None, None]:
        self._check_usable(tried)
        task = asyncio.current_task()
        if self._is_busy and not (self._is_listening and task is self._busy_task):
            raise TidelogError(
                ErrorCode.CONCURRENT_USE,
                tried=tried,
                happened="another coroutine waits in this consumer",
                hint="give each coroutine a consumer of its own",
            )
        before = self._is_busy, self._busy_task
        self._is_busy, self._busy_task = True, task
        try:
            yield
        finally:
            self._is_busy, self._busy_task = before

    def _entering(self, tried: str) -> AbstractContextManager[None]:
        # Between two awaits nobody else changes anything.
        self._check_usable(tried)
        return nullcontext()

    def _update(self) -> None:
        self._loop.update()


async def _awaited(waiting: Awaitable[None]) -> None:
    await waiting
