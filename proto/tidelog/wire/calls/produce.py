"""What a produce request carries. Pure."""

import msgspec

from tidelog.wire.ids import LeaderEpoch, PartitionId, TopicId


class PartitionBatch(msgspec.Struct, frozen=True):
    """One encoded batch on its way to one partition."""

    topic_id: TopicId
    partition: PartitionId
    leader_epoch: LeaderEpoch
    """In which the sender believes the partition's leader to be."""
    batch: bytes
    route_sum: int
    """Binds the batch to its topic and partition: another one refuses it."""
