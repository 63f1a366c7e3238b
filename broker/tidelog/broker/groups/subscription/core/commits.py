"""Acknowledgements on their way to the coordinator: one commit in flight, others behind it. Pure.

Owns their order, and that each is answered once and in it: one of which nothing is to be stored
waits for those before it as well. A commit that could not be made is tried again with the epoch
that the member has by then; what it does not own any more is answered STALE_ASSIGNMENT. One that
cannot be stored for too long is answered with what is missing, so that no client waits in silence.
"""

from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import Final

import msgspec

from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.messages import SendAcknowledged
from tidelog.broker.groups.subscription.core.partition import Partition
from tidelog.wire.calls.groups import CommitAnswer, CommitOffsets, OffsetToCommit
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, Offset, PartitionKey

NEVER_MS: Final = 1 << 62
AGAIN: Final = "Acknowledge again, if the partition is still assigned; else the records come again."
Failure = tuple[str, int, TidelogError]
Refusal = Callable[[str], TidelogError]
"""Of a partition, by its name."""


class Waiting(msgspec.Struct, kw_only=True):
    """One acknowledgement."""

    correlation_id: int | None
    """None: where reading begins; the client did not ask for it."""
    offsets: dict[PartitionKey, Offset]
    topics: dict[PartitionKey, str]
    failures: list[Failure] = msgspec.field(default_factory=list)
    since_ms: int = 0
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
        self._progress_ms = 0
        """When the coordinator last took one: behind it a slow one is not a missing one."""
        self._missing: TidelogError | None = None
        """Why the first one could not be stored so far."""
        self.position_count = 0
        """What the client named in the acknowledgements that wait."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, waiting: Waiting, now_ms: int) -> None:
        """Behind all others."""
        waiting.since_ms = now_ms
        if waiting.correlation_id is not None:
            # Where reading begins does not count: the client did not ask for it.
            waiting.position_count = len(waiting.offsets) + len(waiting.failures)
        self._queue.append(waiting)
        self.position_count += waiting.position_count

    def is_sent(self, request: CommitOffsets) -> bool:
        """Whether this is the one under way; else everybody who waited for it has been told."""
        return self._sent is request

    def next_deadline_ms(self) -> int:
        """When the first one may be sent, or has waited for too long."""
        if not self._queue:
            return NEVER_MS
        late_ms = self._late_ms(self._queue[0])
        return late_ms if self._sent is not None else min(self._due_ms, late_ms)

    def take_answered(self, partitions: Mapping[PartitionKey, Partition]) -> list[SendAcknowledged]:
        """Answers to the first ones, as long as there is nothing to store of them."""
        told: list[SendAcknowledged] = []
        while self._queue and self._sent is None:
            first = self._queue[0]
            for key in [key for key in first.offsets if key not in partitions]:
                del first.offsets[key]
                name = f"{first.topics[key]}-{key.partition}"
                first.failures.append((first.topics[key], key.partition, stale(name)))
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
            group=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            offsets=tuple(
                OffsetToCommit(
                    key=key,
                    committed_offset=offset,
                    leader_epoch=NO_LEADER_EPOCH,
                )
                for key, offset in first.offsets.items()
            ),
        )
        return self._sent

    def postpone(self, error: TidelogError, now_ms: int) -> None:
        """The coordinator could not be asked."""
        self._sent, self._missing = None, error
        self._due_ms = now_ms + limits.RETRY_MS

    def _late_ms(self, waiting: Waiting) -> int:
        return max(waiting.since_ms, self._progress_ms) + limits.NOT_STORED_MS

    def settle(
        self,
        outcome: CommitAnswer | TidelogError,
        now_ms: int,
        on_stored: Callable[[PartitionKey, Offset], None],
    ) -> list[SendAcknowledged]:
        """The first one is answered; what to tell the client of it, if it asked."""
        sent, self._sent, self._missing = self._sent, None, None
        self._progress_ms = now_ms
        assert sent is not None, "an answer to a commit that was never sent"
        first = self._queue[0]
        for place, offset in enumerate(sent.offsets):
            error = outcome if isinstance(outcome, TidelogError) else outcome.errors[place]
            if error is None:
                on_stored(offset.key, offset.committed_offset)
            elif error.code is ErrorCode.UNKNOWN_TOPIC_ID:
                topic, partition = first.topics[offset.key], offset.key.partition
                first.failures.append((topic, partition, deleted(topic, partition)))
            else:
                topic = first.topics[offset.key]
                named = _named(error, offset.key, topic)
                first.failures.append((topic, offset.key.partition, named))
        return self._answer_first()

    def forget(self, gone: Container[PartitionKey]) -> None:
        """Their topics were deleted. What is under way the coordinator refuses by itself."""
        for waiting in self._queue:
            if self._sent is not None and waiting is self._queue[0]:
                continue
            for key in [key for key in waiting.offsets if key in gone]:
                del waiting.offsets[key]
                topic = waiting.topics[key]
                waiting.failures.append((topic, key.partition, deleted(topic, key.partition)))

    def take_late(self, now_ms: int) -> list[SendAcknowledged]:
        """Answers to those that have waited for too long; perhaps one of them is stored yet."""
        told: list[SendAcknowledged] = []
        while self._queue and now_ms >= self._late_ms(self._queue[0]):
            self._sent = None
            self._refuse(self._queue[0], lambda name: _not_stored(name, self._missing))
            told += self._answer_first()
        return told

    def refuse_all(self, refusal: Refusal) -> list[SendAcknowledged]:
        """The member is none any more: nothing of what waits counts."""
        self._sent = self._missing = None
        told: list[SendAcknowledged] = []
        while self._queue:
            self._refuse(self._queue[0], refusal)
            told += self._answer_first()
        assert self.position_count == 0, "nobody waits, and nothing is counted"
        return told

    def _refuse(self, waiting: Waiting, refusal: Refusal) -> None:
        for key in waiting.offsets:
            topic = waiting.topics[key]
            waiting.failures.append((topic, key.partition, refusal(f"{topic}-{key.partition}")))
        waiting.offsets.clear()

    def _answer_first(self) -> list[SendAcknowledged]:
        first = self._queue.popleft()
        self.position_count -= first.position_count
        assert self.position_count >= 0, "what was added once is taken off once"
        if first.correlation_id is None:
            return []
        failures = tuple(first.failures)
        return [SendAcknowledged(correlation_id=first.correlation_id, failures=failures)]


def stale(name: str) -> TidelogError:
    """STALE_ASSIGNMENT."""
    return TidelogError(
        ErrorCode.STALE_ASSIGNMENT,
        tried=f"acknowledge records of {name}",
        happened="this stream does not own the partition any more",
    )


def _named(error: TidelogError, key: PartitionKey, topic: str) -> TidelogError:
    """The client knows topics by their names, the coordinator by their ids."""
    name = f"{topic}-{key.partition}"
    return TidelogError(
        error.code,
        tried=f"acknowledge records of {name}",
        happened=error.happened.replace(str(key), name),
        hint=error.hint,
    )


def deleted(topic: str, partition: int) -> TidelogError:
    """STALE_ASSIGNMENT as well: nobody can ever store it."""
    return TidelogError(
        ErrorCode.STALE_ASSIGNMENT,
        tried=f"acknowledge records of {topic}-{partition}",
        happened=f"topic {topic} was deleted",
        hint="Nothing: nobody gets these records again.",
    )


def silent(name: str) -> TidelogError:
    """The membership is over, and nobody has said so: the partition may be somebody else's."""
    return TidelogError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        tried=f"acknowledge records of {name}",
        happened="the group's coordinator was not heard of for the session timeout, so the stream "
        "owns nothing any more",
        hint=AGAIN,
    )


def _not_stored(name: str, missing: TidelogError | None) -> TidelogError:
    why = "the group's coordinator does not answer" if missing is None else missing.happened
    return TidelogError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        tried=f"acknowledge records of {name}",
        happened=f"not known to be stored after {limits.NOT_STORED_MS} ms: {why}",
        hint=AGAIN,
    )
