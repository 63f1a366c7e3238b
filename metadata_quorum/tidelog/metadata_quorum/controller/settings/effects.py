"""What follows for a topic and its partitions when its settings change. Pure.

It must never let a replica be counted on that a leader commits without by the new settings: what
follows stands in the same entry of the log as the change. Nor may it forget that records were
acknowledged before they were flushed.
"""

import msgspec

from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.eligibility import in_sync_min, is_flush_sync
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import MetadataRecord, TopicConfigurationChangeRecord
from tidelog.metadata_quorum.controller.partitions.state import PartitionState


def with_effects(
    image: Image, change: TopicConfigurationChangeRecord
) -> tuple[MetadataRecord, ...]:
    """The change, and what becomes of the topic and its partitions by it."""
    topic = apply_entry(image, (change,)).topics[change.topic_id]
    if is_flush_sync(topic) and not is_flush_sync(image.topics[change.topic_id]):
        # Who is registered by now may hold what was acknowledged before it was flushed.
        change = msgspec.structs.replace(change, flushed_since=image.last_broker_epoch)
    records: list[MetadataRecord] = [change]
    minimum = in_sync_min(topic)
    for partition in topic.partitions:
        if partition.eligible_replicas:
            state = PartitionState.of(topic.topic_id, partition)
            state.leave_to_leader(minimum)
            record = state.record()
            if record is not None:
                records.append(record)
    return tuple(records)
