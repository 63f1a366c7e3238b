"""Who stamps records: partitions whose records carry the time of their append want a right clock.

Pure. Owns the moves of leaders away from brokers whose clocks are known to be off, to in-sync
replicas whose clocks are known to be right. It must never leave a partition without a leader for
its clock: where no such replica is in sync the leader stays, and stamps the cluster's time.
"""

from collections.abc import Collection

from tidelog.metadata.image.image import Image, PartitionImage, TopicImage
from tidelog.metadata.records.entries import MetadataRecord
from tidelog.metadata.settings.catalogue import CATALOGUE, TIMESTAMP_TYPE
from tidelog.metadata_quorum.controller.partitions.state import PartitionState, ReplicaView
from tidelog.wire.ids import BrokerId


def is_stamped(image: Image, topic: TopicImage, broker_id: BrokerId) -> bool:
    """Whether the broker, leading it, would stamp the topic's records with its own time."""
    layers = (
        topic.configuration,
        image.broker_configurations.get(broker_id, {}),
        image.cluster_configuration,
    )
    set_values = (layer[TIMESTAMP_TYPE] for layer in layers if TIMESTAMP_TYPE in layer)
    return next(set_values, CATALOGUE[TIMESTAMP_TYPE].default) == "LogAppendTime"


def plan_right_clocks(
    image: Image, *, off: Collection[int], right: Collection[int], limit: int
) -> tuple[MetadataRecord, ...]:
    """One round: leaders that go to a replica with a right clock, at most `limit`."""
    assert limit > 0, "a round moves something"
    records: list[MetadataRecord] = []
    for broker_id in sorted(off):
        for topic, partition in image.partitions_in(image.led_by(BrokerId(broker_id))):
            if not is_stamped(image, topic, BrokerId(broker_id)):
                continue
            record = _moved(image, topic, partition, right)
            if record is not None:
                records.append(record)
            if len(records) == limit:
                return tuple(records)
    return tuple(records)


def _moved(
    image: Image, topic: TopicImage, partition: PartitionImage, right: Collection[int]
) -> MetadataRecord | None:
    state = PartitionState.of(topic.topic_id, partition)
    view = ReplicaView(image.brokers, partition)
    for each in state.preference():
        if each in right and each in partition.in_sync_replicas and view.is_usable(each):
            state.leader_id = each
            return state.record()
    return None
