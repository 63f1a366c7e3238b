"""Which partitions of `__groups` this broker leads, and the coordinator of each.

Owns what coordinators of groups are told of the image: topics, brokers, settings. It must never
decide anything about a group.
"""

from collections.abc import Callable, Mapping

from tidelog.broker.coordination.keeper import PartitionCoordinators
from tidelog.broker.groups.coordinator.coordinator import GroupCoordinator
from tidelog.broker.groups.coordinator.settings import settings_of
from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.messages import BrokerState, GroupTopic
from tidelog.broker.groups.state.places import GROUPS
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.shared.events import EventLog
from tidelog.broker.shared.meter import Meter
from tidelog.broker.shared.node_time import HouseTime
from tidelog.broker.transactions.state.places import TRANSACTIONS
from tidelog.metadata.image.image import Image
from tidelog.ports import Clock
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey


class GroupCoordinators(PartitionCoordinators[GroupCoordinator]):
    """One a broker. `run()` is its task."""

    def __init__(
        self,
        replicas: Replicas,
        clock: Clock,
        *,
        time: HouseTime,
        broker_id: BrokerId,
        make_core: Callable[[], GroupCoordinatorCore],
        is_in_contact: Callable[[], bool],
        events: EventLog,
        meter: Meter,
    ) -> None:
        super().__init__(
            GROUPS,
            replicas,
            clock,
            time=time,
            broker_id=broker_id,
            is_in_contact=is_in_contact,
            events=events,
            meter=meter,
        )
        self._make_core = make_core
        self._topics: tuple[GroupTopic, ...] = ()
        self._brokers: Mapping[BrokerId, BrokerState] = {}
        self._settings = settings_of(self._image)

    def check_transactions_on(self, *, tried: str) -> None:
        """NOT_IMPLEMENTED while the cluster runs without transactions."""
        TRANSACTIONS.check_on(self._replicas.applied, tried=tried)

    def _follow_image(self, before: Image, image: Image) -> None:
        self._follow_topics(before, image)
        self._follow_brokers(before, image)
        self._follow_settings(before, image)

    def _follow_topics(self, before: Image, image: Image) -> None:
        is_same = image.topic_ids is before.topic_ids
        if is_same and image.partition_count == before.partition_count:
            return
        self._topics = tuple(
            GroupTopic(topic_id=topic_id, name=topic.name, partition_count=len(topic.partitions))
            for topic_id, topic in image.topics.items()
            if not topic.is_internal
        )
        for coordinator in self._coordinators.values():
            coordinator.show(self._topics)

    def _follow_brokers(self, before: Image, image: Image) -> None:
        if image.brokers is before.brokers:
            return
        brokers = {
            each.broker_id: BrokerState(each.epoch, each.is_fenced)
            for each in image.brokers.values()
        }
        if brokers != self._brokers:
            self._brokers = brokers
            for coordinator in self._coordinators.values():
                coordinator.show_brokers(brokers)

    def _follow_settings(self, before: Image, image: Image) -> None:
        is_same = image.cluster_configuration is before.cluster_configuration
        if is_same and image.group_configurations is before.group_configurations:
            return
        self._settings = settings_of(image)
        for coordinator in self._coordinators.values():
            coordinator.configure(self._settings)

    def _make(self, key: PartitionKey) -> GroupCoordinator:
        made = GroupCoordinator(key, self._around, make_core=self._make_core)
        made.show(self._topics)
        made.show_brokers(self._brokers)
        made.configure(self._settings)
        return made

    def _log_resigned(self, partitions: str, reason: TidelogError | None) -> None:
        self._events.info("group_coordinator_resigned", partitions=partitions, reason=reason)
