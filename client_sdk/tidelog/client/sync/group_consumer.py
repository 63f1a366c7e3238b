# Written by `make threads` from client_sdk/tidelog/client/aio/group_consumer.py; do not edit.
"""What a consumer does with its group: waiting for commits, lookups and the farewell.

Owns what is done before and after each wait; how it waits, and who may call, is `group_waiting`.
Every wait ends with its deadline.
"""

import contextlib
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from tidelog.client.reading.consumer_parts import inside_listener
from tidelog.client.reading.group_base import left_ms, to_ns
from tidelog.client.reading.group_offsets import OnCommitted
from tidelog.client.reading.group_options import GRACE_S
from tidelog.client.reading.group_side import GroupSide
from tidelog.client.shared.checked import checked
from tidelog.client.sync.group_waiting import GroupWaiting
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition


class GroupConsumer(GroupWaiting):
    """With or without a group; without one nothing here ever waits."""

    # Commits.

    @checked
    def commit(
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
            wanted = self._wanted(group, offsets, deadline, tried)
            number = group.offsets.commit_later(wanted, to_ns(deadline), is_awaited=True)
            if number is not None:
                self._wait_stored(group, number, deadline, tried)
            group.offsets.run_callbacks()

    @checked
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: OnCommitted | None = None,
    ) -> None:
        """The same without waiting; `callback(offsets, error)` runs inside a later call that reads,
        commits or closes. Commits are stored in their order.
        """
        tried = "commit offsets"
        with self._entering(tried):
            group = self._group_for(tried)
            self._start_member(group)
            deadline = self._deadline(None)
            wanted = self._wanted(group, offsets, deadline, tried)
            group.offsets.commit_later(wanted, to_ns(deadline), callback)

    @checked
    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: int | None = None
    ) -> int | OffsetAndMetadata | None:
        """What the group has committed; None: nothing. With `metadata` all of it."""
        name = TopicPartition(*partition)
        tried = f"look up what is committed of {name.topic}-{name.partition}"
        with self._exclusive(tried):
            group = self._group_for(tried)
            deadline = self._deadline(timeout_ms)
            topic = self._calls.topic(name.topic, left_ms(deadline), tried=tried)
            number = group.offsets.look_up({name: topic.topic_id}, to_ns(deadline))
            try:
                found = self._wait_for(group, lambda: group.found(number), deadline + GRACE_S)
            finally:
                group.offsets.give_up(number)
            return self._told_committed(found, tried, metadata=metadata)

    def _wanted(
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
                self._calls.topic(name.topic, left_ms(deadline), tried=tried)
        return wanted

    def _wait_stored(self, group: GroupSide, number: int, deadline: float, tried: str) -> None:
        try:
            failures = self._wait_for(group, lambda: group.outcome(number), deadline + GRACE_S)
        finally:
            group.offsets.give_up(number)
        self._check_stored(group, failures, tried)

    # The group's news.

    def _attend(self) -> None:
        """Take up what the group has told; the listener's errors come once all is in order."""
        group = self._group
        if group is None:
            return
        self._start_member(group)
        failed: Exception | None = None
        with contextlib.closing(group.attend(time.monotonic_ns())) as told:
            for each in told:
                try:
                    self._call_listener(each)
                except Exception as error:  # noqa: BLE001 - code that is not ours; raised below
                    failed = failed or error
        if failed is not None:
            raise failed

    @contextmanager
    def _polling(self, tried: str) -> Generator[None, None, None]:
        """Around what delivers records: the group sees that the user is there."""
        group = self._group
        with self._exclusive(tried):
            if group is None:
                yield
                return
            # Only the listener's own thread comes so far: the lock keeps others out.
            if self._is_listening:
                raise inside_listener(tried)
            group.polled_at_ns = None
            try:
                self._attend()
                yield
            finally:
                group.polled_at_ns = time.monotonic_ns()

    # The farewell.

    def _say_farewell(self, *, autocommit: bool, timeout_ms: int | None, in_haste: bool) -> None:
        """Commit what was delivered, tell the listener, leave; each within its time.

        In haste nothing is committed: who left a `with` block by an error had not done with all
        that was delivered to him.
        """
        group, member = self._group, self._member
        if group is None or member is None or not member.is_running:
            return
        if not in_haste:
            self._commit_last(group, timeout_ms, autocommit=autocommit)
        farewell_s = self._farewell_s(timeout_ms)
        member.leave(farewell_s)

    def _commit_last(self, group: GroupSide, timeout_ms: int | None, *, autocommit: bool) -> None:
        number, deadline = self._last_commit(group, timeout_ms, autocommit=autocommit)
        if number is not None:
            failures = self._wait_for(group, lambda: group.outcome(number), deadline)
            self._note_last(group, failures, during="close")
        group.offsets.run_callbacks()
        listener, had = group.listener, set(self._core.partitions)
        if listener is not None and had and group.is_member:
            self._call_listener(lambda: listener.on_partitions_revoked(had))
