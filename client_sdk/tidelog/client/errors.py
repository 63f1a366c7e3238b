"""The errors that a user of the SDK meets.

Owns the subclasses that only a client raises; everything else is a TidelogError with a code.
It must never import gRPC or protobuf.
"""

import enum
from collections.abc import Mapping

from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import CATALOGUE, ErrorCode, ReadPlace, TidelogError

__all__ = [
    "CATALOGUE",
    "ArgumentTypeError",
    "CommitFailedError",
    "ErrorCode",
    "ForkedClientError",
    "LogTruncationError",
    "NextStep",
    "PeerError",
    "ReadPlace",
    "TidelogError",
    "TransactionError",
    "WakeupError",
]


def with_article(name: str) -> str:
    """`an AdminClient`, `a Producer`."""
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


class ArgumentTypeError(TidelogError, TypeError):
    """An argument is of a type that the call does not take; nothing was done.

    It is a TypeError as well: what a Python program catches for such a mistake catches it.
    """

    def __init__(self, *, tried: str, happened: str, hint: str = "") -> None:
        super().__init__(ErrorCode.INVALID_ARGUMENT, tried=tried, happened=happened, hint=hint)


class ForkedClientError(TidelogError):
    """A client is used in a forked child in which gRPC cannot work."""

    def __init__(self, *, tried: str, happened: str, hint: str = "") -> None:
        super().__init__(
            ErrorCode.FORKED_CLIENT,
            tried=tried,
            happened=happened,
            hint=hint
            or "start workers with the spawn or forkserver method of multiprocessing, "
            "and make clients in the child",
        )


class WakeupError(TidelogError):
    """Another thread called `wakeup`."""

    def __init__(self, *, tried: str, happened: str, hint: str = "") -> None:
        super().__init__(ErrorCode.CANCELLED, tried=tried, happened=happened, hint=hint)


class LostAnswerError(TidelogError):
    """The call was sent, as far as anybody knows, and no answer came: it may have been done."""


class NoAnswerError(LostAnswerError):
    """Nobody said anything in time: it tells nothing of what became of the call, nor why."""


def is_lost(error: TidelogError) -> bool:
    """Whether a call that failed like this may have been done; a broker that waited in vain for
    another one says so too."""
    return isinstance(error, LostAnswerError) or error.code is ErrorCode.DEADLINE_EXCEEDED


class LogTruncationError(TidelogError):
    """Records that this consumer has read are not in the log any more.

    Raised without a reset policy, at each poll until the consumer seeks: its own copy of what was
    lost may be the last one. `divergent_offset` is where its history and the log part.
    """

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        offset: int,
        leader_epoch: int,
        divergent_offset: int,
    ) -> None:
        name = f"{topic_partition.topic}-{topic_partition.partition}"
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            tried=f"read {name} at offset {offset}, behind leader epoch {leader_epoch}",
            happened=f"the log was truncated: from offset {divergent_offset} on it does not hold "
            "what was read before",
            hint=f"seek to {divergent_offset} to read what is there now",
        )
        self.topic_partition = topic_partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.divergent_offset = divergent_offset

    def __reduce__(self) -> tuple[object, ...]:
        told = (self.topic_partition, self.offset, self.leader_epoch, self.divergent_offset)
        return (_rebuild_truncation, told)


def _rebuild_truncation(
    topic_partition: TopicPartition, offset: int, leader_epoch: int, divergent_offset: int
) -> LogTruncationError:
    return LogTruncationError(
        topic_partition=topic_partition,
        offset=offset,
        leader_epoch=leader_epoch,
        divergent_offset=divergent_offset,
    )


class NextStep(enum.Enum):
    """What helps after a call of a transaction did not work."""

    AGAIN = "again"
    """The same call once more."""
    ABORT = "abort"
    """Nothing of this transaction is committed: abort it, and begin again."""
    STOP = "stop"
    """This producer is done for good: close it."""
    CORRECT = "correct"
    """The call does not fit, or its arguments are wrong: the hint says what to change."""


