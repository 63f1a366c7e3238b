"""Which replica may serve a read, and whom a client should ask instead. Decides, reads nothing.

Owns the rules of reading near by. The leader serves everybody. A follower serves those who say in
which rack they are, as long as the image calls it in sync: what is committed is in its log then,
and only its knowledge of the watermark is a step behind the leader's. It must never send a client
to a replica that is fenced or out of sync: that one may stand still for ever. Only a leader tells a
reader that its past is another: a follower that lags, and does not know yet that it is out of sync,
looks the same.
"""

from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.state.log import PartitionLog
from tidelog.metadata.image.image import NO_LEADER, PartitionImage
from tidelog.metadata_quorum.port import ImageSource
from tidelog.wire.calls.fetch import Divergence
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicId


class ReadPlaces:
    """What this broker's image says of other replicas."""

    def __init__(self, metadata: ImageSource, broker_id: BrokerId) -> None:
        self._metadata = metadata
        self._broker_id = broker_id

    def leader(self, topic_id: TopicId, partition: int) -> tuple[BrokerId, int] | None:
        """Who leads and in which epoch; None: nobody, or there is no such partition."""
        found = self._partition(topic_id, partition)
        if found is None or found.leader_id == NO_LEADER:
            return None
        return found.leader_id, found.leader_epoch

    def is_in_sync(self, topic_id: TopicId, partition: int) -> bool:
        """Whether the replica held here is."""
        found = self._partition(topic_id, partition)
        return found is not None and self._broker_id in found.in_sync_replicas

    def nearer(self, topic_id: TopicId, partition: int, rack: str) -> BrokerId | None:
        """A replica in the client's rack that may be read there; None: none, or it is this one."""
        found = self._partition(topic_id, partition)
        if not rack or found is None or found.leader_id != self._broker_id:
            return None
        here = self._metadata.image().brokers.get(self._broker_id)
        if here is not None and here.rack == rack:
            return None
        near = [each for each in sorted(found.in_sync_replicas) if self._is_near(each, rack)]
        return near[partition % len(near)] if near else None

    def _is_near(self, broker_id: BrokerId, rack: str) -> bool:
        broker = self._metadata.image().brokers.get(broker_id)
        if broker is None or broker.is_fenced or broker.is_shutting_down:
            return False
        return broker_id != self._broker_id and broker.rack == rack

    def _partition(self, topic_id: TopicId, partition: int) -> PartitionImage | None:
        topic = self._metadata.image().topics.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]


def check_epoch(log: PartitionLog, leader_epoch: int, *, tried: str) -> None:
    """The client believes in the leader epoch in which this replica follows, or does not say."""
    if leader_epoch in (NO_LEADER_EPOCH, log.leader_epoch):
        return
    is_old = leader_epoch < log.leader_epoch
    raise TidelogError(
        ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH,
        tried=tried,
        happened=f"the request carries leader epoch {leader_epoch}, "
        f"the partition is at {log.leader_epoch}",
    )


def parting_of(log: PartitionLog, fetch_offset: int, last_epoch: int) -> Divergence | None:
    """Where a reader's past and the log part: an epoch and its end here; None: they agree.

    `last_epoch` is that of the last record that the reader has had; -1: it does not say.
    """
    if last_epoch == NO_LEADER_EPOCH:
        return None
    epochs = log.leader_epochs
    epoch, end_offset = epochs.end_offset_of(last_epoch, log.log_end_offset)
    if epoch == NO_LEADER_EPOCH:
        # All of that epoch may have been trimmed: then the log begins at or behind the reader.
        begin = _first_offset(epochs)
        if begin is None or begin >= fetch_offset:
            return None
        return Divergence(NO_LEADER_EPOCH, Offset(begin))
    if epoch < last_epoch or end_offset < fetch_offset:
        return Divergence(LeaderEpoch(epoch), Offset(end_offset))
    return None


def _first_offset(epochs: LeaderEpochs) -> int | None:
    starts = epochs.starts
    return starts[0].start_offset if starts else None
