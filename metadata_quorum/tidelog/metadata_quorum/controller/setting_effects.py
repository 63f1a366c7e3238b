"""What follows for a topic's partitions when its settings change. Pure.

It must never let a replica be counted on that a leader commits without by the new settings: what
follows stands in the same entry of the log as the change.
"""

from tidelog.metadata_quorum.apply import apply_entry
from tidelog.metadata_quorum.controller.partition_state import PartitionState, in_sync_min
from tidelog.metadata_quorum.controller.setting_catalogue import MIN_IN_SYNC_REPLICAS
from tidelog.metadata_quorum.image import Image
from tidelog.metadata_quorum.records import MetadataRecord, TopicConfigurationChangeRecord


def with_effects(
    image: Image, change: TopicConfigurationChangeRecord
) -> tuple[MetadataRecord, ...]:
    """The change, and what becomes of the topic's partitions by it."""
    if MIN_IN_SYNC_REPLICAS not in change.changes:
        return (change,)
    topic = apply_entry(image, (change,)).topics[change.topic_id]
    minimum = in_sync_min(topic)
    records: list[MetadataRecord] = [change]
    for partition in topic.partitions:
        if partition.eligible_replicas:
            state = PartitionState.of(topic.topic_id, partition)
            state.leave_to_leader(minimum)
            record = state.record()
            if record is not None:
                records.append(record)
    return tuple(records)
