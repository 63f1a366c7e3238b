"""Where a follower stands, and up to where it counts. Pure. Stop 8 of a record's walk.

One shape for all who go by it: the owner of the log, which moves the watermark, and the policy of
the in-sync set, which judges who is in it. It must never say more of a follower than that said
itself, in the session that it began.
"""

import msgspec

from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionKey,
)


def position_of(log_end_offset: Offset, flushed_offset: Offset, *, is_flush_sync: bool) -> Offset:
    """Up to where a replica counts."""
    assert flushed_offset <= log_end_offset, (
        f"flushed up to {flushed_offset}, the log ends at {log_end_offset}"
    )
    return flushed_offset if is_flush_sync else log_end_offset


class FollowerAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where a follower stands, as it said on a stream of the session that it began."""

    key: PartitionKey
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    """Of the process that began the session: another process is another follower."""
    leader_epoch: LeaderEpoch
    """In which it follows; of another one it says nothing."""
    partition_epoch: PartitionEpoch
    """Of the metadata by which the follower had this log when it said so."""
    log_end_offset: Offset
    flushed_offset: Offset

    def is_behind(self, other: "FollowerAt") -> bool:
        """Whether it was said before the other one, however late it came."""
        return (self.broker_epoch, self.partition_epoch) < (
            other.broker_epoch,
            other.partition_epoch,
        )

    def counted(self, *, is_flush_sync: bool) -> Offset:
        """What the commit rule goes by."""
        return position_of(self.log_end_offset, self.flushed_offset, is_flush_sync=is_flush_sync)
