"""What reads carry: where a reader stands, and where its past and the log part. Pure."""

import msgspec

from tidelog.wire.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, PartitionId, TopicId


class FetchPosition(msgspec.Struct, frozen=True, kw_only=True):
    """From where one partition is read."""

    topic_id: TopicId
    partition: PartitionId
    fetch_offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH
    max_bytes: int = 0
    stays_here: bool = False
    """Served by the leader although another replica may be nearer."""


class Divergence(msgspec.Struct, frozen=True):
    """Where the reader's past and the log part."""

    leader_epoch: LeaderEpoch
    end_offset: Offset
