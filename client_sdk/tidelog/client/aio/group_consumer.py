"""What an asyncio consumer does with its group: waiting for commits, lookups and the farewell.

Owns who may call, and who calls the rebalance listener: the task that reads. A listener's methods
may be coroutines. Every wait ends with its deadline or a cancellation.
"""

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import TypeVar

from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.aio.fetch_loop import AsyncFetchLoop
from tidelog.client.aio.member_loop import AsyncMemberLoop
from tidelog.client.aio.unstopped import tell_unstopped
from tidelog.client.arguments.options import ConsumerArguments
from tidelog.client.engine.group.group import GroupCore
from tidelog.client.reading.consumer_parts import inside_listener, loop_settings
from tidelog.client.reading.group_base import GroupBase, left_ms, to_ns
from tidelog.client.reading.group_offsets import OnCommitted
from tidelog.client.reading.group_options import GRACE_S, checked_offsets, details_of, settings_of
from tidelog.client.reading.group_side import GroupSide, Told
from tidelog.client.shared.checked import checked
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

T = TypeVar("T")


class AsyncGroupConsumer(GroupBase):
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

    # Commits.

    @checked
    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Store these offsets, or the positions of all partitions; returns once they are stored.

        Without arguments everything that was delivered counts as done with.
        """
        tried = "commit offsets"
        with self._exclusive(tried):
            group = self._group_for(tried)
            deadline = self._deadline(timeout_ms)
            wanted = await self._wanted(group, offsets, deadline, tried)
            number = group.offsets.commit_later(wanted, to_ns(deadline), is_awaited=True)
            if number is not None:
                await self._wait_stored(group, number, deadline, tried)
            group.offsets.run_callbacks()

    @checked
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: OnCommitted | None = None,
    ) -> None:
        """The same without waiting; `callback(offsets, error)` runs inside a later read, commit or
        stop. Commits are stored in their order. Offsets can be of partitions that are assigned.
        """
        tried = "commit offsets"
        self._check_usable(tried)
        group = self._group_for(tried)
        self._start_member(group)
        self._note_position()
        wanted = None if offsets is None else checked_offsets(offsets)
        for name in wanted or ():
            if not group.offsets.id_of(name):
                self._state(name, tried)
        group.offsets.commit_later(wanted, to_ns(self._deadline(None)), callback)

    @checked
    async def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: int | None = None
    ) -> int | OffsetAndMetadata | None:
        """What the group has committed; None: nothing. With `metadata` all of it."""
        name = TopicPartition(*partition)
        tried = f"look up what is committed of {name.topic}-{name.partition}"
        with self._exclusive(tried):
            group = self._group_for(tried)
            deadline = self._deadline(timeout_ms)
            topic = await self._calls.topic(name.topic, left_ms(deadline), tried=tried)
            number = group.offsets.look_up({name: topic.topic_id}, to_ns(deadline))
            try:
                found = await self._wait_for(group, lambda: group.found(number), deadline + GRACE_S)
            finally:
                group.offsets.give_up(number)
            return self._told_committed(found, tried, metadata=metadata)

    async def _wanted(
        self,
        group: GroupSide,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
        deadline: float,
        tried: str,
    ) -> dict[TopicPartition, OffsetAndMetadata] | None:
        """Checked, and every topic known."""
        wanted = self._chosen(offsets)
        for name in wanted or ():
            if not group.offsets.id_of(name):
                await self._calls.topic(name.topic, left_ms(deadline), tried=tried)
        return wanted

    async def _wait_stored(
        self, group: GroupSide, number: int, deadline: float, tried: str
    ) -> None:
        try:
            failures = await self._wait_for(
                group, lambda: group.outcome(number), deadline + GRACE_S
            )
        finally:
            group.offsets.give_up(number)
        self._check_stored(group, failures, tried)

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

    def _start_member(self, group: GroupSide) -> None:
        assert self._member is not None, "a group has a member's loop"
        self._member.start(group)

    async def _attend(self) -> None:
        """Take up what the group has told; the listener's errors come once all is in order."""
        group = self._group
        if group is None:
            return
        self._start_member(group)
        failed: Exception | None = None
        with contextlib.closing(group.attend(time.monotonic_ns())) as told:
            for each in told:
                try:
                    await self._await_listener(each)
                except Exception as error:  # noqa: BLE001 - code that is not ours; raised below
                    failed = failed or error
        if failed is not None:
            raise failed

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

    @asynccontextmanager
    async def _polling(self, tried: str) -> AsyncGenerator[None, None]:
        """Around what delivers records: the group sees that the user is there."""
        group = self._group
        if group is not None and self._is_listening:
            raise inside_listener(tried)
        with self._exclusive(tried):
            if group is None:
                yield
                return
            group.polled_at_ns = None
            try:
                await self._attend()
                yield
            finally:
                group.polled_at_ns = time.monotonic_ns()

    def _entering(self, tried: str) -> AbstractContextManager[None]:
        # Between two awaits nobody else changes anything.
        self._check_usable(tried)
        return nullcontext()

    def _update(self) -> None:
        self._loop.update()

    # The farewell.

    async def _say_farewell(
        self, *, autocommit: bool, timeout_ms: int | None, in_haste: bool
    ) -> None:
        """Commit what was delivered, tell the listener, leave; each within its time.

        In haste nothing is committed: who left a `with` block by an error had not done with all
        that was delivered to him.
        """
        group, member = self._group, self._member
        if group is None or member is None or not member.is_running:
            return
        if not in_haste:
            await self._commit_last(group, timeout_ms, autocommit=autocommit)
        farewell_s = self._farewell_s(timeout_ms)
        await member.leave(farewell_s)

    async def _commit_last(
        self, group: GroupSide, timeout_ms: int | None, *, autocommit: bool
    ) -> None:
        number, deadline = self._last_commit(group, timeout_ms, autocommit=autocommit)
        if number is not None:
            failures = await self._wait_for(group, lambda: group.outcome(number), deadline)
            self._note_last(group, failures, during="stop")
        group.offsets.run_callbacks()
        listener, had = group.listener, set(self._core.partitions)
        if listener is not None and had and group.is_member:
            await self._await_listener(lambda: listener.on_partitions_revoked(had))


async def _awaited(waiting: Awaitable[None]) -> None:
    await waiting
