"""What leader and follower say to each other, and what concerns both ends of a stream.

Owns the room's own form of `replica.proto`; `services/replica/methods.py` converts. Pure.
"""

import enum
from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.log.state.log import PartitionLog
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionKey,
)

NO_EPOCH: Final = LeaderEpoch(-1)
NO_PARTITION_EPOCH: Final = PartitionEpoch(-1)


class Lane(enum.Enum):
    """Which of a pair of brokers' two streams."""

    LIVE = 1
    CATCH_UP = 2


class ReplicationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a stream holds or waits for is bounded by one of these."""

    answer_bytes_max: int = 1024 * 1024
    """Of one answer, unless a single batch is larger."""
    partition_bytes_max: int = 256 * 1024
    """Of one partition in one answer, in turns, unless a single batch is larger."""
    unconfirmed_answers_max: int = 4
    """Answers that the follower has not written yet."""
    numbers_wait_ms: int = 10
    """A watermark that moved waits so long for batches that it can be told with."""
    far_behind_bytes: int = 8 * 1024 * 1024
    """From here on a replica that is not in sync belongs on the catch-up lane."""
    near_end_bytes: int = 1024 * 1024
    """Up to here a replica belongs on the live lane."""
    retry_ms: int = 20
    """Before a stream is opened again, or a refused partition is named again; doubles each time."""
    retry_ms_max: int = 1_000
    probe_ms: int = 3_000
    """After so long a silence the follower asks whether the leader still hears it."""
    silence_ms: int = 6_000
    """After so long a silence the follower gives the stream up; the leader after twice that."""
    tail_bytes_max: int = 16 * 1024 * 1024
    """Of all logs together, what was sent last and is kept for the next follower."""
    positions_max: int = 20_000
    """Partitions in one session."""


DEFAULT_REPLICATION_LIMITS: Final = ReplicationLimits()


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to follow in one partition, as the metadata say."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    is_unclean: bool = False
    """Somebody decided for a leader without all that is committed: also that may be cut off."""


def is_same_leadership(one: Followed, other: Followed) -> bool:
    """Whether only who is in sync has changed: that concerns no stream."""
    return (one.leader_id, one.leader_epoch, one.is_unclean) == (
        other.leader_id,
        other.leader_epoch,
        other.is_unclean,
    )


class FollowerPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a follower stands in one partition."""

    key: PartitionKey
    leader_epoch: LeaderEpoch
    log_end_offset: Offset
    flushed_offset: Offset
    last_epoch: LeaderEpoch
    """Of its last batch; -1: its log is empty."""
    log_start_offset: Offset
    log_start_epoch: LeaderEpoch = NO_EPOCH
    """Whose leader moved the start there; -1: not known."""
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH

    @property
    def is_empty(self) -> bool:
        """Whether it keeps no record. Of what it has trimmed it may know the last epoch still."""
        return self.log_start_offset == self.log_end_offset


class FetchAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Follower → leader."""

    session_id: int
    session_sequence: int
    """1: a full start."""
    positions: tuple[FollowerPosition, ...] = ()
    """A partition is named by a full start, or by standing in `removed` as well; any other
    position tells of progress, and of nothing if the session does not hold the partition."""
    removed: tuple[PartitionKey, ...] = ()
    confirmed_answer: int = 0
    max_bytes: int = 0
    cluster_id: str = ""
    broker_id: BrokerId = BrokerId(0)
    broker_epoch: BrokerEpoch = BrokerEpoch(0)
    lane: Lane | None = None


class Divergence(msgspec.Struct, frozen=True):
    """Where logs part. With no epoch the leader knows nothing of the follower's, and its own log
    begins there."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


class PartitionNews(msgspec.Struct, frozen=True, kw_only=True):
    """What is new in one partition. With an error, a divergence or a move the partition has left
    the session: it is named again."""

    key: PartitionKey
    error: TidelogError | None = None
    leader_epoch: LeaderEpoch = NO_EPOCH
    batches: bytes = b""
    fetch_sum: int = 0
    high_watermark: Offset = Offset(-1)
    log_start_offset: Offset = Offset(-1)
    log_start_epoch: LeaderEpoch = NO_EPOCH
    """Whose leader moved the start there; -1: not known."""
    is_head_missing: bool = False
    """Beside an error: the follower's log begins above the leader's, and no leader decided that."""
    divergence: Divergence | None = None
    move_to_lane: Lane | None = None


class FetchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Leader → follower."""

    session_id: int
    session_sequence: int
    """The last request that it takes account of."""
    answer_sequence: int
    partitions: tuple[PartitionNews, ...] = ()
    is_full_start_wanted: bool = False


OnFollowerPosition = Callable[[FollowerAt], None]
"""Where a follower stands."""

ToldBy = Callable[[PartitionLog, BrokerId], FollowerAt | None]
"""Where a follower stands in a log, as it said last; None: it does not pull it."""

OnFollowerGone = Callable[[PartitionKey, BrokerId, BrokerEpoch], None]
"""It pulls the partition no more: where it stood last is not where it stands."""
