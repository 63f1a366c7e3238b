"""What a consumer does with its group: waiting for commits, lookups and the farewell.

Owns what is done before and after each wait; how it waits, and who may call, is `group_waiting`.
Every wait ends with its deadline.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from tidelog.client.aio.group_waiting import AsyncGroupWaiting
from tidelog.client.reading.consumer_parts import inside_listener
from tidelog.client.reading.group_base import left_ms, to_ns
from tidelog.client.reading.group_offsets import OnCommitted
from tidelog.client.reading.group_options import GRACE_S
from tidelog.client.reading.group_side import GroupSide
from tidelog.client.shared.checked import checked
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition


class AsyncGroupConsumer(AsyncGroupWaiting):
    """With or without a group; without one nothing here ever waits."""

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
        """The same without waiting; `callback(offsets, error)` runs inside a later call that reads,
        commits or closes. Commits are stored in their order. Offsets can be of partitions
        that are assigned.
        """
        tried = "commit offsets"
        with self._entering(tried):
            group = self._group_for(tried)
            self._start_member(group)
            deadline = self._deadline(None)
            # asyncio only: nobody can be asked for a topic's id by a call that is not awaited
            wanted = self._wanted_of_assigned(group, offsets, tried)
            # threads: wanted = self._wanted(group, offsets, deadline, tried)
            group.offsets.commit_later(wanted, to_ns(deadline), callback)

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

    # The group's news.

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

    @asynccontextmanager
    async def _polling(self, tried: str) -> AsyncGenerator[None, None]:
        """Around what delivers records: the group sees that the user is there."""
        group = self._group
        # asyncio only: a task that the listener has begun is told of the listener as well
        if group is not None and self._is_listening:
            raise inside_listener(tried)
        with self._exclusive(tried):
            if group is None:
                yield
                return
            # threads: # Only the listener's own thread comes so far: the lock keeps others out.
            # threads: if self._is_listening:
            # threads:     raise inside_listener(tried)
            group.polled_at_ns = None
            try:
                await self._attend()
                yield
            finally:
                group.polled_at_ns = time.monotonic_ns()

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
