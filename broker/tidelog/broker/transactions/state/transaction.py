"""Transactional ids as they are in memory: a stored value each, and what is going on beside. Pure.

Owns the shape. `value` is changed by `replay` only; everything else is volatile, and a load begins
it again. Dictionaries are never iterated where their order could be seen: what is shown is sorted.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidelog.broker.transactions.state.records import TouchedTopic, TransactionValue
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

NEVER_MS: Final = 1 << 62
"""A deadline that does not come."""


class MarkerProgress(msgspec.Struct, kw_only=True):
    """How far the markers of a transaction have come."""

    waiting: dict[PartitionKey, None]
    """Partitions whose marker is not known to be there."""
    sent: dict[PartitionKey, int]
    """Those of them that a `SendMarkers` is on its way to, by its id."""
    unanswered: dict[int, int] = msgspec.field(default_factory=dict)
    """Of how many partitions each sending is still to be answered."""
    attempt: int = 0


class Transaction(msgspec.Struct, kw_only=True):
    """One transactional id."""

    transactional_id: str
    value: TransactionValue
    keys: dict[PartitionKey, None]
    """What the transaction in progress touches: `value.topics` to look up in."""

    due_ms: int = NEVER_MS
    """When something is to be done without being asked: the timeout of a transaction in progress,
    the next attempt of markers, the notice of a prepared one."""
    timer_ms: int = NEVER_MS
    """When the timer looks at it next."""
    markers: MarkerProgress | None = None
    """None: no decision, or one that is not committed yet. A marker that left before would make a
    decision visible that a failover can take back."""


class Transactions(msgspec.Struct):
    """All transactional ids of a core."""

    by_id: dict[str, Transaction] = msgspec.field(default_factory=dict)
    prepared: dict[str, str] = msgspec.field(default_factory=dict)
    """Principals of those that are prepared, by transactional id."""


def keys_of(topics: Iterable[TouchedTopic]) -> dict[PartitionKey, None]:
    """Returns partitions from their stored form, in ascending order."""
    return {
        PartitionKey(each.topic_id, PartitionId(partition)): None
        for each in topics
        for partition in each.partitions
    }


def touched_topics(keys: Iterable[PartitionKey]) -> tuple[TouchedTopic, ...]:
    """Returns the stored form of partitions."""
    found: dict[TopicId, list[int]] = {}
    for key in sorted(keys):
        found.setdefault(key.topic_id, []).append(key.partition)
    return tuple(TouchedTopic(topic_id, tuple(numbers)) for topic_id, numbers in found.items())
