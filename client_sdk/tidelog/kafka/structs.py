"""kafka-python's small values, by its names.

Owns those that the client does not have; the others are the client's own. Values only.
"""

from typing import NamedTuple

from tidelog.client.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "ConsumerGroupMetadata",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "TopicPartitionReplica",
]


class TopicPartitionReplica(NamedTuple):
    """One replica of one partition."""

    topic: str
    partition: int
    broker_id: int


class MemberState:
    """How a consumer stands in its group."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership at one moment."""

    group_id: str | None = None
    generation_id: int = -1
    """The member epoch: a group here has no generations."""
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED
