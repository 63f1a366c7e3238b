"""Metadata records → the next image. Pure: the same entries give the same image on every node.

Owns what each record means. It must never fail on an entry that a controller wrote: what may be
wrong with a request is found by `decisions` before anything is written, so a contradiction here is
a bug or a corrupt log and stops the node.
"""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from tidelog.metadata_quorum.image import BrokerImage, Image, PartitionImage, TopicImage
from tidelog.metadata_quorum.records import (
    BrokerRecord,
    FenceRecord,
    FormatRecord,
    MetadataRecord,
    PartitionRecord,
    TopicConfigurationRecord,
    TopicRecord,
)
from tidelog.wire.ids import BrokerId, TopicId


class _Draft:
    """The next image while one entry is applied: outer maps are copied once, nodes replaced."""

    def __init__(self, image: Image) -> None:
        self.version = image.version
        self.cluster_id = image.cluster_id
        self.topics: dict[TopicId, TopicImage] = dict(image.topics)
        self.topic_ids: dict[str, TopicId] = dict(image.topic_ids)
        self.brokers: dict[BrokerId, BrokerImage] = dict(image.brokers)
        self.partitions: dict[TopicId, list[PartitionImage]] = {}
        """Of the topics of which partitions were touched: put into the topics at the end."""

    def partitions_of(self, topic: TopicImage) -> list[PartitionImage]:
        """To be changed in place: a copy for each record would cost their number squared."""
        if topic.topic_id not in self.partitions:
            self.partitions[topic.topic_id] = list(topic.partitions)
        return self.partitions[topic.topic_id]

    def finish(self) -> Image:
        for topic_id, partitions in self.partitions.items():
            self.topics[topic_id] = msgspec.structs.replace(
                self.topics[topic_id], partitions=tuple(partitions)
            )
        return Image(
            version=self.version,
            cluster_id=self.cluster_id,
            topics=self.topics,
            topic_ids=self.topic_ids,
            brokers=self.brokers,
        )


def apply_entries(image: Image, entries: Sequence[Sequence[MetadataRecord]]) -> Image:
    """The image after the entries; each counts as one version."""
    draft = _Draft(image)
    for entry in entries:
        for record in entry:
            _apply_record(draft, record)
        draft.version += 1
    assert draft.version == image.version + len(entries), "each entry is one version"
    return draft.finish()


def apply_entry(image: Image, records: Sequence[MetadataRecord]) -> Image:
    """The image after one entry."""
    return apply_entries(image, (records,))


def _apply_record(draft: _Draft, record: MetadataRecord) -> None:
    match record:
        case FormatRecord():
            assert draft.cluster_id in ("", record.cluster_id), "a log belongs to one cluster"
            draft.cluster_id = record.cluster_id
        case BrokerRecord():
            _apply_broker(draft, record)
        case FenceRecord():
            _apply_fence(draft, record)
        case TopicRecord():
            _apply_topic(draft, record)
        case PartitionRecord():
            _apply_partition(draft, record)
        case TopicConfigurationRecord():
            topic = draft.topics[record.topic_id]
            changed = msgspec.structs.replace(topic, configuration=record.configuration)
            draft.topics[record.topic_id] = changed
        case _:
            assert_never(record)


def _apply_broker(draft: _Draft, record: BrokerRecord) -> None:
    known = draft.brokers.get(record.broker_id)
    assert known is None or known.epoch < record.epoch, (
        f"broker {record.broker_id} registers with epoch {record.epoch}, not above its last one"
    )
    draft.brokers[record.broker_id] = BrokerImage(
        broker_id=record.broker_id,
        epoch=record.epoch,
        incarnation=record.incarnation,
        listeners=record.listeners,
        host_name=record.host_name,
        rack=record.rack,
        is_fenced=record.is_fenced,
    )


def _apply_fence(draft: _Draft, record: FenceRecord) -> None:
    known = draft.brokers.get(record.broker_id)
    assert known is not None, f"broker {record.broker_id} is fenced before it was registered"
    if known.epoch == record.epoch:
        changed = msgspec.structs.replace(known, is_fenced=record.is_fenced)
        draft.brokers[record.broker_id] = changed


def _apply_topic(draft: _Draft, record: TopicRecord) -> None:
    assert record.topic_id not in draft.topics, f"topic id {record.topic_id.hex()} is used twice"
    assert record.name not in draft.topic_ids, f"topic name {record.name} is used twice"
    draft.topics[record.topic_id] = TopicImage(
        topic_id=record.topic_id,
        name=record.name,
        configuration=record.configuration,
        is_internal=record.is_internal,
    )
    draft.topic_ids[record.name] = record.topic_id


def _apply_partition(draft: _Draft, record: PartitionRecord) -> None:
    topic = draft.topics.get(record.topic_id)
    assert topic is not None, f"a partition of the unknown topic {record.topic_id.hex()}"
    partitions = draft.partitions_of(topic)
    assert record.partition <= len(partitions), f"{topic.name} lacks the partition before this one"
    changed = PartitionImage(
        partition=record.partition,
        leader_id=record.leader_id,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        replicas=record.replicas,
        in_sync_replicas=record.in_sync_replicas,
    )
    partitions[record.partition : record.partition + 1] = [changed]
