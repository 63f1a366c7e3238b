"""Checks the ids of topics that come from clients. Pure."""

from tidelog.broker.shared.errors import invalid
from tidelog.wire.ids import TOPIC_ID_BYTES, TopicId


def validate_topic_id(topic_id: bytes, *, tried: str) -> TopicId:
    """An id from outside has the right length, or is refused."""
    if len(topic_id) != TOPIC_ID_BYTES:
        raise invalid(tried, f"the topic id has {len(topic_id)} bytes, not {TOPIC_ID_BYTES}")
    return TopicId(topic_id)
