"""Topics come to be: names, counts, placement and settings of a creation.

Pure. Owns the limits of counts. It must never write or wait: whoever
calls it proposes the records and decides again if the image moved meanwhile. A creation asked for
again finds its topic there and is refused with TOPIC_ALREADY_EXISTS; nothing is done twice. Topics
are never renamed.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.image.image import Image
from tidelog.metadata.new_topic import NewTopic, TopicDefaults
from tidelog.metadata.records.entries import MetadataRecord, PartitionRecord, TopicRecord
from tidelog.metadata.refusals.common import refuse_duplicates, refuse_too_many
from tidelog.metadata.settings import catalogue
from tidelog.metadata.settings.inherited import cluster_value
from tidelog.metadata.settings.kinds import is_true
from tidelog.metadata.settings.of_topics import canonical_configuration
from tidelog.metadata.topic_names import collisions, validate_topic_name
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.placement.load import (
    candidates_of,
    choose_directory,
    told_unable,
)
from tidelog.metadata_quorum.controller.placement.placement import (
    Placement,
    place_partitions,
    validate_assignments,
)
from tidelog.metadata_quorum.controller.settings.configuration import (
    check_in_sync_min,
    default_in_sync_min,
)
from tidelog.metadata_quorum.controller.topics.internal import announced
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    TOPIC_ID_BYTES,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    TopicId,
)
from tidelog.wire.refusals import invalid

TOPICS_PER_REQUEST_MAX: Final = 1_000
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""Created by one request: what is planned without letting anything else run."""
REPLICAS_PER_REQUEST_MAX: Final = 30_000
"""The same in replicas: each takes about as long to place as a partition."""


class TopicPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A creation that was found right, with everything filled in."""

    topic_id: TopicId
    name: str
    partition_count: int
    replication_factor: int
    records: tuple[MetadataRecord, ...]
    warnings: tuple[str, ...] = ()


def create_topics(
    image: Image,
    wanted: Sequence[NewTopic],
    topic_ids: Sequence[TopicId],
    defaults: TopicDefaults,
) -> Decision[tuple[TopicPlan | TidelogError, ...]]:
    """Each on its own; `topic_ids` are new random ids, one for each."""
    assert len(topic_ids) == len(wanted), "each topic has an id of its own"
    tried = "create topics"
    refuse_too_many(len(wanted), TOPICS_PER_REQUEST_MAX, tried=tried, what="topics")
    refuse_duplicates([each.name for each in wanted], tried=tried, what="topic")
    results: list[TopicPlan | TidelogError] = []
    records: list[MetadataRecord] = []
    warnings: list[str] = []
    taken = RequestSize()
    for topic, topic_id in zip(wanted, topic_ids, strict=True):
        try:
            # Before it is planned: refused later, each of a thousand topics would have been.
            taken.take(*_size_of(image, topic, defaults), tried=f"create topic {topic.name}")
            plan = plan_topic(image, topic, topic_id, defaults)
        except TidelogError as error:
            results.append(error)
            continue
        image = apply_entry(image, plan.records)
        records += plan.records
        warnings += [f"Topic {plan.name}: {each}" for each in plan.warnings]
        results.append(plan)
    return Decision(records=tuple(records), answer=tuple(results), warnings=tuple(warnings))


class RequestSize:
    """What one request creates, counted before any of it is planned."""

    def __init__(self) -> None:
        self.partitions = 0
        self.replicas = 0

    def take(self, partitions: int, factor: int, *, tried: str) -> None:
        """So many more, or INVALID_PARTITION_COUNT; what is refused is not counted."""
        partitions_after = self.partitions + partitions
        replicas_after = self.replicas + partitions * factor
        for what, count, most in (
            ("partitions", partitions_after, PARTITIONS_PER_REQUEST_MAX),
            ("replicas", replicas_after, REPLICAS_PER_REQUEST_MAX),
        ):
            if count > most:
                raise TidelogError(
                    ErrorCode.INVALID_PARTITION_COUNT,
                    tried=f"{tried} with {partitions} partitions",
                    happened=f"the request would create {count} {what} with it; one creates at "
                    f"most {most}",
                    hint="Split the call: create fewer at a time, the rest of a topic's partitions "
                    "later.",
                )
        self.partitions, self.replicas = partitions_after, replicas_after


def plan_topic(
    image: Image, wanted: NewTopic, topic_id: TopicId, defaults: TopicDefaults
) -> TopicPlan:
    """The records that create the topic, or why it cannot be created."""
    assert len(topic_id) == TOPIC_ID_BYTES, "a topic id has 16 bytes"
    assert topic_id not in image.topics, "a topic id is drawn once"
    validate_topic_name(wanted.name)
    if wanted.name in image.topic_ids:
        raise TidelogError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            tried=f"create topic {wanted.name}",
            happened="a topic of this name exists",
        )
    wanted = _as_announced(image, wanted)
    configuration = canonical_configuration(wanted.configuration, topic=wanted.name)
    placement = _place(image, wanted, defaults)
    factor = len(placement.replicas[0])
    topic = TopicRecord(
        topic_id=topic_id,
        name=wanted.name,
        configuration=_resolve(configuration, factor, wanted.name),
        is_internal=wanted.is_internal,
    )
    return TopicPlan(
        topic_id=topic_id,
        name=wanted.name,
        partition_count=len(placement.replicas),
        replication_factor=factor,
        records=(topic, *partition_records(image, topic_id, 0, placement)),
        warnings=(*placement.warnings, *collisions(image, wanted.name)),
    )


def partition_records(
    image: Image, topic_id: TopicId, first: int, placement: Placement
) -> tuple[PartitionRecord, ...]:
    """New partitions from number `first` on: empty, so all of their replicas are in sync."""
    return tuple(
        PartitionRecord(
            topic_id=topic_id,
            partition=PartitionId(number),
            leader_id=replicas[0],
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            replicas=replicas,
            in_sync_replicas=replicas,
            directories=_directories(image, replicas, PartitionId(number)),
        )
        for number, replicas in enumerate(placement.replicas, first)
    )


def check_partition_count(
    image: Image, count: int, added: int, defaults: TopicDefaults, *, tried: str
) -> None:
    """INVALID_PARTITION_COUNT naming the limit that `count`, of which `added` are new, exceeds."""
    if not 1 <= count <= defaults.partition_count_max:
        raise TidelogError(
            ErrorCode.INVALID_PARTITION_COUNT,
            tried=tried,
            happened=f"a topic has 1 to {defaults.partition_count_max} partitions",
        )
    if image.partition_count + added > defaults.partitions_total_max:
        raise TidelogError(
            ErrorCode.INVALID_PARTITION_COUNT,
            tried=tried,
            happened=f"the cluster has {image.partition_count} and holds at most "
            f"{defaults.partitions_total_max}",
        )


def check_replication_factor(
    image: Image, factor: int, defaults: TopicDefaults, *, tried: str
) -> None:
    """INVALID_REPLICATION_FACTOR above the brokers that can take replicas, or what they can do."""
    able, count = len(candidates_of(image)), len(image.brokers)
    if not 1 <= factor <= able:
        raise TidelogError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            tried=tried,
            happened=f"{able} of {count} registered brokers take replicas{told_unable(image)}",
        )
    if factor > defaults.replication_factor_max:
        raise TidelogError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            tried=tried,
            happened=f"a partition has 1 to {defaults.replication_factor_max} replicas",
        )


def is_placement_strict(image: Image) -> bool:
    """Whether a placement that does not spread is refused."""
    return is_true(cluster_value(image, catalogue.PLACEMENT_STRICT))


def _as_announced(image: Image, wanted: NewTopic) -> NewTopic:
    """A reserved name gets the topic that the cluster's formatting has announced, and no other."""
    topic = announced(image, wanted.name)
    if topic is None:
        return wanted
    is_other = (
        wanted.configuration
        or wanted.assignments
        or wanted.partition_count not in (0, topic.partition_count)
        or wanted.replication_factor not in (0, topic.replication_factor)
    )
    if is_other:
        raise invalid(
            f"create topic {wanted.name}", "the cluster itself uses it; how it is made is fixed"
        )
    return msgspec.structs.replace(
        wanted,
        partition_count=topic.partition_count,
        replication_factor=topic.replication_factor,
        configuration=topic.settings,
        is_internal=True,
    )


