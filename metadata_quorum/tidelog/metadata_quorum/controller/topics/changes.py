"""Topics that exist: deleted, or given more partitions.

Pure. It must never take a partition away, nor touch a topic of another id under the same name.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.metadata.image.image import Image, TopicImage
from tidelog.metadata.internal_topics import refuse_internal
from tidelog.metadata.new_topic import TopicDefaults
from tidelog.metadata.records.entries import MetadataRecord, TopicRemovedRecord
from tidelog.metadata.refusals.common import refuse_duplicates, refuse_too_many
from tidelog.metadata.refusals.unknown_topics import unknown_topic
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.placement.load import candidates_of
from tidelog.metadata_quorum.controller.placement.placement import (
    Placement,
    place_partitions,
    validate_assignments,
)
from tidelog.metadata_quorum.controller.topics.creation import (
    RequestSize,
    check_partition_count,
    check_replication_factor,
    is_placement_strict,
    partition_records,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, TopicId
from tidelog.wire.refusals import invalid

TOPICS_MAX: Final = 1_000
"""In one request."""


class TopicSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one is given."""

    name: str = ""
    topic_id: TopicId | None = None


class DeletedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one deletion."""

    name: str = ""
    topic_id: TopicId | None = None
    error: TidelogError | None = None


class PartitionCountChange(msgspec.Struct, frozen=True, kw_only=True):
    """How many partitions a topic is to have, in all."""

    topic: str
    partition_count: int
    assignments: tuple[tuple[BrokerId, ...], ...] = ()
    """Replicas of the new ones; empty: the controller places them."""


class PartitionCountResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many partitions the topic has then."""

    topic: str
    partition_count: int = 0
    error: TidelogError | None = None


def delete_topics(
    image: Image, selectors: Sequence[TopicSelector]
) -> Decision[tuple[DeletedTopic, ...]]:
    """Each on its own; its name is free at once."""
    tried = "delete topics"
    refuse_too_many(len(selectors), TOPICS_MAX, tried=tried, what="topics")
    keys = []
    for each in selectors:
        if bool(each.name) == (each.topic_id is not None):
            raise invalid(tried, "a topic is given by its name or by its id")
        keys.append(_told_name(image, each))
    refuse_duplicates(keys, tried=tried, what="topic")
    records: list[MetadataRecord] = []
    results: list[DeletedTopic] = []
    for each in selectors:
        try:
            topic = _find(image, each)
        except TidelogError as error:
            results.append(DeletedTopic(name=each.name, topic_id=each.topic_id, error=error))
            continue
        records.append(TopicRemovedRecord(topic_id=topic.topic_id))
        results.append(DeletedTopic(name=topic.name, topic_id=topic.topic_id))
    return Decision(records=tuple(records), answer=tuple(results))


def create_partitions(
    image: Image, changes: Sequence[PartitionCountChange], defaults: TopicDefaults
) -> Decision[tuple[PartitionCountResult, ...]]:
    """Each on its own; the number that is there already: success, nothing is done."""
    tried = "add partitions"
    refuse_too_many(len(changes), TOPICS_MAX, tried=tried, what="topics")
    refuse_duplicates([each.topic for each in changes], tried=tried, what="topic")
    records: list[MetadataRecord] = []
    results: list[PartitionCountResult] = []
    warnings: list[str] = []
    taken = RequestSize()
    for change in changes:
        try:
            added, found = _grow(image, change, defaults, taken)
        except TidelogError as error:
            results.append(PartitionCountResult(topic=change.topic, error=error))
            continue
        records += added
        warnings += [f"Topic {change.topic}: {each}" for each in found]
        results.append(
            PartitionCountResult(topic=change.topic, partition_count=change.partition_count)
        )
    return Decision(records=tuple(records), answer=tuple(results), warnings=tuple(warnings))


def _told_name(image: Image, selector: TopicSelector) -> str:
    """Of one topic the same, by name or by id; the id where nobody knows a name."""
    if selector.topic_id is None:
        return selector.name
    topic = image.topics.get(selector.topic_id)
    return selector.topic_id.hex() if topic is None else topic.name


def _find(image: Image, selector: TopicSelector) -> TopicImage:
    if selector.topic_id is None:
        topic = image.topic_named(selector.name)
        if topic is None:
            raise unknown_topic(selector.name, image, tried=f"delete topic {selector.name}")
    else:
        topic = image.topics.get(selector.topic_id)
        if topic is None:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                tried=f"delete topic {selector.topic_id.hex()}",
                happened="there is no topic of this id",
            )
    refuse_internal(topic, tried=f"delete topic {topic.name}")
    return topic


def _grow(
    image: Image, change: PartitionCountChange, defaults: TopicDefaults, taken: RequestSize
) -> tuple[tuple[MetadataRecord, ...], tuple[str, ...]]:
    tried = f"give topic {change.topic} {change.partition_count} partitions"
    topic = image.topic_named(change.topic)
    if topic is None:
        raise unknown_topic(change.topic, image, tried=tried)
    present = len(topic.partitions)
    if topic.is_internal and change.partition_count != present:
        raise invalid(tried, "the cluster itself uses it; its number of partitions is fixed")
    added = change.partition_count - present
    if added < 0:
        raise TidelogError(
            ErrorCode.INVALID_PARTITION_COUNT,
            tried=tried,
            happened=f"it has {present}, and partitions are never taken away",
        )
    if added == 0:
        return (), ()
    # Partitions that the same request gives to other topics count as well.
    total = taken.partitions + added
    check_partition_count(image, change.partition_count, total, defaults, tried=tried)
    taken.take(added, topic.replication_factor, tried=tried)
    placement = _place(image, topic, change, defaults, tried)
    return partition_records(image, topic.topic_id, present, placement), placement.warnings


def _place(
    image: Image,
    topic: TopicImage,
    change: PartitionCountChange,
    defaults: TopicDefaults,
    tried: str,
) -> Placement:
    added = change.partition_count - len(topic.partitions)
    factor = topic.replication_factor
    is_strict = is_placement_strict(image)
    if not change.assignments:
        check_replication_factor(image, factor, defaults, tried=tried)
        return place_partitions(
            candidates_of(image),
            partition_count=added,
            replication_factor=factor,
            tried=tried,
            existing=[partition.replicas for partition in topic.partitions],
            is_strict=is_strict,
        )
    if len(change.assignments) != added:
        raise invalid(tried, f"{added} are new, replicas are given for {len(change.assignments)}")
    if any(len(replicas) != factor for replicas in change.assignments):
        raise invalid(tried, f"each partition of this topic has {factor} replicas")
    return validate_assignments(
        candidates_of(image), change.assignments, tried=tried, is_strict=is_strict
    )
