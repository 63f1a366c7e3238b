"""Refusals that every room makes alike. Pure."""

from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TOPIC_ID_BYTES, TopicId


def invalid(tried: str, happened: str, hint: str = "") -> TidelogError:
    """INVALID_ARGUMENT: a value of the request is not allowed."""
    return TidelogError(ErrorCode.INVALID_ARGUMENT, tried=tried, happened=happened, hint=hint)


def validate_topic_id(topic_id: bytes, *, tried: str) -> TopicId:
    """An id from outside has the right length, or is refused."""
    if len(topic_id) != TOPIC_ID_BYTES:
        raise invalid(tried, f"the topic id has {len(topic_id)} bytes, not {TOPIC_ID_BYTES}")
    return TopicId(topic_id)


def validate_cluster(theirs: str, ours: str, *, tried: str) -> None:
    """WRONG_CLUSTER unless both nodes belong to the same one."""
    if theirs != ours:
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"the caller belongs to cluster {theirs[:100]}, this node to {ours}",
        )
