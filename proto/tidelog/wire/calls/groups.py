"""What the calls of a group's member carry: its heartbeats, its commits, and the answers. Pure.

Owns the values that a member and its coordinator mean by the contract, whoever the member is: a
client, or a broker for its client. What only one side knows stands beside them, not in them.
"""

from enum import IntEnum

import msgspec

from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey, ProducerEpoch, ProducerId

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
AWAY_EPOCH = -2
NO_MEMBER_EPOCH = -1
"""Of a reader without member id."""


class Assignor(IntEnum):
    """How partitions are divided; numbers as in the contract."""

    UNSPECIFIED = 0
    UNIFORM = 1
    RANGE = 2


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What a member wants to read."""

    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    """RE2, for the whole name; empty: none."""
    assignor: Assignor = Assignor.UNSPECIFIED

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wanted."""
        return not self.topics and not self.topic_pattern


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A member joins, stays, reports, leaves. None: the field was not sent."""

    group: str
    member_id: str
    member_epoch: int
    """Or JOINING_EPOCH, LEAVING_EPOCH, AWAY_EPOCH."""
    heartbeat_sequence: int = 0
    """Grows with every heartbeat that the member sends; 0: it does not number them."""
    group_instance_id: str = ""
    takes_over: bool = False
    """Whoever has the group_instance_id and has not left is to be replaced."""
    rack: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    subscription: Subscription | None = None
    owned: tuple[PartitionKey, ...] | None = None


class AssignedPartition(msgspec.Struct, frozen=True):
    """A partition that a member owns."""

    key: PartitionKey
    partition_assignment_epoch: int
    topic_name: str


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a member is told."""

    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: tuple[AssignedPartition, ...] | None = None
    """None: nothing changed since the last answer."""
    group_epoch: int = 0
    assignment_epoch: int = 0
    session_timeout_ms: int = 0
    is_idle: bool = False


class OffsetToCommit(msgspec.Struct, frozen=True, kw_only=True):
    """How far one partition was read."""

    key: PartitionKey
    committed_offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str = ""


class CommitOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Store how far a group has read."""

    group: str
    member_id: str = ""
    """Empty: a reader that is no member."""
    member_epoch: int = NO_MEMBER_EPOCH
    offsets: tuple[OffsetToCommit, ...]


class CommitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the request; None: stored."""

    errors: tuple[TidelogError | None, ...]
    throttle_ms: int = 0
    """How long the caller should wait before its next request."""


class SendOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Make offsets of a group part of a producer's transaction: they count once it is committed."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    """Of the transaction: the producer's identity is another one in its next."""
    group: str
    member_id: str = ""
    """Empty: a reader that is no member."""
    member_epoch: int = NO_MEMBER_EPOCH
    offsets: tuple[OffsetToCommit, ...]


class SendOffsetsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All of them are part of the transaction."""


class FetchOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Tell what was committed."""

    group: str
    keys: tuple[PartitionKey, ...] = ()
    """Empty: all, by topic id and partition."""
    member_id: str = ""
    member_epoch: int = NO_MEMBER_EPOCH
    require_stable: bool = False
    """A partition with an offset of a transaction in progress is answered
    CONCURRENT_TRANSACTIONS: whoever asks waits, and asks again."""


class StoredOffset(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed for one partition."""

    committed_offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_time_ms: int


class FetchOffsetsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the request, or by key; None: nothing was committed."""

    offsets: tuple[tuple[PartitionKey, StoredOffset | TidelogError | None], ...]
