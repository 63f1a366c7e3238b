"""Which partitions this broker holds, and who waits for news of them.

Follows the metadata image: a partition placed here is opened, or made, in one of the data
directories (`replicas.homes`) and handed to that directory's owner; what it is there, leader or
follower, is told to `roles` with every image. A directory that fails takes only its own partitions
with it. It must never delete what the image does not name, but for a topic whose deletion, or a
replica whose move to another broker, it saw: an orphan is kept and reported. A replica that comes
back waits until its files are gone. An orphan that is placed here is opened as it is, so is a log
that has stopped: what comes to it then, comes by its role.

    placed ─┬─ no files ─▶ made ────────────────┬▶ served, by its role
            └─ files of before ─▶ opened ───────┤
    has stopped ─ again and again ─▶ opened ────┘
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.broker.directory.owner.owner import LogEvents
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import LogDirectory, Placed, RecoverySummary
from tidelog.broker.replicas.failures import ReplicaFailure, failure_of, missing, opening, told_of
from tidelog.broker.replicas.homes import Homes
from tidelog.broker.replicas.lives import ReplicaLives
from tidelog.broker.replicas.types import (
    NoRoles,
    PlacedHere,
    Roles,
    settings_of,
    stricter_of,
    wanted_of,
)
from tidelog.broker.replicas.types import Replica as Replica
from tidelog.broker.replicas.watchers import ReplicaWatchers
from tidelog.broker.replicas.watchers import Watcher as Watcher
from tidelog.broker.shared.errors import fresh
from tidelog.metadata.image.image import Image, PartitionImage, TopicImage
from tidelog.metadata.settings import of_topics as topic_configuration
from tidelog.metadata.settings.inherited import inherited_by_topics
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.metadata_quorum.port import Metadata
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionId, PartitionKey, TopicId

REMOVALS_MAX: Final = 64
"""Partitions whose files go at once: thousands in one turn would hold up all."""
OPENINGS_MAX: Final = 16
"""Orphans that are opened at once: each may hold a piece of a segment in memory."""


class Replicas(ReplicaWatchers):
    """All partitions of this broker, by topic id and number."""

    def __init__(
        self, directories: Sequence[LogDirectory], metadata: Metadata, broker_id: BrokerId
    ) -> None:
        assert directories, "a broker has a directory for partitions"
        super().__init__()
        self.directories = tuple(directories)
        self._homes = Homes(self.directories, broker_id)
        self._metadata = metadata
        self._broker_id = broker_id
        self._lives = ReplicaLives()
        self._roles: Roles = NoRoles()
        self._applied: Image = Image()
        self._inherited: Mapping[str, str] = {}
        self._to_remove: list[Replica] = []
        """Not placed here any more: their files are to go."""
        self.irreplaceable: dict[PartitionKey, TidelogError] = {}
        """Stopped, and why the controller lets nobody take over: nobody else could."""
        self._to_open: list[tuple[PartitionKey, LogDirectory]] = []
        """Placed here, and to be opened."""
        self._removing = asyncio.Semaphore(REMOVALS_MAX)
        self._opening = asyncio.Semaphore(OPENINGS_MAX)
        self._scope: TaskScope | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def announce_to(self, roles: Roles) -> None:
        """Tell what each replica is by the image, from the opening on."""
        assert isinstance(self._roles, NoRoles), "one acts on roles"
        self._roles = roles

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
                wanted.setdefault(home, {})[key] = wanted_of(partition, settings)
        opened: dict[PartitionKey, tuple[LogDirectory, PartitionLog]] = {}
        events = LogEvents(
            on_advanced=self._on_advanced,
            on_moved=self._on_moved,
            on_stopped=self._lives.note_stopped,
            on_verify=self._on_verify,
        )
        for directory in self.directories:
            logs = await directory.open(wanted.get(directory, {}), summary, events)
            opened.update((key, (directory, log)) for key, log in logs.items())
        self._serve(image, placed, opened, is_start=True)
        return summary

    async def run(self) -> None:
        """Follow the image until cancelled."""
        async with TaskScope() as scope:
            self._scope = scope
            self._open_orphans()
            while True:
                self._follow(await self._metadata.wait_version(self._applied.version + 1))
                to_remove, self._to_remove = self._to_remove, []
                for replica in to_remove:
                    # A job may hold its files for long: what follows in the image waits for none.
                    scope.start(self._remove(replica), name="removal")

    def _open_orphans(self) -> None:
        """Beside all else: an image may place thousands of them here."""
        if self._scope is not None:
            to_open, self._to_open = self._to_open, []
            for key, directory in to_open:
                self._scope.start(self._open_orphan(key, directory), name="opening")

    async def _open_orphan(self, key: PartitionKey, directory: LogDirectory) -> None:
        async with self._opening:
            try:
                await self._open(key, directory)
            except TidelogError as error:
                self._lives.be_unusable(key, error)

    async def open_again(self, key: PartitionKey) -> None:
        """Open the files of a replica that has stopped once more, and serve it by its role, if they
        can be opened now; else it has stopped as before. Nothing of it is moved or given up."""
        replica = self._lives.served(key)
        assert replica is not None, f"{key} is not served here"
        failure = replica.log.failure
        assert failure is not None, f"{key} is in order"
        self._lives.begin_opening(key, failure)
        self._roles.stand_by(key)
        self._roles.settle()
        self._on_advanced(key)
        try:
            await self._open(key, replica.directory)
        except TidelogError:
            # The directory has failed: it is for the image to say what becomes of it.
            self._lives.serve(replica)

    async def _open(self, key: PartitionKey, directory: LogDirectory) -> None:
        """Open the files there, whatever the image says meanwhile, then do what it says by then."""
        what = self._what(key)
        log = None
        if what is not None:
            log = await directory.open_again(key, wanted_of(what[1], what[2]))
        what = self._what(key)
        if what is not None and log is not None:
            self.irreplaceable.pop(key, None)
            directory.configure(key, what[2])
            self._place(key, what, (directory, log), was_here=True)
            self._roles.settle()
            self._on_advanced(key)
            return
        # It was moved away, or its topic deleted, meanwhile.
        self._roles.drop(key)
        are_gone = await directory.remove(key)
        self._homes.note_removed(key, directory, are_gone=are_gone)
        self._lives.be_gone(key)
        self._come_back(key)

    def _what(self, key: PartitionKey) -> PlacedHere | None:
        """What the image that is served says of a partition, if it places it here."""
        topic = self._applied.topics.get(key.topic_id)
        if topic is None:
            return None
        partition = topic.partitions[key.partition]
        if not self._is_held_in(partition):
            return None
        return topic, partition, settings_of(self._settings(topic), partition)

    async def _remove(self, replica: Replica) -> None:
        key = replica.log.key
        async with self._removing:
            are_gone = await replica.directory.remove(key)
        self._homes.note_removed(key, replica.directory, are_gone=are_gone)
        self._lives.be_gone(key)
        self._come_back(key)

    def renew_role(self, key: PartitionKey) -> None:
        """Say once more what the image says of a replica here: it has stopped."""
        replica = self._lives.served(key)
        partition = self._applied.partition(key.topic_id, key.partition)
        if replica is not None and partition is not None and self._is_held_in(partition):
            self._tell_role(replica, partition)
            self._roles.settle()

    def _is_held_in(self, partition: PartitionImage) -> bool:
        return self._broker_id in partition.replicas

    async def begin_anew(self, key: PartitionKey) -> str:
        """Set the files of a damaged replica aside and serve it from an empty log, which its leader
        fills; the name that the files have now."""
        replica = self._lives.served(key)
        assert replica is not None, f"{key} is not served here"
        directory = replica.directory
        assert replica.log.failure is not None, f"{key} is in order"
        kept_as = await directory.name_aside(key)
        if self._lives.served(key) is not replica or replica.is_led:
            return ""
        # Nobody else removes it, nor makes it again, until it is back.
        self._lives.set_aside(key)
        self._roles.drop(key)
        self._on_advanced(key)
        are_gone = await directory.remove(key, kept_as=kept_as)
        self._homes.note_removed(key, directory, are_gone=are_gone)
        self._lives.be_gone(key)
        self._come_back(key)
        return kept_as

    def _come_back(self, key: PartitionKey) -> None:
        """The image may have placed it here again while its files went."""
        what = self._what(key)
        if what is not None and self._lives.served(key) is None:
            self._place(key, what, None, was_here=False)
            self._roles.settle()

    def _follow(self, image: Image) -> None:
        inherited = inherited_by_topics(image, self._broker_id)
        if inherited != self._inherited:
            self._inherited = inherited
            self._inherit(image)
        self._serve(image, self._placed(image), {})

    @property
    def applied(self) -> Image:
        """The image that this broker acts on: a newer one may have been shown already."""
        return self._applied

    async def wait_applied(self, version: int) -> None:
        """Until this broker serves what the image of that version places here."""
        if self._applied.version >= version:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((version, waiter))
        await waiter

    def get(self, topic_id: TopicId, partition: int) -> Replica | None:
        """The replica held here."""
        return self._lives.served(PartitionKey(topic_id, PartitionId(partition)))

    def __iter__(self) -> Iterator[Replica]:
        """Those that are held here."""
        return iter(self._lives)

    def stopped(self) -> list[Replica]:
        """Those that have stopped, by themselves or with their directory."""
        return self._lives.stopped()

    async def wait_stopped(self) -> None:
        """Until one has stopped; at once if one has."""
        await self._lives.wait_stopped()

    def name_of(self, topic_id: TopicId, partition: int) -> str:
        """A partition in the words of people, for errors."""
        return self._metadata.image().name_partition(topic_id, partition)

    def find(self, topic_id: bytes, partition: int, leader_epoch: int, *, tried: str) -> Replica:
        """The replica, led here at the epoch that the client believes in; else a typed error."""
        key = PartitionKey(TopicId(topic_id), PartitionId(partition))
        replica = self._lives.served(key)
        if replica is None:
            unusable = self._lives.error_of(key)
            if unusable is not None:
                raise fresh(self.told(key, unusable))
            raise missing(self._metadata.image(), topic_id, partition, tried=tried)
        log = replica.log
        if log.failure is not None:
            raise fresh(self.told(key, log.failure))
        if not replica.is_led:
            raise missing(self._metadata.image(), topic_id, partition, tried=tried)
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
        """What a client hears of a copy that has stopped."""
        if key in self.irreplaceable:
            return error
        partition = self._applied.partition(key.topic_id, key.partition)
        return told_of(error, partition, self._broker_id)

    def failures(self) -> tuple[ReplicaFailure, ...]:
        """Every replica that is placed here and not in order, and why; in no certain order."""
        found = [
            failure_of(
                replica.log.key,
                replica.log.failure,
                topic_name=replica.topic_name,
                directory=replica.directory.name,
                is_led=replica.is_led,
                kept=self.irreplaceable.get(replica.log.key),
            )
            for replica in self._lives
            if replica.log.failure is not None
        ]
        for key, error in self._lives.errors():
            what = self._what(key)
            if what is not None:
                found.append(
                    failure_of(
                        key,
                        error,
                        topic_name=what[0].name,
                        directory="",
                        is_led=what[1].leader_id == self._broker_id,
                        kept=self.irreplaceable.get(key),
                    )
                )
        return tuple(found)

    def _settings(self, topic: TopicImage) -> TopicSettings:
        return topic_configuration.parse(
            topic.configuration, topic=topic.name, inherited=self._inherited
        )

    def _placed(self, image: Image) -> dict[PartitionKey, PlacedHere]:
        """The partitions that the image places here and that are not served yet."""
        placed: dict[PartitionKey, PlacedHere] = {}
        for topic_id, topic in image.topics.items():
            if self._applied.topics.get(topic_id) is topic:
                continue
            settings = self._settings(topic)
            for partition in topic.partitions:
                if self._broker_id not in partition.replicas:
                    continue
                key = PartitionKey(topic_id, partition.partition)
                if not self._lives.is_busy(key) and not self._is_served(key, partition):
                    placed[key] = (topic, partition, settings_of(settings, partition))
        return placed

    def _is_served(self, key: PartitionKey, partition: PartitionImage) -> bool:
        """Whether it is held, and not given up where it was because that directory has failed."""
        replica = self._lives.served(key)
        if replica is None or replica.directory.failure is None:
            return replica is not None
        named = self._homes.named(partition.directory_of(self._broker_id))
        return named is None or named is replica.directory or named.failure is not None

    def _serve(
        self,
        image: Image,
        placed: Mapping[PartitionKey, PlacedHere],
        opened: Mapping[PartitionKey, tuple[LogDirectory, PartitionLog]],
        *,
        is_start: bool = False,
    ) -> None:
        """Take over what changed; a new partition has no file until its first batch."""
        self._roles.on_image(image)
        self._follow_known(image)
        for key, what in placed.items():
            was_here = is_start or self._lives.is_known(key)
            self._place(key, what, opened.get(key), was_here=was_here)
        self._roles.settle()
        self._applied = image
        waiting, self._waiters = self._waiters, []
        for version, waiter in waiting:
            if version > image.version:
                self._waiters.append((version, waiter))
            elif not waiter.done():
                waiter.set_result(None)

    def _place(
        self,
        key: PartitionKey,
        what: PlacedHere,
        found: tuple[LogDirectory, PartitionLog] | None,
        *,
        was_here: bool,
    ) -> None:
        """Serve a partition that was opened, or is new here."""
        topic, partition, settings = what
        if found is None:
            home = self._homes.choose(key, partition, was_here=was_here)
            if isinstance(home, TidelogError):
                self._lives.be_unusable(key, home)
                return
            if self._homes.is_found(key, home) and not home.holds(key):
                self._await_opening(key, home)
                return
            found = (home, home.add(key, wanted_of(partition, settings)))
        if self._lives.served(key) is not None:
            # Given up where it was: that directory has failed.
            self._roles.drop(key)
        directory, log = found
        replica = Replica(
            log=log,
            settings=settings,
            topic_name=topic.name,
            directory=directory,
            is_internal=topic.is_internal,
            is_led=partition.leader_id == self._broker_id,
            leader_epoch=partition.leader_epoch,
        )
        self._lives.serve(replica)
        self._tell_role(replica, partition)

    def _await_opening(self, key: PartitionKey, home: LogDirectory) -> None:
        """Files of it lie there that nobody has opened yet."""
        if self._lives.served(key) is not None:
            # Given up where it was: that directory has failed.
            self._roles.drop(key)
        self._lives.begin_opening(key, opening(key, home.name))
        self._to_open.append((key, home))
        self._open_orphans()

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
                elif (replica := self._lives.served(key)) is not None:
                    assert settings is not None, f"{key} has no topic"
                    partition = topic.partitions[number]
                    own = settings_of(settings, partition)
                    if partition is not known.partitions[number] or own != replica.settings:
                        self._take_over(replica, partition, own)

    def _let_go(self, key: PartitionKey, partition: PartitionImage | None) -> None:
        """The image does not place it here any more; None: its topic was deleted."""
        self.irreplaceable.pop(key, None)
        replica = self._lives.let_go(key)
        if replica is None:
            return
        self._to_remove.append(replica)
        if partition is not None and replica.directory.is_open:
            # Who waits for a commit is to ask the one that leads now.
            replica.directory.owner.follow(replica.log, partition.leader_epoch)
        self._roles.drop(key)
        self._on_advanced(key)

    def _inherit(self, image: Image) -> None:
        """What the broker or the cluster sets for all topics has changed."""
        for replica in list(self._lives):
            key = replica.log.key
            if key.topic_id in image.topics:
                # As its topic and its place are until now: what is new of them is told next.
                known = self._applied.topics[key.topic_id]
                own = settings_of(self._settings(known), known.partitions[key.partition])
                self._configure(key, replica, own)

    def _configure(self, key: PartitionKey, replica: Replica, settings: TopicSettings) -> Replica:
        """The replica with these settings."""
        if settings == replica.settings:
            return replica
        replica.directory.configure(key, settings)
        replica = msgspec.structs.replace(replica, settings=settings)
        self._lives.take_over(replica)
        self._roles.configure(key, is_flush_sync=settings.is_flush_sync)
        return replica

    def _take_over(
        self, replica: Replica, partition: PartitionImage, settings: TopicSettings
    ) -> None:
        """The rules of a commit change with the role, and the owner hears of one after the other:
        between them the stricter of both hold, so that nothing is committed by a set and a rule
        that no image had together."""
        key = replica.log.key
        replica = self._configure(key, replica, stricter_of(settings, replica.settings))
        replica = msgspec.structs.replace(
            replica,
            is_led=partition.leader_id == self._broker_id,
            leader_epoch=partition.leader_epoch,
        )
        self._lives.take_over(replica)
        self._tell_role(replica, partition)
        self._configure(key, replica, settings)
        self._on_advanced(key)

    def _tell_role(self, replica: Replica, partition: PartitionImage) -> None:
        """Whoever acts on it; nobody, where its directory could not be opened."""
        if replica.directory.is_open:
            self._roles.take(
                replica.log,
                replica.directory.owner,
                partition,
                is_flush_sync=replica.settings.is_flush_sync,
            )
