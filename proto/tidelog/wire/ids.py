"""Strongly typed ids and positions, so that an offset can never be passed for an epoch.

Owns the glossary's numbers as types; holds no behaviour beyond printing topic ids and partitions.
"""

from typing import Final, NewType

import msgspec

Offset = NewType("Offset", int)
"""A record's place in a partition."""

BytePosition = NewType("BytePosition", int)
"""A place in a file."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Generation of a partition's leadership."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Generation of a partition's replica and in-sync sets."""

Term = NewType("Term", int)
LogIndex = NewType("LogIndex", int)

BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
PartitionId = NewType("PartitionId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)

TopicId = NewType("TopicId", bytes)
"""Sixteen random bytes; everything persisted and every call between nodes is keyed by it."""

NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = Sequence(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_OFFSET: Final = Offset(-1)
"""There is none, or it is not known."""

TOPIC_ID_BYTES: Final = 16


class PartitionKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Which partition: everything that is stored or sent between nodes is keyed by it."""

    topic_id: TopicId
    partition: PartitionId

    def __str__(self) -> str:
        return f"{topic_id_text(self.topic_id)}-{self.partition}"


def topic_id_text(topic_id: TopicId) -> str:
    """The printed form: 32 hexadecimal digits, also the name of the partition's directory."""
    assert len(topic_id) == TOPIC_ID_BYTES, f"a topic id has 16 bytes, not {len(topic_id)}"
    return topic_id.hex()
