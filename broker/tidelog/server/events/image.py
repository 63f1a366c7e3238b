"""What changed from one image of the metadata to the next, as this node should tell it. Pure.

Each thing is told by one node: what happens to brokers by the active controller and by the broker
itself, who leads by those who begin and cease to, in-sync sets by the leader, partitions without a
leader by the active controller. Topics that are new, and all of the first image, are no change.
"""

from collections.abc import Iterator

import msgspec

from tidelog.broker.shared.events import EventLog
from tidelog.metadata.image.image import NO_LEADER, BrokerImage, Image, PartitionImage, TopicImage
from tidelog.wire.ids import BrokerId


class RoleCounts(msgspec.Struct, kw_only=True):
    """Since the start of the process; none of them ever falls."""

    leaderships_begun: int = 0
    leaderships_ended: int = 0
    in_sync_shrinks: int = 0
    """Replicas that left a set of which this broker is the leader."""
    in_sync_expands: int = 0
    fencings: int = 0
    """Of this broker."""


class ImageEvents:
    """`follow` from image to image."""

    def __init__(self, broker_id: BrokerId, events: EventLog, counts: RoleCounts) -> None:
        self._broker_id = broker_id
        self._events = events
        self.counts = counts

    def follow(self, before: Image, after: Image, *, is_controller: bool) -> None:
        """Tell and count what is different."""
        if before.version == 0:
            return
        if before.brokers is not after.brokers:
            self._follow_brokers(before, after, is_controller=is_controller)
        if before.topics is after.topics:
            return
        for old, new, topic in _changed(before, after):
            self._follow_leader(old, new, topic, is_controller=is_controller)
            if new.leader_id == self._broker_id:
                self._follow_in_sync(old, new, topic)

    def _follow_brokers(self, before: Image, after: Image, *, is_controller: bool) -> None:
        for broker_id, broker in after.brokers.items():
            old = before.brokers.get(broker_id)
            if old is broker:
                continue
            if broker_id == self._broker_id:
                self._follow_own(old, broker)
            elif is_controller:
                self._tell_broker(old, broker)
        if is_controller:
            for broker_id in before.brokers:
                if broker_id not in after.brokers:
                    self._events.info("broker_removed", broker_id=broker_id)

    def _follow_own(self, old: BrokerImage | None, broker: BrokerImage) -> None:
        """A start and a stop are told elsewhere."""
        if old is None or old.epoch != broker.epoch or old.is_fenced == broker.is_fenced:
            return
        if broker.is_fenced:
            self.counts.fencings += 1
        if broker.is_fenced or self.counts.fencings:
            self._tell_broker(old, broker)

    def _tell_broker(self, old: BrokerImage | None, broker: BrokerImage) -> None:
        values = {"broker_id": broker.broker_id, "epoch": broker.epoch}
        if old is None or old.epoch != broker.epoch:
            self._events.info(
                "broker_registered", **values, host=broker.host_name, rack=broker.rack
            )
        if broker.is_fenced:
            if old is not None and not old.is_fenced:
                self._events.warning("broker_fenced", **values)
        elif old is None or old.is_fenced:
            self._events.info("broker_unfenced", **values)
        if broker.is_shutting_down and (old is None or not old.is_shutting_down):
            self._events.info("broker_stopping", **values)
        if broker.is_draining and (old is None or not old.is_draining):
            self._events.info("broker_draining", **values)

    def _follow_leader(
        self, old: PartitionImage, new: PartitionImage, topic: TopicImage, *, is_controller: bool
    ) -> None:
        if old.leader_id == new.leader_id:
            return
        own = self._broker_id
        values = {"partition": f"{topic.name}-{new.partition}", "leader_epoch": new.leader_epoch}
        if new.leader_id == own:
            self.counts.leaderships_begun += 1
            self._events.info("leadership_begun", **values, before=_named(old.leader_id))
        elif old.leader_id == own:
            self.counts.leaderships_ended += 1
            self._events.info("leadership_ended", **values, leader=_named(new.leader_id))
        if is_controller and new.leader_id == NO_LEADER:
            may_lead = sorted({*new.in_sync_replicas, *new.eligible_replicas})
            eligible = ",".join(map(str, may_lead)) or "none"
            self._events.error(
                "partition_offline", **values, before=_named(old.leader_id), eligible=eligible
            )
        elif is_controller and old.leader_id == NO_LEADER:
            self._events.info("partition_online", **values, leader=new.leader_id)

    def _follow_in_sync(self, old: PartitionImage, new: PartitionImage, topic: TopicImage) -> None:
        left = [each for each in old.in_sync_replicas if each not in new.in_sync_replicas]
        came = [each for each in new.in_sync_replicas if each not in old.in_sync_replicas]
        in_sync = ",".join(map(str, new.in_sync_replicas))
        name = f"{topic.name}-{new.partition}"
        self.counts.in_sync_shrinks += len(left)
        # Nobody is in trouble whose replica was ordered away.
        moved = [each for each in left if each not in new.replicas]
        if moved:
            self._events.info(
                "replica_moved_away", partition=name, brokers=",".join(map(str, moved))
            )
        lost = ",".join(str(each) for each in left if each not in moved)
        if lost:
            self._events.warning("in_sync_shrunk", partition=name, without=lost, in_sync=in_sync)
        if came:
            self.counts.in_sync_expands += len(came)
            self._events.info(
                "in_sync_expanded", partition=name, by=",".join(map(str, came)), in_sync=in_sync
            )


def _changed(
    before: Image, after: Image
) -> Iterator[tuple[PartitionImage, PartitionImage, TopicImage]]:
    for topic_id in after.topics.changed_keys(before.topics):
        known, topic = before.topics.get(topic_id), after.topics.get(topic_id)
        if known is None or topic is None:
            continue
        # Partitions that were added are new as a topic is.
        for old, new in zip(known.partitions, topic.partitions, strict=False):
            if old is not new:
                yield old, new, topic


def _named(broker_id: BrokerId) -> str:
    return "none" if broker_id == NO_LEADER else str(broker_id)
