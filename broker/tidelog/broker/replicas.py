"""Which partitions this broker holds, and who waits for news of them.

Follows the metadata image: a partition placed here is opened, or made, in one of the data
directories (`replica_homes`) and handed to that directory's owner; what it is there, leader or
follower, is told to `roles` with every image. A directory that fails takes only its own partitions
with it. It must never delete what the image does not name, but for a topic whose deletion, or a
replica whose move to another broker, it saw: an orphan is kept and reported. A replica that comes
back waits until its files are gone.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from tidelog.broker.directory import LogDirectory, Placed, RecoverySummary
from tidelog.broker.errors import fresh
from tidelog.broker.log.names import PartitionKey
from tidelog.broker.log.state import PartitionLog
from tidelog.broker.partition.owner import DirectoryOwner
from tidelog.broker.replica_homes import Homes
from tidelog.metadata_quorum.controller import topic_configuration
from tidelog.metadata_quorum.controller.configuration import inherited_by_topics
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.metadata_quorum.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.metadata_quorum.port import Metadata
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionId, TopicId

Watcher = Callable[[PartitionKey], None]
_STOPPED: Final = (ErrorCode.STORAGE_CORRUPT, ErrorCode.STORAGE_FAILED)
REMOVALS_MAX: Final = 64
"""Partitions whose files go at once: thousands in one turn would hold up all."""


class Roles(Protocol):
    """Who acts on what the image says of a replica; see `replication.roles`."""

    def on_image(self, image: Image) -> None:
        """An image is about to be taken over."""

    def take(
        self,
        log: PartitionLog,
        owner: DirectoryOwner,
        partition: PartitionImage,
        *,
        is_flush_sync: bool,
    ) -> None:
        """What the image says of a replica that is served here."""

    def configure(self, key: PartitionKey, *, is_flush_sync: bool) -> None:
        """The topic's settings have changed."""

    def drop(self, key: PartitionKey) -> None:
        """The replica is not served here any more."""

    def settle(self) -> None:
        """The image is taken over."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that this broker holds."""

    log: PartitionLog
    settings: TopicSettings
    topic_name: str
    directory: LogDirectory
    is_led: bool = True
    """Whether this broker leads it: only then it is written here."""
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    """The image's; the log has it once its owner has taken the role over."""


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
        self.roles: Roles | None = None
        """Set before `recover`; None where nothing is served."""
        self._watchers: dict[PartitionKey, dict[Watcher, None]] = {}
        self._end_watchers: dict[PartitionKey, dict[Watcher, None]] = {}
        self._applied: Image = Image()
        self._inherited: Mapping[str, str] = {}
        self._leaving: list[Replica] = []
        """Not placed here any more: their files are to go."""
        self.irreplaceable: dict[PartitionKey, None] = {}
        """Damaged, and nobody else holds every acknowledged record."""
        self._left: dict[PartitionKey, None] = {}
        """Of which the files are not gone yet."""
        self._removing = asyncio.Semaphore(REMOVALS_MAX)
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        for directory in self.directories:
            directory.on_advanced = self._on_advanced
            directory.on_moved = self._on_moved

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
                leaving, self._leaving = self._leaving, []
                for replica in leaving:
                    # A job may hold its files for long: what follows in the image waits for none.
                    scope.start(self._remove(replica), name="removal")

    async def _remove(self, replica: Replica) -> None:
        key = replica.log.key
        async with self._removing:
            are_gone = await replica.directory.remove(key)
        self._homes.note_removed(key, replica.directory, are_gone=are_gone)
        del self._left[key]
        self._come_back(key)

    def renew_role(self, key: PartitionKey) -> None:
        """Say once more what the image says of a replica here: it has stopped."""
        replica = self._replicas.get(key)
        partition = self._applied.partition(key.topic_id, key.partition)
        if replica is not None and partition is not None and self._is_held_in(partition):
            self._tell_role(replica, partition)
            self._settle_roles()

    def _is_held_in(self, partition: PartitionImage) -> bool:
        return self._broker_id in partition.replicas

    async def begin_anew(self, key: PartitionKey) -> str:
        """Set the files of a damaged replica aside and serve it from an empty log, which its leader
        fills; the name that the files have now."""
        replica = self._replicas[key]
        directory = replica.directory
        assert replica.log.failure is not None, f"{key} is in order"
        kept_as = await directory.name_aside(key)
        if self._replicas.get(key) is not replica or replica.is_led:
            return ""
        # Nobody else removes it, nor makes it again, until it is back.
        del self._replicas[key]
        self._left[key] = None
        if self.roles is not None:
            self.roles.drop(key)
        self._on_advanced(key)
        are_gone = await directory.remove(key, kept_as=kept_as)
        self._homes.note_removed(key, directory, are_gone=are_gone)
        del self._left[key]
        self._come_back(key)
        return kept_as

    def _come_back(self, key: PartitionKey) -> None:
        """The image may have placed it here again while its files went."""
        topic = self._applied.topics.get(key.topic_id)
        if topic is None or key in self._replicas:
            return
        partition = topic.partitions[key.partition]
        if self._broker_id in partition.replicas:
            self._place(key, (topic, partition, self._settings(topic)), None, was_here=False)
            self._settle_roles()

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
            raise fresh(self.told(key, log.failure))
        if not replica.is_led:
            raise self._missing(topic_id, partition, tried)
        if leader_epoch not in (-1, replica.leader_epoch):
            is_old = leader_epoch < replica.leader_epoch
            raise TidelogError(
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH,
                tried=tried,
                happened=f"the request carries leader epoch {leader_epoch}, "
                f"the partition is at {replica.leader_epoch}",
            )
        return replica

    def told(self, key: PartitionKey, error: TidelogError) -> TidelogError:
        """What a client hears of a copy that has stopped: to come back, where another replica is
        about to lead. Not of what may have been stored."""
        if error.code not in _STOPPED or key in self.irreplaceable:
            return error
        partition = self._applied.partition(key.topic_id, key.partition)
        if partition is None or all(
            each == self._broker_id
            for each in (*partition.in_sync_replicas, *partition.eligible_replicas)
        ):
            return error
        return TidelogError(
            ErrorCode.NOT_LEADER,
            tried=error.tried,
            happened=f"this broker's copy has stopped, another one takes over: {error.happened}",
        )

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

    def watch_end(self, key: PartitionKey, watcher: Watcher) -> None:
        """Call back when the log's end or its flushed offset moves, of one of several replicas."""
        self._end_watchers.setdefault(key, {})[watcher] = None

    def unwatch_end(self, key: PartitionKey, watcher: Watcher) -> None:
        """Undo `watch_end`."""
        watchers = self._end_watchers.get(key)
        if watchers is not None:
            watchers.pop(watcher, None)
            if not watchers:
                del self._end_watchers[key]

    def _on_advanced(self, key: PartitionKey) -> None:
        for watcher in list(self._watchers.get(key, ())):
            watcher(key)

    def _on_moved(self, key: PartitionKey) -> None:
        for watcher in list(self._end_watchers.get(key, ())):
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
                if self._broker_id not in partition.replicas:
                    continue
                key = PartitionKey(topic_id, partition.partition)
                if key not in self._left and not self._is_served(key, partition):
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
        if self.roles is not None:
            self.roles.on_image(image)
        self._follow_known(image)
        for key, what in placed.items():
            was_here = is_start or key in self._lost or key in self._replicas
            self._place(key, what, opened.get(key), was_here=was_here)
        self._settle_roles()
        self._applied = image
        waiting, self._waiters = self._waiters, []
        for version, waiter in waiting:
            if version > image.version:
                self._waiters.append((version, waiter))
            elif not waiter.done():
                waiter.set_result(None)

    def _settle_roles(self) -> None:
        if self.roles is not None:
            self.roles.settle()

    def _place(
        self,
        key: PartitionKey,
        what: _Placed,
        found: tuple[LogDirectory, PartitionLog] | None,
        *,
        was_here: bool,
    ) -> None:
        """Serve a partition that was opened, or is new here."""
        topic, partition, settings = what
        if found is None:
            home = self._homes.choose(key, partition, was_here=was_here)
            if isinstance(home, TidelogError):
                self._lost[key] = home
                return
            found = (home, home.add(key, _wanted(partition, settings)))
        self._lost.pop(key, None)
        if self.roles is not None and key in self._replicas:
            # Given up where it was: that directory has failed.
            self.roles.drop(key)
        directory, log = found
        replica = Replica(
            log=log,
            settings=settings,
            topic_name=topic.name,
            directory=directory,
            is_led=partition.leader_id == self._broker_id,
            leader_epoch=partition.leader_epoch,
        )
        self._replicas[key] = replica
        self._tell_role(replica, partition)

    def _follow_known(self, image: Image) -> None:
        """Take over roles and settings of what is served here already; let go of what is not."""
        for topic_id, known in self._applied.topics.items():
            topic = image.topics.get(topic_id)
            if topic is known:
                continue
            settings = None if topic is None else self._settings(topic)
            for number in range(len(known.partitions)):
                key = PartitionKey(topic_id, PartitionId(number))
                if topic is None or self._broker_id not in topic.partitions[number].replicas:
                    self._let_go(key, None if topic is None else topic.partitions[number])
                elif (replica := self._replicas.get(key)) is not None:
                    assert settings is not None, f"{key} has no topic"
                    is_same = topic.partitions[number] is known.partitions[number]
                    if not is_same or settings != replica.settings:
                        self._take_over(replica, topic.partitions[number], settings)

    def _let_go(self, key: PartitionKey, partition: PartitionImage | None) -> None:
        """The image does not place it here any more; None: its topic was deleted."""
        self._lost.pop(key, None)
        self.irreplaceable.pop(key, None)
        replica = self._replicas.pop(key, None)
        if replica is None:
            return
        self._leaving.append(replica)
        self._left[key] = None
        if partition is not None and replica.directory.is_open:
            # Who waits for a commit is to ask the one that leads now.
            replica.directory.owner.follow(replica.log, partition.leader_epoch)
        if self.roles is not None:
            self.roles.drop(key)
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
            if self.roles is not None:
                self.roles.configure(key, is_flush_sync=settings.is_flush_sync)

    def _take_over(
        self, replica: Replica, partition: PartitionImage, settings: TopicSettings
    ) -> None:
        key = replica.log.key
        self._configure(key, replica, settings)
        self._replicas[key] = msgspec.structs.replace(
            self._replicas[key],
            is_led=partition.leader_id == self._broker_id,
            leader_epoch=partition.leader_epoch,
        )
        self._tell_role(self._replicas[key], partition)
        self._on_advanced(key)

    def _tell_role(self, replica: Replica, partition: PartitionImage) -> None:
        """Whoever acts on it; nobody, where its directory could not be opened."""
        if self.roles is not None and replica.directory.is_open:
            self.roles.take(
                replica.log,
                replica.directory.owner,
                partition,
                is_flush_sync=replica.settings.is_flush_sync,
            )

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
    return Placed(
        leader_epoch=partition.leader_epoch,
        settings=settings,
        is_sole=len(partition.replicas) == 1,
    )
