"""What an error says about whether a batch was stored: the producer's most important judgement.

Owns the list of codes that leave it open. Nothing is ever sent again whose outcome is unknown.
"""

from typing import Final

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