class TransactionError(TidelogError):
    """A call of a transaction, or a record in it, did not work.

    At most one of `retriable`, `abort_required` and `fatal` is true, and says what to do next: the
    same call once more; abort and begin again; stop this producer. If none is, the call itself is
    wrong, and the hint says what to change.
    """

    def __init__(
        self,
        code: ErrorCode,
        *,
        tried: str,
        happened: str,
        hint: str = "",
        next_step: NextStep = NextStep.CORRECT,
        decided: str | None = None,
    ) -> None:
        super().__init__(code, tried=tried, happened=happened, hint=hint)
        self.next_step = next_step
        self.decided = decided
        """`commit` or `abort`: an earlier call had decided so, whose answer was lost."""

    @classmethod
    def of(cls, error: TidelogError, next_step: NextStep) -> "TransactionError":
        """The same error, with what to do next."""
        return cls(
            error.code,
            tried=error.tried,
            happened=error.happened,
            hint=error.hint,
            next_step=next_step,
            decided=error.decided if isinstance(error, TransactionError) else None,
        )

    @property
    def retriable(self) -> bool:
        """Whether the same call is to be made again."""
        return self.next_step is NextStep.AGAIN

    @property
    def abort_required(self) -> bool:
        """Whether the transaction can only be aborted."""
        return self.next_step is NextStep.ABORT

    @property
    def txn_requires_abort(self) -> bool:
        """The same, by the name that Kafka's clients have for it."""
        return self.abort_required

    @property
    def fatal(self) -> bool:
        """Whether the producer cannot be used any more."""
        return self.next_step is NextStep.STOP

    def __reduce__(self) -> tuple[object, ...]:
        told = (self.code, self.tried, self.happened, self.hint)
        return (_rebuild_transaction_error, (*told, self.next_step, self.decided))


def _rebuild_transaction_error(
    code: ErrorCode, tried: str, happened: str, hint: str, next_step: NextStep, decided: str | None
) -> TransactionError:
    return TransactionError(
        code, tried=tried, happened=happened, hint=hint, next_step=next_step, decided=decided
    )


class CommitFailedError(TidelogError):
    """Offsets were not stored: the partitions are not this member's any more.

    `partitions` tells which; what was read of them since the last commit is delivered again to
    their new owners. Offsets of other partitions of the same commit are stored.
    """

    def __init__(self, *, group: str, failures: Mapping[TopicPartition, TidelogError]) -> None:
        assert failures, "a commit fails for some partition"
        named = ", ".join(f"{name[0]}-{name[1]}" for name in failures)
        reason = next(iter(failures.values()))
        is_moved = reason.code is ErrorCode.STALE_ASSIGNMENT
        super().__init__(
            reason.code,
            tried=f"commit offsets of {named} for group {group!r}",
            happened=f"{reason.happened}; what was read of it since the last commit is delivered "
            "again to the new owner",
            hint="commit before the partition is taken away, in on_partitions_revoked; between two "
            "polls nobody may take longer than max_poll_interval_ms"
            if is_moved
            else reason.hint,
        )
        self.group = group
        self.failures = dict(failures)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Of which nothing was stored."""
        return tuple(self.failures)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_commit_failed, (self.group, self.failures))


def _rebuild_commit_failed(
    group: str, failures: dict[TopicPartition, TidelogError]
) -> CommitFailedError:
    return CommitFailedError(group=group, failures=failures)


class PeerError(TidelogError):
    """What a broker answered; it knows of codes that this release has no name for."""

    def __init__(
        self,
        code: ErrorCode,
        *,
        tried: str,
        happened: str,
        hint: str = "",
        retriable: bool | None = None,
        retry_after_ms: int = 0,
        go_on_at: ReadPlace | None = None,
    ) -> None:
        super().__init__(code, tried=tried, happened=happened, hint=hint, go_on_at=go_on_at)
        self._is_retriable = retriable
        self.retry_after_ms = retry_after_ms

    @property
    def retriable(self) -> bool:
        """As the broker said; it may know better than this release's catalogue."""
        if self._is_retriable is None:
            return CATALOGUE[self.code].retriable
        return self._is_retriable

    def __reduce__(self) -> tuple[object, ...]:
        told = (self.code, self.tried, self.happened, self.hint)
        known = self._is_retriable, self.retry_after_ms, self.go_on_at
        return (_rebuild_peer_error, (*told, *known))


def _rebuild_peer_error(
    code: ErrorCode,
    tried: str,
    happened: str,
    hint: str,
    retriable: bool | None,
    retry_after_ms: int,
    go_on_at: ReadPlace | None,
) -> PeerError:
    return PeerError(
        code,
        tried=tried,
        happened=happened,
        hint=hint,
        retriable=retriable,
        retry_after_ms=retry_after_ms,
        go_on_at=go_on_at,
    )
