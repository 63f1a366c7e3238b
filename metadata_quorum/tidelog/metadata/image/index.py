"""Which partitions a broker holds and leads, so that nobody has to walk all of them.

Owns the index's form and how it follows a change. It says nothing that the topics do not say;
`invariants.check` builds it anew and compares. Partitions of a topic are the bits of a number:
partition 0 is the lowest. That takes no memory to speak of for the many topics of one partition,
and a few bytes for one of ten thousand.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tidelog.metadata.image.map import REMOVED, ImageMap, Removed
from tidelog.metadata.image.nodes import PartitionImage
from tidelog.wire.ids import BrokerId, PartitionId, TopicId


class PartitionSet(msgspec.Struct, frozen=True):
    """Partitions of many topics."""

    masks: ImageMap[TopicId, int] = msgspec.field(default_factory=ImageMap)
    """Topic → its partitions that are in the set, as bits; topics without any are not there."""
    count: int = 0

    def __iter__(self) -> Iterator[tuple[TopicId, PartitionId]]:
        """By topic id, then partition."""
        for topic_id, mask in self.masks.items():
            for partition in partitions_in(mask):
                yield topic_id, partition

    def partitions_of(self, topic_id: TopicId) -> Iterator[PartitionId]:
        """The topic's partitions in the set, in ascending order."""
        return partitions_in(self.masks.get(topic_id, 0))

    def has(self, topic_id: TopicId, partition: PartitionId) -> bool:
        """Whether the partition is in it."""
        return bool(self.masks.get(topic_id, 0) >> partition & 1)


EMPTY_SET: Final = PartitionSet()


class PartitionIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Of all partitions of an image."""

    held: ImageMap[BrokerId, PartitionSet] = msgspec.field(default_factory=ImageMap)
    """Broker → the partitions of which it has a replica."""
    led: ImageMap[BrokerId, PartitionSet] = msgspec.field(default_factory=ImageMap)
    """Broker → the partitions that it leads; `NO_LEADER` → those that nobody leads."""
    reassigning: PartitionSet = EMPTY_SET
    """With replicas that come or go."""
    partition_count: int = 0


def partitions_in(mask: int) -> Iterator[PartitionId]:
    """The bits that are set, in ascending order."""
    while mask:
        lowest = mask & -mask
        yield PartitionId(lowest.bit_length() - 1)
        mask ^= lowest


class _Changes:
    """Partitions that come to sets and that leave them: topic → bits."""

    __slots__ = ("added", "removed")

    def __init__(self) -> None:
        self.added: dict[TopicId, int] = {}
        self.removed: dict[TopicId, int] = {}

    def apply_to(self, before: PartitionSet) -> PartitionSet:
        if not self.added and not self.removed:
            return before
        if not before.count and not self.removed:
            return PartitionSet(
                ImageMap.of(self.added), sum(map(int.bit_count, self.added.values()))
            )
        masks: dict[TopicId, int | Removed] = {}
        count = before.count
        for topic_id in dict.fromkeys((*self.removed, *self.added)):
            mask = before.masks.get(topic_id, 0)
            after = mask & ~self.removed.get(topic_id, 0) | self.added.get(topic_id, 0)
            count += after.bit_count() - mask.bit_count()
            masks[topic_id] = after or REMOVED
        assert count >= 0, "a set has no partition less than none"
        return PartitionSet(before.masks.updated(masks), count)


class IndexChanges:
    """Collects how partitions changed; `apply_to` gives the index after all of it."""

    def __init__(self) -> None:
        self._held: dict[BrokerId, _Changes] = {}
        self._led: dict[BrokerId, _Changes] = {}
        self._reassigning = _Changes()
        self._partition_count = 0

    def add(
        self, topic_id: TopicId, before: PartitionImage | None, after: PartitionImage | None
    ) -> None:
        """A partition came (`before` None), went (`after` None) or changed; at most once each."""
        known = after or before
        assert known is not None, "a partition that never was has not changed"
        bit = 1 << known.partition
        replicas_before = () if before is None else before.replicas
        replicas_after = () if after is None else after.replicas
        if replicas_before is not replicas_after and replicas_before != replicas_after:
            _note(self._held, topic_id, bit, replicas_before, replicas_after)
        leader_before = () if before is None else (before.leader_id,)
        leader_after = () if after is None else (after.leader_id,)
        if leader_before != leader_after:
            _note(self._led, topic_id, bit, leader_before, leader_after)
        self._partition_count += (after is not None) - (before is not None)
        if before is not None and before.is_reassigning:
            _set(self._reassigning.removed, topic_id, bit)
        if after is not None and after.is_reassigning:
            _set(self._reassigning.added, topic_id, bit)

    def apply_to(self, before: PartitionIndex) -> PartitionIndex:
        """The index after the changes."""
        return PartitionIndex(
            held=_with_changes(before.held, self._held),
            led=_with_changes(before.led, self._led),
            reassigning=self._reassigning.apply_to(before.reassigning),
            partition_count=before.partition_count + self._partition_count,
        )


def _note(
    changes: dict[BrokerId, _Changes],
    topic_id: TopicId,
    bit: int,
    before: Iterable[BrokerId],
    after: Iterable[BrokerId],
) -> None:
    for broker_id in before:
        _set(_of(changes, broker_id).removed, topic_id, bit)
    for broker_id in after:
        _set(_of(changes, broker_id).added, topic_id, bit)


def _of(changes: dict[BrokerId, _Changes], broker_id: BrokerId) -> _Changes:
    found = changes.get(broker_id)
    if found is None:
        found = changes[broker_id] = _Changes()
    return found


def _set(masks: dict[TopicId, int], topic_id: TopicId, bit: int) -> None:
    masks[topic_id] = masks.get(topic_id, 0) | bit


def _with_changes(
    before: ImageMap[BrokerId, PartitionSet], changes: dict[BrokerId, _Changes]
) -> ImageMap[BrokerId, PartitionSet]:
    after: dict[BrokerId, PartitionSet | Removed] = {}
    for broker_id, each in changes.items():
        changed = each.apply_to(before.get(broker_id, EMPTY_SET))
        after[broker_id] = changed if changed.count else REMOVED
    return before.updated(after)
