"""Metadata records → the next image. Pure: the same entries give the same image on every node.

Owns what each record means (with `apply.partitions` and `apply.brokers`). It must never fail on an
entry that a controller wrote: what may be wrong with a request is found by the controller before
anything is written, so a contradiction here is a bug or a corrupt log and stops the node. A
feature level that this release does not know stops it too, typed.

Begin, End and Abort records mean nothing here: `state_machine` hands over only what is visible.
"""

from collections.abc import Sequence
from typing import assert_never

from tidelog.metadata import features
from tidelog.metadata.apply.brokers import (
    apply_broker,
    apply_broker_change,
    apply_broker_removed,
    apply_directory_epochs,
    apply_fence,
)
from tidelog.metadata.apply.draft import Draft, changed_settings
from tidelog.metadata.apply.partitions import (
    apply_partition,
    apply_partition_change,
    apply_topic,
    apply_topic_configuration,
    apply_topic_configuration_change,
    apply_topic_removed,
)
from tidelog.metadata.image.image import ClusterImage, Image, QuotaImage
from tidelog.metadata.records.entries import (
    AbortRecord,
    BeginRecord,
    BrokerChangeRecord,
    BrokerConfigurationRecord,
    BrokerRecord,
    BrokerRemovedRecord,
    ClusterConfigurationRecord,
    ClusterRecord,
    DirectoryEpochsRecord,
    EndRecord,
    FeatureRecord,
    FenceRecord,
    FormatRecord,
    GroupConfigurationRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaRecord,
    TopicConfigurationChangeRecord,
    TopicConfigurationRecord,
    TopicRecord,
    TopicRemovedRecord,
)


def apply_entries(image: Image, entries: Sequence[Sequence[MetadataRecord]]) -> Image:
    """The image after the entries; each counts as one version."""
    draft = Draft(image)
    for entry in entries:
        for record in entry:
            apply_record(draft, record)
    return draft.finish(image.version + len(entries))


def apply_entry(
    image: Image, records: Sequence[MetadataRecord], *, version: int | None = None
) -> Image:
    """The image after one entry, whose version is the next one unless it is given."""
    draft = Draft(image)
    for record in records:
        apply_record(draft, record)
    assert version is None or version >= image.version, "an image never goes back"
    return draft.finish(image.version + 1 if version is None else version)


def apply_record(draft: Draft, record: MetadataRecord) -> None:
    """One record; what many of come stands first."""
    match record:
        case PartitionChangeRecord():
            apply_partition_change(draft, record)
        case PartitionRecord():
            apply_partition(draft, record)
        case TopicRecord():
            apply_topic(draft, record)
        case TopicRemovedRecord():
            apply_topic_removed(draft, record)
        case BrokerRecord():
            apply_broker(draft, record)
        case FenceRecord():
            apply_fence(draft, record)
        case BrokerChangeRecord():
            apply_broker_change(draft, record)
        case DirectoryEpochsRecord():
            apply_directory_epochs(draft, record)
        case BrokerRemovedRecord():
            apply_broker_removed(draft, record)
        case BeginRecord() | EndRecord() | AbortRecord():
            pass
        case _:
            _apply_cluster_record(draft, record)


def _apply_cluster_record(
    draft: Draft,
    record: FormatRecord
    | ClusterRecord
    | FeatureRecord
    | TopicConfigurationRecord
    | TopicConfigurationChangeRecord
    | ClusterConfigurationRecord
    | BrokerConfigurationRecord
    | GroupConfigurationRecord
    | QuotaRecord
    | ProducerIdsRecord,
) -> None:
    match record:
        case FormatRecord():
            assert draft.cluster_id in ("", record.cluster_id), "a log belongs to one cluster"
            draft.cluster_id = record.cluster_id
        case ClusterRecord():
            _apply_cluster(draft, record)
        case FeatureRecord():
            _apply_feature(draft, record)
        case TopicConfigurationRecord():
            apply_topic_configuration(draft, record)
        case TopicConfigurationChangeRecord():
            apply_topic_configuration_change(draft, record)
        case ClusterConfigurationRecord():
            _apply_cluster_configuration(draft, record)
        case BrokerConfigurationRecord():
            _apply_broker_configuration(draft, record)
        case GroupConfigurationRecord():
            _apply_group_configuration(draft, record)
        case QuotaRecord():
            _apply_quota(draft, record)
        case ProducerIdsRecord():
            assert record.next_producer_id >= draft.next_producer_id, "producer ids never fall"
            draft.next_producer_id = record.next_producer_id
        case _:
            assert_never(record)


def _apply_cluster(draft: Draft, record: ClusterRecord) -> None:
    decided = ClusterImage(
        default_replication_factor=record.default_replication_factor,
        internal_replication_factor=record.internal_replication_factor,
        internal_partition_counts=record.internal_partition_counts,
    )
    assert draft.cluster in (ClusterImage(), decided), "a cluster is formatted once"
    draft.cluster = decided


def _apply_feature(draft: Draft, record: FeatureRecord) -> None:
    features.validate_level(record.name, record.level)
    if record.level == 0:
        draft.features.remove(record.name)
    else:
        draft.features.put(record.name, record.level)


def _apply_cluster_configuration(draft: Draft, record: ClusterConfigurationRecord) -> None:
    for name, value in record.changes.items():
        if value is None:
            draft.cluster_configuration.remove(name)
        else:
            draft.cluster_configuration.put(name, value)


def _apply_broker_configuration(draft: Draft, record: BrokerConfigurationRecord) -> None:
    known = draft.broker_configurations.get(record.broker_id)
    after = changed_settings(known or {}, record.changes)
    if after:
        draft.broker_configurations.put(record.broker_id, after)
    else:
        draft.broker_configurations.remove(record.broker_id)


def _apply_group_configuration(draft: Draft, record: GroupConfigurationRecord) -> None:
    known = draft.group_configurations.get(record.group)
    after = changed_settings(known or {}, record.changes)
    if after:
        draft.group_configurations.put(record.group, after)
    else:
        draft.group_configurations.remove(record.group)


def _apply_quota(draft: Draft, record: QuotaRecord) -> None:
    quota = QuotaImage(
        produce_bytes_per_second=record.produce_bytes_per_second,
        fetch_bytes_per_second=record.fetch_bytes_per_second,
        requests_per_second=record.requests_per_second,
    )
    if quota.is_empty:
        draft.quotas.remove(record.client_id)
    else:
        draft.quotas.put(record.client_id, quota)
