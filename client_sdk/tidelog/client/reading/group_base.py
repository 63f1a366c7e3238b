"""What a consumer does with its group on either driver, without waiting for anybody.

Owns what is decided before and after each wait: what is to be committed, what came of it, how long
a farewell may take. It must never wait, nor call the user's code: that belongs to the drivers.
"""

import logging
import math
import time
from collections.abc import Mapping

from tidelog.client.engine.group.messages import OffsetsFound
from tidelog.client.reading.consumer_base import ConsumerBase
from tidelog.client.reading.group_offsets import Failures
from tidelog.client.reading.group_options import (
    CLOSE_TIMEOUT_MS,
    FAREWELL_IN_HASTE_S,
    FAREWELL_S,
    checked_offsets,
    commit_error,
    committed_of,
    not_answered,
)
from tidelog.client.reading.group_side import LEASE_LOOK_S, GroupSide
from tidelog.client.reading.read_in_transaction import ReadInTransaction, group_for_transactions
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.wire.errors import TidelogError

_log = logging.getLogger("tidelog.client")
LONGEST_WAIT_S = 3600.0
"""Without a deadline of its own a wait is begun anew after so long."""


class GroupBase(ConsumerBase):
    """With or without a group."""

    _is_hurried = False
    """Somebody has pressed Ctrl-C, and waits for the program to end."""

    # Commits.

    def _chosen(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> dict[TopicPartition, OffsetAndMetadata] | None:
        """What the user wants committed, checked; None: everything that was delivered."""
        self._note_position()
        return None if offsets is None else checked_offsets(offsets)

    def _check_stored(self, group: GroupSide, failures: Failures | None, tried: str) -> None:
        """What came of a commit that was waited for; None: nothing in time."""
        if failures is None:
            raise not_answered(tried)
        if failures:
            raise commit_error(group.settings.group, failures)

    def _told_committed(
        self, found: OffsetsFound | None, tried: str, *, metadata: bool
    ) -> int | OffsetAndMetadata | None:
        """What was looked up, as the user asked for it; None: nothing is committed."""
        if found is None:
            raise not_answered(tried)
        at = committed_of(found)
        return at if metadata or at is None else at.offset

    def read_for_transactions(self) -> ReadInTransaction:
        """For a producer whose transactions commit what this consumer delivers: give the consumer
        to `producer.transaction(consumer=...)`.
        """
        self._check_usable("begin a transaction with a consumer")
        auto_commit = self._options.enable_auto_commit
        return ReadInTransaction(
            group_for_transactions(self._group, commits_itself=auto_commit),
            entering=self._entering,
            note_position=self._note_position,
            seek=self.seek,
            is_closed=lambda: self.is_closed,
        )

    # Waiting.

    def _longest_wait(self, left: float) -> float:
        """Until the deadline, or until the group wants something."""
        left = LONGEST_WAIT_S if math.isinf(left) else left
        group = self._group
        if group is None:
            return left
        now_ns = time.monotonic_ns()
        if not group.may_deliver(now_ns):
            left = min(left, LEASE_LOOK_S)
        return min(left, max(0.001, group.commit_due_s(now_ns)))

    def _take_error(self) -> TidelogError | None:
        """The next error that the user must see, once."""
        error = self._core.take_error()
        if error is None and self._group is not None:
            error = self._group.take_error()
        return error

    # The farewell.

    def _last_commit(
        self, group: GroupSide, timeout_ms: int | None, *, autocommit: bool
    ) -> tuple[int | None, float]:
        """The number of the commit of what was delivered (None: none is due), and its deadline."""
        self._note_position()
        number = group.offsets.commit_delivered(is_awaited=True) if autocommit else None
        limit_ms = CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms
        return number, time.monotonic() + limit_ms / 1000

    def _note_last(self, group: GroupSide, failures: Failures | None, *, during: str) -> None:
        """What came of it goes to the log: who closes goes on."""
        if failures:
            _log.warning("%s: %s", during, commit_error(group.settings.group, failures))
        elif failures is None:
            _log.warning("%s: %s", during, not_answered("commit what was delivered"))

    def _farewell_s(self, timeout_ms: int | None) -> float:
        """How long the coordinator may take to hear that the member leaves."""
        longest_s = FAREWELL_IN_HASTE_S if self._is_hurried else FAREWELL_S
        return longest_s if timeout_ms is None else min(longest_s, timeout_ms / 1000)

    # Time.

    def _deadline(self, timeout_ms: int | None) -> float:
        return time.monotonic() + self._limit_ms(timeout_ms) / 1000


def to_ns(deadline: float) -> int:
    """As the engine counts time."""
    return int(deadline * 1e9)


def left_ms(deadline: float) -> int:
    """Until then; a call that is begun has a moment at least."""
    return max(1, int((deadline - time.monotonic()) * 1000))