def _size_of(image: Image, wanted: NewTopic, defaults: TopicDefaults) -> tuple[int, int]:
    """Partitions, and replicas of each, with defaults filled in; one beyond the limits of a topic
    counts as nothing: it is refused for that, and not planned."""
    wanted = _as_announced(image, wanted)
    if wanted.assignments:
        return len(wanted.assignments), len(wanted.assignments[0])
    count, factor = _count_of(image, wanted, defaults), _factor_of(image, wanted, defaults)
    is_planned = count <= defaults.partition_count_max and factor <= len(image.brokers)
    return (count, factor) if is_planned else (0, 0)


def _count_of(image: Image, wanted: NewTopic, defaults: TopicDefaults) -> int:
    return wanted.partition_count or _default(
        image, catalogue.DEFAULT_PARTITIONS, 0, defaults.partition_count
    )


def _factor_of(image: Image, wanted: NewTopic, defaults: TopicDefaults) -> int:
    return wanted.replication_factor or _default(
        image,
        catalogue.DEFAULT_REPLICATION_FACTOR,
        image.cluster.default_replication_factor,
        defaults.replication_factor,
    )


def _place(image: Image, wanted: NewTopic, defaults: TopicDefaults) -> Placement:
    if wanted.assignments:
        return _place_as_told(image, wanted, defaults)
    count = _count_of(image, wanted, defaults)
    tried = f"create topic {wanted.name} with {count} partitions"
    check_partition_count(image, count, count, defaults, tried=tried)
    factor = _factor_of(image, wanted, defaults)
    tried = f"create topic {wanted.name} with replication factor {factor}"
    check_replication_factor(image, factor, defaults, tried=tried)
    return place_partitions(
        candidates_of(image),
        partition_count=count,
        replication_factor=factor,
        tried=tried,
        is_strict=is_placement_strict(image),
    )


def _place_as_told(image: Image, wanted: NewTopic, defaults: TopicDefaults) -> Placement:
    tried = f"create topic {wanted.name} with the replicas given"
    count, factor = len(wanted.assignments), len(wanted.assignments[0])
    if wanted.partition_count not in (0, count):
        raise invalid(tried, f"they are for {count} partitions, not {wanted.partition_count}")
    if wanted.replication_factor not in (0, factor):
        raise invalid(tried, f"there are {factor} of each, not {wanted.replication_factor}")
    check_partition_count(image, count, count, defaults, tried=tried)
    placement = validate_assignments(
        candidates_of(image),
        wanted.assignments,
        tried=tried,
        is_strict=is_placement_strict(image),
    )
    check_replication_factor(image, factor, defaults, tried=tried)
    return placement


def _default(image: Image, name: str, formatted: int, of_node: int) -> int:
    """Set for the cluster, else decided when it was formatted, else the node's."""
    text = image.cluster_configuration.get(name)
    return int(text) if text is not None else formatted or of_node


def _resolve(configuration: dict[str, str], factor: int, topic: str) -> dict[str, str]:
    """Settings whose default depends on the creation are written down by it."""
    name = catalogue.MIN_IN_SYNC_REPLICAS
    given = configuration.get(name)
    if given is not None:
        check_in_sync_min(int(given), factor, tried=f"set `{name}` of topic {topic}")
    elif factor > 1:
        return {**configuration, name: default_in_sync_min(factor)}
    return configuration


def _directories(
    image: Image, replicas: Sequence[BrokerId], number: PartitionId
) -> tuple[bytes, ...]:
    found = tuple(choose_directory(image, replica, number) for replica in replicas)
    return found if any(found) else ()
