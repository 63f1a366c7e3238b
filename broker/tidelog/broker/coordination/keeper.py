"""Which partitions of an internal topic this broker leads, and the coordinator of each.

Follows the image that this broker acts on: a partition that it leads has a coordinator at work, any
other one a coordinator that says so. One task ticks for all of them. It must never decide anything
about what is coordinated.

    image ─▶ what a kind wants to know of it, leaders ─▶ coordinator.lead
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

from tidelog.broker.coordination.log import CoordinatorLog
from tidelog.broker.coordination.places import CoordinatedKind, partition_of
from tidelog.broker.coordination.task import NS_PER_MS, Surroundings
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.shared.events import EventLog
from tidelog.broker.shared.meter import Meter
from tidelog.broker.shared.node_time import HouseTime
from tidelog.metadata.image.image import Image, TopicImage
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionId, PartitionKey

TICK_MS: Final = 50
"""How late a deadline may be noticed."""


class KeptCoordinator(Protocol):
    """What the keeper needs of a coordinator."""

    @property
    def is_led(self) -> bool:
        """Whether this broker leads the partition."""
        ...

    def lead(self, leader_epoch: LeaderEpoch | None) -> None:
        """In which epoch this broker leads; None: it does not."""
        ...

    def tick(self, now_ms: int) -> None:
        """Monotonic time has passed."""
        ...

    async def run(self) -> None:
        """Until cancelled."""
        ...


CoordinatorT = TypeVar("CoordinatorT", bound=KeptCoordinator)


class PartitionCoordinators(ABC, Generic[CoordinatorT]):
    """One a broker and kind. `run()` is its task."""

    def __init__(
        self,
        kind: CoordinatedKind,
        replicas: Replicas,
        clock: Clock,
        *,
        time: HouseTime,
        broker_id: BrokerId,
        is_in_contact: Callable[[], bool],
        events: EventLog,
        meter: Meter,
    ) -> None:
        self._kind = kind
        self._replicas = replicas
        self._clock = clock
        self._broker_id = broker_id
        self._events = events
        self._around = Surroundings(
            clock=clock,
            time=time,
            open_log=lambda key, epoch: CoordinatorLog(self._replicas, key, epoch),
            is_in_contact=is_in_contact,
            on_resigned=self._note_resigned,
            events=events,
            meter=meter,
        )
        self._coordinators: dict[PartitionId, CoordinatorT] = {}
        """Of every partition that this broker has led."""
        self._has_begun = asyncio.Event()
        self._resigned: list[PartitionId] = []
        """Partitions whose coordinators have resigned since that was told last."""
        self._why_resigned: TidelogError | None = None
        self._image = Image()

    # -- what a kind says ------------------------------------------------------------------------

    @abstractmethod
    def _follow_image(self, before: Image, image: Image) -> None:
        """Tell the coordinators what has changed that matters to them."""

    @abstractmethod
    def _make(self, key: PartitionKey) -> CoordinatorT:
        """A coordinator that knows what the others were told."""

    @abstractmethod
    def _log_resigned(self, partitions: str, reason: TidelogError | None) -> None:
        """Log which coordinators went."""

    # -- asked -----------------------------------------------------------------------------------

    @property
    def by_partition(self) -> Mapping[PartitionId, CoordinatorT]:
        """Those of every partition that this broker has led."""
        return self._coordinators

    def led(self) -> Iterator[CoordinatorT]:
        """Those of the partitions that this broker leads."""
        return (each for each in self._coordinators.values() if each.is_led)

    def of(self, name: str) -> CoordinatorT:
        """The one that coordinates the name; NOT_COORDINATOR if that is another broker's."""
        image = self._replicas.applied
        self._kind.check_on(image, tried=f"coordinate {self._kind.noun} {name}")
        topic = self._kind.topic_in(image)
        if topic is None:
            raise self._kind.not_available(name, self._kind.why_no_topic(image))
        partition = partition_of(name, topic)
        found = self._coordinators.get(partition.partition)
        if found is None:
            raise self._kind.not_coordinator(PartitionKey(topic.topic_id, partition.partition))
        return found

    async def wait_begun(self) -> None:
        """Until there is a first coordinator here."""
        await self._has_begun.wait()

    # -- its task --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        async with TaskScope() as scope:
            scope.start(self._tick(), name=f"{self._kind.noun} coordinators' ticks")
            try:
                while True:
                    self._follow(self._replicas.applied, scope)
                    await self._replicas.wait_applied(self._image.version + 1)
            finally:
                self._tell_resigned()

    def _follow(self, image: Image, scope: TaskScope) -> None:
        before, self._image = self._image, image
        # This first: a new coordinator has to know what the one before it knew.
        self._follow_image(before, image)
        topic = self._kind.topic_in(image)
        if topic is not None and topic is not self._kind.topic_in(before):
            self._follow_leaders(topic, scope)

    def _follow_leaders(self, topic: TopicImage, scope: TaskScope) -> None:
        for partition in topic.partitions:
            is_led = partition.leader_id == self._broker_id
            coordinator = self._coordinators.get(partition.partition)
            if coordinator is None and is_led:
                coordinator = self._begin(PartitionKey(topic.topic_id, partition.partition), scope)
            if coordinator is not None:
                coordinator.lead(partition.leader_epoch if is_led else None)

    def _begin(self, key: PartitionKey, scope: TaskScope) -> CoordinatorT:
        made = self._make(key)
        self._coordinators[key.partition] = made
        self._has_begun.set()
        scope.start(made.run(), name=f"{self._kind.noun} coordinator {key.partition}")
        return made

    def _note_resigned(self, key: PartitionKey, error: TidelogError) -> None:
        self._resigned.append(key.partition)
        self._why_resigned = error

    def _tell_resigned(self) -> None:
        """One line for all that went together, as at a stop or when a broker is relieved."""
        if self._resigned:
            gone, self._resigned = sorted(self._resigned), []
            self._log_resigned(",".join(map(str, gone)), self._why_resigned)

    async def _tick(self) -> None:
        await self.wait_begun()
        while True:
            await self._clock.sleep(TICK_MS)
            self._tell_resigned()
            now_ms = self._clock.monotonic_ns() // NS_PER_MS
            for coordinator in self._coordinators.values():
                coordinator.tick(now_ms)
