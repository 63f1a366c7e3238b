"""The ends of logs, as brokers tell them, of partitions that nobody is sure to hold whole. Pure.

Owns what was told and is true still: a broker that was started anew, or a partition that was led
meanwhile, has to be told of again. It is no part of the metadata: the controller of another term
begins with nothing and is told once more.
"""

from collections.abc import Sequence

from tidelog.metadata.broker_reports import ReplicaEnd
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage
from tidelog.metadata.records.entries import MetadataRecord
from tidelog.metadata.refusals.common import refuse_duplicates, refuse_too_many
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.in_sync import CHANGES_MAX, check_broker_epoch
from tidelog.metadata_quorum.controller.partitions.leaders import LogEnd, elect_longest
from tidelog.wire.ids import BrokerEpoch, BrokerId, PartitionId, TopicId

_Key = tuple[TopicId, PartitionId]


class ToldEnds:
    """Of all partitions that nobody leads; as many as brokers have told."""

    def __init__(self) -> None:
        self._told: dict[_Key, dict[BrokerId, tuple[BrokerEpoch, ReplicaEnd]]] = {}

    def elect(
        self,
        image: Image,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        ends: Sequence[ReplicaEnd],
    ) -> Decision[None]:
        """Take note of what the broker tells; elect where it was the last that is waited for."""
        tried = f"take the log ends of broker {broker_id}"
        check_broker_epoch(image, broker_id, broker_epoch, tried=tried)
        refuse_too_many(len(ends), CHANGES_MAX, tried=tried, what="partitions")
        keys = [f"{each.topic_id.hex()}-{each.partition}" for each in ends]
        refuse_duplicates(keys, tried=tried, what="partition")
        self._forget(image)
        records: list[MetadataRecord] = []
        for end in ends:
            key = (end.topic_id, end.partition)
            partition = image.partition(*key)
            if partition is None or not _is_waiting(partition):
                continue
            told = self._told.setdefault(key, {})
            told[broker_id] = (broker_epoch, end)
            election = elect_longest(image, *key, self._ends(image, partition, told))
            if election.record is not None:
                records.append(election.record)
        return Decision(records=tuple(records), answer=None)

    def _ends(
        self,
        image: Image,
        partition: PartitionImage,
        told: dict[BrokerId, tuple[BrokerEpoch, ReplicaEnd]],
    ) -> dict[BrokerId, LogEnd]:
        """Of the processes that run now, about the epoch in which nobody leads."""
        found: dict[BrokerId, LogEnd] = {}
        for broker_id, (broker_epoch, end) in told.items():
            broker = image.brokers.get(broker_id)
            is_present = broker is not None and broker.epoch == broker_epoch
            if is_present and end.leader_epoch == partition.leader_epoch:
                found[broker_id] = (end.last_epoch, end.log_end_offset)
        return found

    def _forget(self, image: Image) -> None:
        for key in list(self._told):
            partition = image.partition(*key)
            if partition is None or not _is_waiting(partition):
                del self._told[key]


def _is_waiting(partition: PartitionImage) -> bool:
    """Whether nobody leads, and the longest log may come to."""
    return partition.leader_id == NO_LEADER and bool(partition.last_known_eligible)
