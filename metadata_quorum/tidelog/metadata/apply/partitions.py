"""What the records of topics and partitions do to the image."""

from typing import TypeVar

from tidelog.metadata.apply.draft import Draft, changed_settings
from tidelog.metadata.image.image import PartitionImage, TopicImage
from tidelog.metadata.records.cluster import (
    TopicConfigurationChangeRecord,
    TopicConfigurationRecord,
)
from tidelog.metadata.records.topic import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    TopicRemovedRecord,
)
from tidelog.wire.ids import TOPIC_ID_BYTES, BrokerEpoch, TopicId

T = TypeVar("T")


def apply_topic(draft: Draft, record: TopicRecord) -> None:
    """A new topic; its name and id are not in use, nor was the id ever."""
    assert len(record.topic_id) == TOPIC_ID_BYTES, "a topic id has 16 bytes"
    assert draft.topics.get(record.topic_id) is None, (
        f"topic id {record.topic_id.hex()} is used twice"
    )
    assert not draft.is_removed(record.topic_id), f"{record.topic_id.hex()} comes back"
    assert draft.topic_ids.get(record.name) is None, f"topic name {record.name} is used twice"
    topic = TopicImage(
        topic_id=record.topic_id,
        name=record.name,
        configuration=record.configuration,
        is_internal=record.is_internal,
    )
    draft.topics.put(record.topic_id, topic)
    draft.topic_ids.put(record.name, record.topic_id)


def apply_topic_removed(draft: Draft, record: TopicRemovedRecord) -> None:
    """The name is free at once."""
    draft.remove_topic(_topic(draft, record.topic_id))


def apply_topic_configuration(draft: Draft, record: TopicConfigurationRecord) -> None:
    """All settings of the topic at once."""
    topic = _topic(draft, record.topic_id)
    _configure(draft, topic, record.configuration, topic.flushed_since)


def apply_topic_configuration_change(draft: Draft, record: TopicConfigurationChangeRecord) -> None:
    """Some settings of the topic."""
    topic = _topic(draft, record.topic_id)
    flushed_since = topic.flushed_since if record.flushed_since is None else record.flushed_since
    configuration = changed_settings(topic.configuration, record.changes)
    _configure(draft, topic, configuration, flushed_since)


def apply_partition(draft: Draft, record: PartitionRecord) -> None:
    """The whole state of a partition."""
    topic = _topic(draft, record.topic_id)
    partitions = draft.partitions_of(topic)
    number = record.partition
    assert 0 <= number <= len(partitions), f"{topic.name} lacks the partition before {number}"
    if number < len(partitions):
        _validate_epochs(topic, partitions[number], record)
    changed = PartitionImage(
        partition=number,
        leader_id=record.leader_id,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        replicas=draft.shared(record.replicas),
        in_sync_replicas=draft.shared(record.in_sync_replicas),
        directories=_shared_directories(draft, record.directories),
        eligible_replicas=record.eligible_replicas,
        last_known_eligible=record.last_known_eligible,
        adding_replicas=record.adding_replicas,
        removing_replicas=record.removing_replicas,
        is_recovered_unclean=record.is_recovered_unclean,
        called_off_replicas=record.called_off_replicas,
        unclean_epoch=record.unclean_epoch,
    )
    draft.put_partition(topic, changed)


def apply_partition_change(draft: Draft, record: PartitionChangeRecord) -> None:
    """What is not None replaces what was known."""
    topic = _topic(draft, record.topic_id)
    partitions = draft.partitions_of(topic)
    number = record.partition
    assert 0 <= number < len(partitions), f"{topic.name} has no partition {number}"
    known = partitions[number]
    assert record.partition_epoch == known.partition_epoch + 1, (
        f"a change of {topic.name}-{number} leads to epoch {record.partition_epoch}, "
        f"it is at {known.partition_epoch}"
    )
    changed = PartitionImage(
        partition=number,
        leader_id=_or(record.leader_id, known.leader_id),
        leader_epoch=_or(record.leader_epoch, known.leader_epoch),
        partition_epoch=record.partition_epoch,
        replicas=_or(record.replicas, known.replicas),
        in_sync_replicas=draft.shared(_or(record.in_sync_replicas, known.in_sync_replicas)),
        directories=(
            known.directories
            if record.directories is None
            else _shared_directories(draft, record.directories)
        ),
        eligible_replicas=_or(record.eligible_replicas, known.eligible_replicas),
        last_known_eligible=_or(record.last_known_eligible, known.last_known_eligible),
        adding_replicas=_or(record.adding_replicas, known.adding_replicas),
        removing_replicas=_or(record.removing_replicas, known.removing_replicas),
        is_recovered_unclean=_or(record.is_recovered_unclean, known.is_recovered_unclean),
        called_off_replicas=_or(record.called_off_replicas, known.called_off_replicas),
        unclean_epoch=_or(record.unclean_epoch, known.unclean_epoch),
    )
    assert changed.leader_epoch >= known.leader_epoch, "a leader epoch never falls"
    draft.put_partition(topic, changed)


def _topic(draft: Draft, topic_id: TopicId) -> TopicImage:
    topic = draft.topics.get(topic_id)
    assert topic is not None, f"a record of the unknown topic {topic_id.hex()}"
    return topic


def _configure(
    draft: Draft,
    topic: TopicImage,
    configuration: dict[str, str],
    flushed_since: BrokerEpoch | None,
) -> None:
    changed = TopicImage(
        topic_id=topic.topic_id,
        name=topic.name,
        configuration=configuration,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        flushed_since=flushed_since,
    )
    draft.topics.put(topic.topic_id, changed)


def _validate_epochs(topic: TopicImage, known: PartitionImage, record: PartitionRecord) -> None:
    assert record.partition_epoch > known.partition_epoch, (
        f"{topic.name}-{record.partition} is at epoch {known.partition_epoch}, "
        f"a record leads to {record.partition_epoch}"
    )
    assert record.leader_epoch >= known.leader_epoch, "a leader epoch never falls"


def _shared_directories(draft: Draft, directories: tuple[bytes, ...]) -> tuple[bytes, ...]:
    if not directories:
        return ()
    return draft.shared(tuple([draft.shared(each) for each in directories]))


def _or(changed: T | None, known: T) -> T:
    return known if changed is None else changed
