"""What an error says about whether a batch was stored: the producer's most important judgement.

Owns the lists of codes. Nothing is ever sent again whose outcome is unknown, unless it carries a
sequence by which the broker knows it again.
"""

from typing import Final

from tidelog.client.engine.produce.batch import Batch
from tidelog.wire.errors import ErrorCode, TidelogError

OUTCOME_UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNSPECIFIED,
        ErrorCode.UNKNOWN,
        ErrorCode.DEADLINE_EXCEEDED,
        ErrorCode.CANCELLED,
        ErrorCode.INDETERMINATE,
        ErrorCode.STORAGE_FAILED,
        ErrorCode.STORAGE_CORRUPT,
    }
)
"""The broker may have appended the batch before it answered so."""

STALE_METADATA: Final = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_PARTITION,
    }
)
"""The client's view of the cluster is older than the broker's."""

NOT_LET_IN: Final = frozenset({ErrorCode.PERMISSION_DENIED, ErrorCode.UNAUTHENTICATED})
"""A stream that ends so was refused before anything on it was looked at."""

SEQUENCE_REFUSED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.FENCED_PRODUCER_EPOCH,
    }
)
"""The batch does not continue what the partition holds of this producer."""


TRANSACTION_OVER: Final = frozenset(
    {
        ErrorCode.FENCED_PRODUCER_EPOCH,
        ErrorCode.INVALID_TRANSACTION_STATE,
        ErrorCode.TRANSACTION_ABORTED,
        ErrorCode.TRANSACTION_PREPARED,
    }
)
"""Nothing more is let into the transaction that the batch belongs to."""


def is_known_not_stored(error: TidelogError) -> bool:
    """Whether the broker refused the batch before it could have stored it."""
    return error.code not in OUTCOME_UNKNOWN


def indeterminate(topic: str, partition: int, cause: TidelogError) -> TidelogError:
    """The error of every record of a batch that may or may not be stored."""
    return TidelogError(
        ErrorCode.INDETERMINATE,
        tried=f"produce to {topic}-{partition}",
        happened=f"the outcome is unknown: {cause.happened} [{cause.code.name}]",
        hint="read the partition before sending the records again: they may be stored",
    )


def undelivered(
    batch: Batch, timeout_ms: int, hindered_ms: int | None, trouble: TidelogError | None = None
) -> TidelogError:
    """The error of a batch whose time is over and that is not stored; `trouble`: what hinders its
    partition, for one that stood behind others."""
    tried = f"produce to {batch.topic}-{batch.partition}"
    cause = batch.last_error or trouble
    if cause is None:
        return TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=tried,
            happened=f"not sent within delivery_timeout_ms={timeout_ms}",
            hint="raise delivery_timeout_ms, or send less at a time",
        )
    return TidelogError(
        cause.code,
        tried=tried,
        happened=f"not stored within delivery_timeout_ms={timeout_ms}: {cause.happened}"
        + _tries(batch, hindered_ms),
        hint=cause.hint,
    )


def unanswered(
    batch: Batch, timeout_ms: int, hindered_ms: int | None, trouble: TidelogError | None = None
) -> TidelogError:
    """The cause for a batch whose time is over and that may be stored."""
    happened = f"no acknowledgement within delivery_timeout_ms={timeout_ms}"
    cause = batch.last_error or trouble
    if cause is not None:
        happened = f"{happened}: {cause.happened}{_tries(batch, hindered_ms)}"
    return TidelogError(ErrorCode.DEADLINE_EXCEEDED, tried="produce", happened=happened)


def _tries(batch: Batch, hindered_ms: int | None) -> str:
    """How often it was tried, and since when nothing of its partition gets through."""
    tries = f"{batch.attempts} {'try' if batch.attempts == 1 else 'tries'}"
    if hindered_ms is None:
        return f" ({tries})"
    return f" ({tries}; so for {hindered_ms / 1000:.1f} s)"


def so_far(batch: Batch, now_ns: int) -> str:
    """What is known of a batch that is still on its way, for whoever gives up waiting for it."""
    error = batch.last_error
    if error is None:
        return ""
    waited_s = (now_ns - batch.opened_at_ns) / 1e9
    return f"; for {waited_s:.1f} s: {error.happened} [{error.code.name}]{_tries(batch, None)}"
