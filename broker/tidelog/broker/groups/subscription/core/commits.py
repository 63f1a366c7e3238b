"""Acknowledgements on their way to the coordinator: one commit in flight, others behind it. Pure.

Owns their order, and that each is answered once and in it: one of which nothing is to be stored
waits for those before it as well. A commit that could not be made is tried again with the epoch
that the member has by then; what it does not own any more is answered STALE_ASSIGNMENT.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tidelog.broker.groups.state.answers import CommitAnswer
from tidelog.broker.groups.state.messages import CommitOffsets, OffsetToCommit
from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.messages import SendAcknowledged
from tidelog.broker.groups.subscription.core.partition import Partition
from tidelog.broker.log.names import PartitionKey
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

NEVER_MS: Final = 1 << 62
Failure = tuple[str, int, TidelogError]


class Waiting(msgspec.Struct, kw_only=True):
    """One acknowledgement."""

    correlation_id: int | None
    """None: where reading begins; the client did not ask for it."""
    offsets: dict[PartitionKey, int]
    topics: dict[PartitionKey, str]
    failures: list[Failure] = msgspec.field(default_factory=list)
    position_count: int = 0
    """What the client named, while it waits."""


class Commits:
    """Of one stream."""

    def __init__(self, group: str, member_id: str) -> None:
        self._group: Final = group
        self._member_id: Final = member_id
        self._queue: deque[Waiting] = deque()
        self._sent: CommitOffsets | None = None
        self._due_ms = 0
        self.position_count = 0
        """What the client named in the acknowledgements that wait."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, waiting: Waiting) -> None:
        """Behind all others."""
        if waiting.correlation_id is not None:
            # Where reading begins does not count: the client did not ask for it.
            waiting.position_count = len(waiting.offsets) + len(waiting.failures)
        self._queue.append(waiting)
        self.position_count += waiting.position_count

    def is_sent(self, request: CommitOffsets) -> bool:
        """Whether this is the one under way; else everybody who waited for it has been told."""
        return self._sent is request

    def next_deadline_ms(self) -> int:
        """When the first one may be sent."""
        return self._due_ms if self._queue and self._sent is None else NEVER_MS

    def take_answered(self, partitions: Mapping[PartitionKey, Partition]) -> list[SendAcknowledged]:
        """Answers to the first ones, as long as there is nothing to store of them."""
        told: list[SendAcknowledged] = []
        while self._queue and self._sent is None:
            first = self._queue[0]
            for key in [key for key in first.offsets if key not in partitions]:
                del first.offsets[key]
                first.failures.append((first.topics[key], key.partition, stale(key)))
            if first.offsets:
                break
            told += self._answer_first()
        return told

    def next_request(self, epoch: int, now_ms: int) -> CommitOffsets | None:
        """What to send now, once `take_answered` was asked; None: nothing."""
        if self._sent is not None or not self._queue or now_ms < self._due_ms:
            return None
        first = self._queue[0]
        assert first.offsets, "what has nothing to store is answered before"
        self._sent = CommitOffsets(
            request_id=0,
            now_ms=0,
            wall_ms=0,
            group=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            offsets=tuple(
                OffsetToCommit(
                    key=key,
                    committed_offset=Offset(offset),
                    leader_epoch=LeaderEpoch(NO_LEADER_EPOCH),
                )
                for key, offset in first.offsets.items()
            ),
        )
        return self._sent

    def postpone(self, now_ms: int) -> None:
        """The coordinator could not be asked."""
        self._sent = None
        self._due_ms = now_ms + limits.RETRY_MS

    def settle(
        self,
        outcome: CommitAnswer | TidelogError,
        on_stored: Callable[[PartitionKey, int], None],
    ) -> list[SendAcknowledged]:
        """The first one is answered; what to tell the client of it, if it asked."""
        sent, self._sent = self._sent, None
        assert sent is not None, "an answer to a commit that was never sent"
        first = self._queue[0]
        for place, offset in enumerate(sent.offsets):
            error = outcome if isinstance(outcome, TidelogError) else outcome.errors[place]
            if error is None:
                on_stored(offset.key, offset.committed_offset)
            else:
                first.failures.append((first.topics[offset.key], offset.key.partition, error))
        return self._answer_first()

    def refuse_all(self) -> list[SendAcknowledged]:
        """The member is none any more: nothing of what waits counts."""
        self._sent = None
        told = self.take_answered({})
        assert self.position_count == 0, "nobody waits, and nothing is counted"
        return told

    def _answer_first(self) -> list[SendAcknowledged]:
        first = self._queue.popleft()
        self.position_count -= first.position_count
        assert self.position_count >= 0, "what was added once is taken off once"
        if first.correlation_id is None:
            return []
        failures = tuple(first.failures)
        return [SendAcknowledged(correlation_id=first.correlation_id, failures=failures)]


def stale(key: PartitionKey) -> TidelogError:
    """STALE_ASSIGNMENT."""
    return TidelogError(
        ErrorCode.STALE_ASSIGNMENT,
        tried=f"acknowledge records of {key}",
        happened="this stream does not own the partition any more",
    )
