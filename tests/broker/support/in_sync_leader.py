"""A leader and its in-sync set, with as much of a log and of brokers as it looks at."""

from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.replication.in_sync import invariants
from tidelog.broker.replication.in_sync.set import InSyncSet
from tidelog.broker.replication.shared.in_sync_types import Change, Count, Led, Outcome
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicId,
)

KEY = PartitionKey(TopicId(bytes(16)), PartitionId(0))
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LAG_MS = 1_000
REFUSED = Outcome(is_made=False)
UNKNOWN = Outcome(is_made=False, is_unknown=True)


class Log:
    """The leader's log, as far as it is looked at."""

    def __init__(self, end: int = 0, high_watermark: int = 0) -> None:
        self.log_end_offset = Offset(end)
        self.high_watermark = Offset(high_watermark)
        self.flushed_offset = Offset(end)
        self.failure: TidelogError | None = None


class Brokers:
    """Three brokers of epoch 7, all able."""

    def __init__(self) -> None:
        self.epochs = {ONE: 7, TWO: 7, THREE: 7}
        self.unable: list[BrokerId] = []

    def epoch_of(self, broker_id: BrokerId) -> BrokerEpoch | None:
        epoch = self.epochs.get(broker_id)
        return None if epoch is None else BrokerEpoch(epoch)

    def is_able(self, broker_id: BrokerId) -> bool:
        return broker_id in self.epochs and broker_id not in self.unable


def led(*in_sync: int, epoch: int = 5, partition_epoch: int = 10) -> Led:
    return Led(
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(partition_epoch),
        replicas=(ONE, TWO, THREE),
        in_sync=tuple(BrokerId(each) for each in in_sync),
    )


class Leader:
    """Broker 1 leads; its log's owner takes everything in at once, unless it is told to wait."""

    def __init__(self, *in_sync: int, end: int = 100, high_watermark: int = 100) -> None:
        self.log = Log(end, high_watermark)
        self.brokers = Brokers()
        self.now_ms = 0
        self.is_owner_slow = False
        self._waits_for: tuple[BrokerId, ...] = ()
        self.counts: list[Count] = []
        self.set = InSyncSet(
            KEY,
            ONE,
            self.log,
            led(*in_sync),
            self.brokers,
            is_flush_sync=True,
            lag_ms=LAG_MS,
            now_ms=0,
        )
        self.perform(self.set.on_image(self.set.led, 0))

    def perform(self, count: Count | None) -> None:
        invariants.check(self.set)
        if count is None:
            return
        self.counts.append(count)
        if not self.is_owner_slow:
            self.take_in()

    def waits_for(self) -> tuple[BrokerId, ...]:
        return self._waits_for

    def take_in(self) -> None:
        """The owner waits for whom it was told last."""
        count = self.counts[-1]
        self._waits_for = count.others
        self.perform(self.set.on_counted(count.round, self.now_ms))

    def at(
        self,
        broker: int,
        flushed: int,
        *,
        epoch: int = 5,
        broker_epoch: int = 7,
        end: int = -1,
        partition_epoch: int | None = None,
    ) -> None:
        """Said at the leader's partition epoch, unless it is told otherwise."""
        if partition_epoch is None:
            partition_epoch = self.set.led.partition_epoch
        position = FollowerAt(
            key=self.set.key,
            broker_id=BrokerId(broker),
            broker_epoch=BrokerEpoch(broker_epoch),
            leader_epoch=LeaderEpoch(epoch),
            partition_epoch=PartitionEpoch(partition_epoch),
            log_end_offset=Offset(max(end, flushed)),
            flushed_offset=Offset(flushed),
        )
        self.perform(self.set.on_position(position, self.now_ms))

    def image(self, *in_sync: int, epoch: int = 5, partition_epoch: int = 11) -> None:
        wanted = led(*in_sync, epoch=epoch, partition_epoch=partition_epoch)
        self.perform(self.set.on_image(wanted, self.now_ms))

    def pass_ms(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 100):
            self.now_ms += 100
            self.perform(self.set.on_tick(self.now_ms))

    def asks(self) -> Change | None:
        return self.set.take_change(self.now_ms)

    def asked(self, *members: int) -> Change:
        """It asks for exactly these."""
        change = self.asks()
        assert change is not None, "nothing was asked for"
        assert [broker for broker, _ in change.members] == list(members)
        return change

    def outcome(self, change: Change, outcome: Outcome) -> None:
        self.perform(self.set.on_outcome(change, outcome, self.now_ms))


def made(partition_epoch: int = 11) -> Outcome:
    return Outcome(is_made=True, partition_epoch=PartitionEpoch(partition_epoch))
