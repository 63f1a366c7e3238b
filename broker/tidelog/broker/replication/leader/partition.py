"""One partition in a leader's session: where its follower stands and what was sent. Pure."""

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.leader.tail import Piece
from tidelog.broker.replication.shared.messages import NO_EPOCH, FollowerPosition, PartitionNews
from tidelog.wire.batch import fetch_sum
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey


class LeaderPartition:
    """`confirmed ≤ next_offset ≤ log end`: what is between the first two is on its way."""

    __slots__ = (
        "confirmed_offset",
        "key",
        "leader_epoch",
        "log",
        "next_offset",
        "position",
        "sent_high_watermark",
        "sent_start",
    )

    def __init__(self, log: PartitionLog, position: FollowerPosition) -> None:
        self.key: PartitionKey = position.key
        self.log = log
        self.leader_epoch: LeaderEpoch = position.leader_epoch
        self.position = position
        """The last one that counted, for whoever learns of the follower after it came."""
        self.confirmed_offset = position.log_end_offset
        """All below is in the follower's log."""
        self.next_offset = position.log_end_offset
        """All below was sent, or is in the follower's log."""
        self.sent_high_watermark = Offset(-1)
        self.sent_start = (Offset(-1), NO_EPOCH)
        """Where the log begins, and by which leader's word."""

    @property
    def has_batches(self) -> bool:
        """Whether there is more to send."""
        return self.read_offset < self.log.log_end_offset

    @property
    def read_offset(self) -> Offset:
        """Where to go on; a follower below the log's start begins anew there."""
        return max(self.next_offset, self.log.log_start_offset)

    @property
    def has_numbers(self) -> bool:
        """Whether the follower does not know watermark or log start as they are now."""
        log = self.log
        return (
            log.high_watermark != self.sent_high_watermark
            or (log.log_start_offset, log.log_start_epoch) != self.sent_start
        )

    def news(self, piece: Piece | None = None) -> PartitionNews:
        """What the follower is told, with batches or without."""
        log, key = self.log, self.key
        batches, total = b"", 0
        if piece is not None:
            batches = piece.data
            assert piece.next_offset > self.next_offset, f"{key}: {piece.next_offset} was sent"
            self.next_offset = Offset(piece.next_offset)
            base_offset = int.from_bytes(batches[:8], "big")
            total = fetch_sum(key.topic_id, key.partition, base_offset, piece.crc)
        self.sent_high_watermark = log.high_watermark
        self.sent_start = (log.log_start_offset, log.log_start_epoch)
        return PartitionNews(
            key=key,
            leader_epoch=self.leader_epoch,
            batches=batches,
            fetch_sum=total,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            log_start_epoch=log.log_start_epoch,
        )


def failed_news(key: PartitionKey, leader_epoch: LeaderEpoch, error: TidelogError) -> PartitionNews:
    """Why the partition cannot be pulled here."""
    return PartitionNews(key=key, leader_epoch=leader_epoch, error=error)
