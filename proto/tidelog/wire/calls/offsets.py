"""What questions for offsets carry, by place or by time, and their answers. Pure."""

from enum import IntEnum

import msgspec

from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset, PartitionId, TopicId


class OffsetSpec(IntEnum):
    """What offset is asked for; numbers as in the contract."""

    EARLIEST = 1
    LATEST = 2
    AT_TIME = 3
    MAX_TIMESTAMP = 4


class OffsetQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a partition's leader."""

    topic_id: TopicId
    partition: PartitionId
    spec: OffsetSpec
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    timestamp_ms: int = -1


class OffsetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Its answer; NO_OFFSET: there is no such record."""

    topic_id: TopicId
    partition: PartitionId
    error: TidelogError | None = None
    offset: Offset = NO_OFFSET
    timestamp_ms: int = -1
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
