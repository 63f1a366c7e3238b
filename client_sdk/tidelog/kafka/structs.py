"""kafka-python's small values, by its names.

Owns those that the client does not have; the others are the client's own. Values only.
"""

from typing import Any, NamedTuple

from tidelog.client.types.records import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "ConsumerGroupMetadata",
    "GroupInformation",
    "MemberInformation",
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


class MemberInformation(NamedTuple):
    """A member of a group, as version 2 shows it."""

    member_id: str
    client_id: str
    client_host: str
    member_metadata: Any
    member_assignment: Any


class GroupInformation(NamedTuple):
    """A group and its members, as version 2 shows them."""

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberInformation]
    authorized_operations: list[str]


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership at one moment."""

    group_id: str | None = None
    generation_id: int = -1
    """The member epoch: a group here has no generations."""
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED
