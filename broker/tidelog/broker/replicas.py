"""Which partitions this broker holds, and who waits for news of them.

Follows the metadata image: a partition placed here is opened, or made, in one of the data
directories (`replica_homes`) and handed to that directory's owner. A directory that fails takes
only its own partitions with it. It must never delete what the image does not name, but for a topic
whose deletion it saw: an orphan is kept and reported.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.broker.directory import LogDirectory, Placed, RecoverySummary
from tidelog.broker.errors import fresh
from tidelog.broker.log.names import PartitionKey
from tidelog.broker.log.state import PartitionLog
from tidelog.broker.replica_homes import Homes
from tidelog.metadata_quorum.controller import topic_configuration
from tidelog.metadata_quorum.controller.configuration import inherited_by_topics
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.metadata_quorum.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.metadata_quorum.port import Metadata
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionId, TopicId

Watcher = Callable[[PartitionKey], None]
REMOVALS_MAX: Final = 64
"""Partitions of deleted topics whose files go at once: thousands in one turn would hold up all."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that this broker holds."""

    log: PartitionLog
    settings: TopicSettings
    topic_name: str
    directory: LogDirectory
    is_led: bool = True
    """Whether this broker leads it: only then it is written and read here."""


_Placed = tuple[TopicImage, PartitionImage, TopicSettings]


class Replicas:
    """All partitions of this broker, by topic id and number."""

    def __init__(
        self, directories: Sequence[LogDirectory], metadata: Metadata, broker_id: BrokerId
    ) -> None:
        assert directories, "a broker has a directory for partitions"
        self.directories = tuple(directories)
        self._homes = Homes(self.directories, broker_id)
        self._metadata = metadata
        self._broker_id = broker_id
        self._replicas: dict[PartitionKey, Replica] = {}
        self._lost: dict[PartitionKey, TidelogError] = {}
        """Placed here, in a directory that cannot be used: why not."""
        self._watchers: dict[PartitionKey, dict[Watcher, None]] = {}
        self._applied: Image = Image()
        self._inherited: Mapping[str, str] = {}
        self._deleted: list[Replica] = []
        self._removing = asyncio.Semaphore(REMOVALS_MAX)
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        for directory in self.directories:
            directory.on_advanced = self._on_advanced

    async def recover(self) -> RecoverySummary:
        """Open everything that the image places here; before anything is served."""
        image = self._metadata.image()
        self._inherited = inherited_by_topics(image, self._broker_id)
        placed = self._placed(image)
        summary = RecoverySummary(partitions=len(placed))
        await self._homes.survey()
        wanted: dict[LogDirectory, dict[PartitionKey, Placed]] = {}
        for key, (_, partition, settings) in placed.items():
            home = self._homes.choose(key, partition, was_here=True)
            if isinstance(home, LogDirectory):
                wanted.setdefault(home, {})[key] = _wanted(partition, settings)
        opened: dict[PartitionKey, tuple[LogDirectory, PartitionLog]] = {}
        for directory in self.directories:
            logs = await directory.open(wanted.get(directory, {}), summary)
            opened.update((key, (directory, log)) for key, log in logs.items())
        self._serve(image, placed, opened, is_start=True)
        return summary

    async def run(self) -> None:
        """Follow the image until cancelled."""
        async with TaskScope() as scope:
            while True:
                self._follow(await self._metadata.wait_version(self._applied.version + 1))
                deleted, self._deleted = self._deleted, []
                for replica in deleted:
                    # A job may hold its files for long: what follows in the image waits for none.
                    scope.start(self._remove(replica), name="removal")

    async def _remove(self, replica: Replica) -> None:
        async with self._removing:
            await replica.directory.remove(replica.log.key)

    def _follow(self, image: Image) -> None:
        inherited = inherited_by_topics(image, self._broker_id)
        if inherited != self._inherited:
            self._inherited = inherited
            self._inherit(image)
        self._serve(image, self._placed(image), {})

    async def wait_applied(self, version: int) -> None:
        """Until this broker serves what the image of that version places here."""
        if self._applied.version >= version:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((version, waiter))
        await waiter

    def get(self, topic_id: TopicId, partition: int) -> Replica | None:
        """The replica held here."""
        return self._replicas.get(PartitionKey(topic_id, PartitionId(partition)))

    def __iter__(self) -> Iterator[Replica]:
        """Those that are held here."""
        return iter(self._replicas.values())

    def find(self, topic_id: bytes, partition: int, leader_epoch: int, *, tried: str) -> Replica:
        """The replica, led here at the epoch that the client believes in; else a typed error."""
        key = PartitionKey(TopicId(topic_id), PartitionId(partition))
        replica = self._replicas.get(key)
        if replica is None:
            if key in self._lost:
                raise fresh(self._lost[key])
            raise self._missing(topic_id, partition, tried)
        log = replica.log
        if log.failure is not None:
            raise fresh(log.failure)
        if not replica.is_led:
            raise self._missing(topic_id, partition, tried)
        if leader_epoch not in (-1, log.leader_epoch):
            is_old = leader_epoch < log.leader_epoch
            raise TidelogError(
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH,
                tried=tried,
                happened=f"the request carries leader epoch {leader_epoch}, "
                f"the partition is at {log.leader_epoch}",
            )
        return replica

    def watch(self, key: PartitionKey, watcher: Watcher) -> None:
        """Call back when the partition's high watermark moves or the partition stops."""
        self._watchers.setdefault(key, {})[watcher] = None

    def unwatch(self, key: PartitionKey, watcher: Watcher) -> None:
        """Undo `watch`."""
        watchers = self._watchers.get(key)
        if watchers is not None:
            watchers.pop(watcher, None)
            if not watchers:
                del self._watchers[key]

    def _on_advanced(self, key: PartitionKey) -> None:
        for watcher in list(self._watchers.get(key, ())):
            watcher(key)

    def _settings(self, topic: TopicImage) -> TopicSettings:
        return topic_configuration.parse(
            topic.configuration, topic=topic.name, inherited=self._inherited
        )

    def _placed(self, image: Image) -> dict[PartitionKey, _Placed]:
        """The partitions that the image places here and that are not served yet."""
        placed: dict[PartitionKey, _Placed] = {}
        for topic_id, topic in image.topics.items():
            if self._applied.topics.get(topic_id) is topic:
                continue
            settings = self._settings(topic)
            for partition in topic.partitions:
                key = PartitionKey(topic_id, partition.partition)
                if self._broker_id in partition.replicas and not self._is_served(key, partition):
                    placed[key] = (topic, partition, settings)
        return placed

    def _is_served(self, key: PartitionKey, partition: PartitionImage) -> bool:
        """Whether it is held, and not given up where it was because that directory has failed."""
        replica = self._replicas.get(key)
        if replica is None or replica.directory.failure is None:
            return replica is not None
        named = self._homes.named(partition.directory_of(self._broker_id))
        return named is None or named is replica.directory or named.failure is not None

    def _serve(
        self,
        image: Image,
        placed: Mapping[PartitionKey, _Placed],
        opened: Mapping[PartitionKey, tuple[LogDirectory, PartitionLog]],
        *,
        is_start: bool = False,
    ) -> None:
        """Take over what changed; a new partition has no file until its first batch."""
        self._follow_known(image)
        for key, (topic, partition, settings) in placed.items():
            found = opened.get(key)
            if found is None:
                was_here = is_start or key in self._lost or key in self._replicas
                home = self._homes.choose(key, partition, was_here=was_here)
                if isinstance(home, TidelogError):
                    self._lost[key] = home
                    continue
                found = (home, home.add(key, _wanted(partition, settings)))
            self._lost.pop(key, None)
            directory, log = found
            self._replicas[key] = Replica(
                log=log,
                settings=settings,
                topic_name=topic.name,
                directory=directory,
                is_led=partition.leader_id == self._broker_id,
            )
        self._applied = image
        waiting, self._waiters = self._waiters, []
        for version, waiter in waiting:
            if version > image.version:
                self._waiters.append((version, waiter))
            elif not waiter.done():
                waiter.set_result(None)

    def _follow_known(self, image: Image) -> None:
        """Take over leader and settings of what is served here already; forget deleted topics."""
        for topic_id, known in self._applied.topics.items():
            topic = image.topics.get(topic_id)
            if topic is known:
                continue
            settings = None if topic is None else self._settings(topic)
            for number in range(len(known.partitions)):
                key = PartitionKey(topic_id, PartitionId(number))
                replica = self._replicas.get(key)
                if topic is None:
                    self._lost.pop(key, None)
                if replica is None:
                    continue
                if topic is None or settings is None:
                    self._deleted.append(self._replicas.pop(key))
                else:
                    self._replicas[key] = self._led(replica, topic.partitions[number], settings)
                self._on_advanced(key)

    def _inherit(self, image: Image) -> None:
        """What the broker or the cluster sets for all topics has changed."""
        for key, replica in self._replicas.items():
            topic = image.topics.get(key.topic_id)
            if topic is not None:
                self._configure(key, replica, self._settings(topic))

    def _configure(self, key: PartitionKey, replica: Replica, settings: TopicSettings) -> None:
        if settings != replica.settings:
            replica.directory.configure(key, settings)
            self._replicas[key] = msgspec.structs.replace(replica, settings=settings)

    def _led(self, replica: Replica, partition: PartitionImage, settings: TopicSettings) -> Replica:
        replica.log.lead(partition.leader_epoch)
        if settings != replica.settings:
            replica.directory.configure(replica.log.key, settings)
        is_led = partition.leader_id == self._broker_id
        return msgspec.structs.replace(replica, settings=settings, is_led=is_led)

    def _missing(self, topic_id: bytes, partition: int, tried: str) -> TidelogError:
        topic = self._metadata.image().topics.get(TopicId(topic_id))
        if topic is None:
            return TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                tried=tried,
                happened=f"there is no topic of the id {topic_id.hex()}",
            )
        if partition >= len(topic.partitions):
            return TidelogError(
                ErrorCode.UNKNOWN_PARTITION,
                tried=tried,
                happened=f"topic {topic.name} has {len(topic.partitions)} partitions",
            )
        leader_id = topic.partitions[partition].leader_id
        return TidelogError(
            ErrorCode.NOT_LEADER,
            tried=tried,
            happened="no broker leads it at the moment"
            if leader_id == NO_LEADER
            else f"broker {leader_id} leads it",
        )


def _wanted(partition: PartitionImage, settings: TopicSettings) -> Placed:
    return Placed(leader_epoch=partition.leader_epoch, settings=settings)
