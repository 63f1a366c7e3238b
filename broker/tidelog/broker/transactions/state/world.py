"""What every decision about transactions may look at. Pure.

Owns nothing that is persistent: the transactions are `replay`'s, the topics are the metadata's.
"""

from collections.abc import Mapping

import msgspec

from tidelog.broker.transactions.state.messages import TransactionSettings
from tidelog.broker.transactions.state.notes import TransactionNotes
from tidelog.broker.transactions.state.producer_ids import ProducerIdReserve
from tidelog.broker.transactions.state.timers import TransactionTimers
from tidelog.broker.transactions.state.transaction import Transactions
from tidelog.wire.ids import NO_LEADER_EPOCH, LeaderEpoch, PartitionKey, TopicId


class TransactionWorld(msgspec.Struct, kw_only=True):
    """The insides of a core."""

    transactions: Transactions
    timers: TransactionTimers
    producer_ids: ProducerIdReserve = msgspec.field(default_factory=ProducerIdReserve)
    notes: TransactionNotes = msgspec.field(default_factory=TransactionNotes)
    settings: TransactionSettings = msgspec.field(default_factory=TransactionSettings)
    partition_counts: Mapping[TopicId, int] = {}
    prepared_elsewhere: Mapping[str, int] = {}
    """Prepared transactions of other coordinators, by principal."""
    coordinator_epoch: LeaderEpoch = NO_LEADER_EPOCH
    sends: dict[int, str] = msgspec.field(default_factory=dict)
    """Transactional ids of the markers that are on their way, by the id of their sending."""
    last_send_id: int = 0
    now_ms: int = 0
    wall_ms: int = 0
    """To be compared with stamps; falls when a clock is put right."""
    stamp_ms: int = 0
    """The latest that `wall_ms` ever was: a stamp may be too late, and an id is kept for longer;
    one that is too early would let an id expire that is in use."""

    def see_time(self, now_ms: int, wall_ms: int) -> None:
        """Takes the time of a message; it never falls for a core."""
        self.now_ms = max(self.now_ms, now_ms)
        self.wall_ms = wall_ms
        self.stamp_ms = max(self.stamp_ms, wall_ms)

    def is_gone(self, key: PartitionKey) -> bool:
        """Returns whether the topic of a partition that was once added is deleted."""
        return key.topic_id not in self.partition_counts
