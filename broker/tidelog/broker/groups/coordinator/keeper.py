"""Which partitions of `__groups` this broker leads, and the coordinator of each.

Follows the image that this broker acts on: a partition that it leads has a coordinator at work, any
other one a coordinator that says so. One task ticks for all of them. It must never decide anything
about a group.

    image ─▶ topics, leaders ─▶ coordinator.show, coordinator.lead
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tidelog.broker.groups.coordinator.coordinator import (
    NS_PER_MS,
    GroupCoordinator,
    not_coordinator,
)
from tidelog.broker.groups.coordinator.log import CoordinatorLog
from tidelog.broker.groups.coordinator.settings import settings_of
from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.messages import BrokerState, GroupTopic
from tidelog.broker.groups.state.places import (
    check_groups_on,
    groups_topic,
    not_available,
    partition_of,
    why_no_topic,
)
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.shared.events import EventLog
from tidelog.broker.shared.meter import Meter
from tidelog.broker.shared.node_time import HouseTime
from tidelog.metadata.image.image import Image, TopicImage
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, PartitionId, PartitionKey

TICK_MS: Final = 50
"""How late a deadline of a group may be noticed."""


class GroupCoordinators:
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
        self._meter = meter
        self._replicas = replicas
        self._clock = clock
        self._time = time
        self._broker_id = broker_id
        self._make_core = make_core
        self._is_in_contact = is_in_contact
        self._events = events
        self._coordinators: dict[PartitionId, GroupCoordinator] = {}
        """Of every partition that this broker has led."""
        self._has_begun = asyncio.Event()
        self._resigned: list[PartitionId] = []
        """Partitions whose coordinators have resigned since that was told last."""
        self._why_resigned: TidelogError | None = None
        self._image = Image()
        self._topics: tuple[GroupTopic, ...] = ()
        self._brokers: Mapping[BrokerId, BrokerState] = {}
        self._settings = settings_of(self._image)

    @property
    def by_partition(self) -> Mapping[PartitionId, GroupCoordinator]:
        """Those of every partition that this broker has led."""
        return self._coordinators

    def led(self) -> Iterator[GroupCoordinator]:
        """Those of the partitions that this broker leads."""
        return (each for each in self._coordinators.values() if each.is_led)

    def of(self, group: str) -> GroupCoordinator:
        """The one that coordinates the group; NOT_COORDINATOR if that is another broker's."""
        image = self._replicas.applied
        check_groups_on(image, tried=f"coordinate group {group}")
        topic = groups_topic(image)
        if topic is None:
            raise not_available(group, why_no_topic(image))
        partition = partition_of(group, topic)
        found = self._coordinators.get(partition.partition)
        if found is None:
            raise not_coordinator(PartitionKey(topic.topic_id, partition.partition))
        return found

    async def wait_begun(self) -> None:
        """Until there is a first coordinator here."""
        await self._has_begun.wait()

    async def run(self) -> None:
        """Until cancelled."""
        async with TaskScope() as scope:
            scope.start(self._tick(), name="group coordinators' ticks")
            try:
                while True:
                    self._follow(self._replicas.applied, scope)
                    await self._replicas.wait_applied(self._image.version + 1)
            finally:
                self._tell_resigned()

    def _follow(self, image: Image, scope: TaskScope) -> None:
        before, self._image = self._image, image
        # The topics first: a new coordinator has to know what the one before it knew.
        self._follow_topics(before, image)
        self._follow_brokers(before, image)
        self._follow_settings(before, image)
        topic = groups_topic(image)
        if topic is not None and topic is not groups_topic(before):
            self._follow_leaders(topic, scope)

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

    def _follow_leaders(self, topic: TopicImage, scope: TaskScope) -> None:
        for partition in topic.partitions:
            is_led = partition.leader_id == self._broker_id
            coordinator = self._coordinators.get(partition.partition)
            if coordinator is None and is_led:
                coordinator = self._begin(PartitionKey(topic.topic_id, partition.partition), scope)
            if coordinator is not None:
                coordinator.lead(partition.leader_epoch if is_led else None)

    def _begin(self, key: PartitionKey, scope: TaskScope) -> GroupCoordinator:
        made = GroupCoordinator(
            self._clock,
            self._time,
            key,
            open_log=lambda key, epoch: CoordinatorLog(self._replicas, key, epoch),
            make_core=self._make_core,
            is_in_contact=self._is_in_contact,
            on_resigned=self._note_resigned,
            events=self._events,
            meter=self._meter,
        )
        made.show(self._topics)
        made.show_brokers(self._brokers)
        made.configure(self._settings)
        self._coordinators[key.partition] = made
        self._has_begun.set()
        scope.start(made.run(), name=f"group coordinator {key.partition}")
        return made

    def _note_resigned(self, key: PartitionKey, error: TidelogError) -> None:
        self._resigned.append(key.partition)
        self._why_resigned = error

    def _tell_resigned(self) -> None:
        """One line for all that went together, as at a stop or when a broker is relieved."""
        if self._resigned:
            gone, self._resigned = sorted(self._resigned), []
            self._events.info(
                "group_coordinator_resigned",
                partitions=",".join(map(str, gone)),
                reason=self._why_resigned,
            )

    async def _tick(self) -> None:
        await self.wait_begun()
        while True:
            await self._clock.sleep(TICK_MS)
            self._tell_resigned()
            now_ms = self._clock.monotonic_ns() // NS_PER_MS
            for coordinator in self._coordinators.values():
                coordinator.tick(now_ms)
