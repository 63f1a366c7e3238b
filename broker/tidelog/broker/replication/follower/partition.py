"""One partition that is followed: what was asked, what has come, what waits. Pure.

WANTED ── named ──▶ NAMED ── batches ──▶ appended, position told
  ▲  ▲                │ ├── error ──▶ REFUSED ── after a while, or other metadata ──┐
  │  └────────────────┘ └── parted, or below the leader's start ──▶ BUSY            │
  │       other metadata          log is cut or emptied ──▶ WANTED                  │
  └─────────────────────────────────────────────────────────────────────────────────┘
"""

import enum

import msgspec

from tidelog.broker.directory.core.messages import CommitTo, RestartLog, TrimHead, TruncateTail
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.shared.messages import (
    NO_EPOCH,
    NO_PARTITION_EPOCH,
    Followed,
    FollowerPosition,
)
from tidelog.wire.batch import BatchHeader
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey


class Phase(enum.Enum):
    """See the diagram."""

    WANTED = "wanted"
    NAMED = "named"
    REFUSED = "refused"
    BUSY = "busy"


class FollowedPartition:
    """Lives as long as the lane pulls it."""

    __slots__ = (
        "expected_offset",
        "followed",
        "high_watermark",
        "is_trimming",
        "key",
        "last_epoch",
        "leader_start_epoch",
        "leader_start_offset",
        "named_at",
        "phase",
        "retry_at_ms",
        "retry_ms",
        "told",
        "told_partition_epoch",
        "was_named",
    )

    def __init__(self, key: PartitionKey, followed: Followed) -> None:
        self.key = key
        self.followed = followed
        self.phase = Phase.WANTED
        self.was_named = False
        """In the present session: the leader may hold it."""
        self.named_at = 0
        """The request that named it: what is answered to earlier ones is late."""
        self.expected_offset = Offset(0)
        """Behind all that has come, be it written or not."""
        self.last_epoch = -1
        self.told = (Offset(-1), Offset(-1))
        """Log end and flushed offset, as the leader knows them."""
        self.told_partition_epoch = NO_PARTITION_EPOCH
        """At which it was told."""
        self.high_watermark = Offset(-1)
        """As the leader has told it."""
        self.leader_start_offset = Offset(-1)
        self.leader_start_epoch = NO_EPOCH
        """By which leader's word the leader's log begins there; -1: not known."""
        self.is_trimming = False
        self.retry_at_ms = 0
        self.retry_ms = 0

    def position(self, log: PartitionLog) -> FollowerPosition:
        """Where it stands now."""
        return FollowerPosition(
            key=self.key,
            leader_epoch=self.followed.leader_epoch,
            log_end_offset=log.log_end_offset,
            flushed_offset=min(log.flushed_offset, log.log_end_offset),
            last_epoch=LeaderEpoch(log.leader_epochs.latest),
            log_start_offset=log.log_start_offset,
            log_start_epoch=log.log_start_epoch,
            partition_epoch=self.followed.partition_epoch,
        )

    def name(self, log: PartitionLog, session_sequence: int) -> FollowerPosition:
        """It is named by the request of this number."""
        assert self.phase is Phase.WANTED, f"{self.key} is named while it is {self.phase.value}"
        position = self.position(log)
        self.phase = Phase.NAMED
        self.was_named = True
        self.named_at = session_sequence
        self.expected_offset = log.log_end_offset
        self.last_epoch = log.leader_epochs.latest
        self.high_watermark = self.leader_start_offset = Offset(-1)
        self.leader_start_epoch = NO_EPOCH
        self.tell(position)
        return position

    def tell(self, position: FollowerPosition) -> None:
        """The leader is told this."""
        self.told = (position.log_end_offset, position.flushed_offset)
        self.told_partition_epoch = position.partition_epoch

    def refuse(self, now_ms: int, retry_ms: int, retry_ms_max: int) -> None:
        """Wait, each time longer, before it is named again."""
        self.phase = Phase.REFUSED
        self.retry_ms = min(retry_ms_max, max(retry_ms, 2 * self.retry_ms))
        self.retry_at_ms = now_ms + self.retry_ms


class AppendCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Store the batches behind the log's end, then say `on_appended`."""

    key: PartitionKey
    token: tuple[int, int]
    """Session and number of the answer."""
    batches: bytes
    headers: list[BatchHeader]
    behind: Offset
    """Where the log has to end by then."""


class StopHeadless(msgspec.Struct, frozen=True, kw_only=True):
    """The log begins above its leader's, and no leader decided that: it stops, to be copied anew.
    No answer comes."""

    key: PartitionKey
    log_start_offset: Offset
    leader_start_offset: Offset


class MoveTo(msgspec.Struct, frozen=True, kw_only=True):
    """The partition is pulled on the other lane from now on."""

    key: PartitionKey
    followed: Followed


FollowerEffect = (
    AppendCopies | CommitTo | TruncateTail | RestartLog | TrimHead | StopHeadless | MoveTo
)
"""What is wanted of the log is said in its owner's own words: `on_appended` follows on copies,
`on_trimmed` on a trim, `on_changed` on a cut where logs part and on a restart."""
