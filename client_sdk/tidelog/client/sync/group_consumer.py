"""What a synchronous consumer does with its group: waiting for commits, lookups and the farewell.

Owns the lock that tells concurrent use, and who calls the rebalance listener: the thread that
polls. Every wait ends with its deadline, a wake-up or Ctrl-C.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from tidelog.client.arguments.functions import refuse_awaitable
from tidelog.client.arguments.options import ConsumerArguments
from tidelog.client.engine.group.group import GroupCore
from tidelog.client.engine.group.messages import LeaveWanted
from tidelog.client.errors import WakeupError
from tidelog.client.reading.consumer_parts import concurrent_use, inside_listener, loop_settings
from tidelog.client.reading.group_base import GroupBase, left_ms, to_ns
from tidelog.client.reading.group_offsets import OnCommitted
from tidelog.client.reading.group_options import GRACE_S, details_of, settings_of
from tidelog.client.reading.group_side import GroupSide, Told
from tidelog.client.shared import io_threads
from tidelog.client.shared.checked import checked
from tidelog.client.sync.cluster_calls import ClusterCalls
from tidelog.client.sync.connections import Connections
from tidelog.client.sync.fetch_loop import NEWS, FetchLoop
from tidelog.client.sync.member_loop import MemberLoop
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition

T = TypeVar("T")


class GroupConsumer(GroupBase):
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
        """The same without waiting; `callback(offsets, error)` runs inside a later poll, commit or
        close. Commits are stored in their order.
        """
        tried = "commit offsets"
        with self._exclusive(tried):
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

    def _start_member(self, group: GroupSide) -> None:
        assert self._member is not None, "a group has a member's loop"
        self._member.start(group)

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

    @contextmanager
    def _polling(self, tried: str) -> Generator[None, None, None]:
        """Around what delivers records: the group sees that the user is there."""
        with self._exclusive(tried):
            group = self._group
            if group is None:
                yield
                return
            if self._is_listening:
                raise inside_listener(tried)
            group.polled_at_ns = None
            try:
                self._attend()
                yield
            finally:
                group.polled_at_ns = time.monotonic_ns()

    def _entering(self, tried: str) -> AbstractContextManager[None]:
        return self._exclusive(tried)

    def _update(self) -> None:
        self._loop.update()

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
        member.inbox.put(LeaveWanted(deadline_ns=to_ns(time.monotonic() + farewell_s)))
        member.has_left.wait(farewell_s)

    def _commit_last(self, group: GroupSide, timeout_ms: int | None, *, autocommit: bool) -> None:
        number, deadline = self._last_commit(group, timeout_ms, autocommit=autocommit)
        if number is not None:
            failures = self._wait_for(group, lambda: group.outcome(number), deadline)
            self._note_last(group, failures, during="close")
        group.offsets.run_callbacks()
        listener, had = group.listener, set(self._core.partitions)
        if listener is not None and had and group.is_member:
            self._call_listener(lambda: listener.on_partitions_revoked(had))
