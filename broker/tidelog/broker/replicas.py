"""Which partitions this broker holds, and who waits for news of them.

Follows the metadata image: a partition placed here is opened and handed to the directory's owner.
It must never delete what the image does not name: an orphan is kept and reported.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from tidelog.broker.errors import fresh
from tidelog.broker.log.names import PartitionKey
from tidelog.broker.log.open_checkpoint import write_checkpoint
from tidelog.broker.log.open_directory import open_directory
from tidelog.broker.log.open_log import OpenedLog
from tidelog.broker.log.state import PartitionLog
from tidelog.broker.partition.owner import DirectoryOwner
from tidelog.metadata_quorum.controller import topic_configuration
from tidelog.metadata_quorum.controller.configuration import inherited_by_topics
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.metadata_quorum.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.metadata_quorum.port import Metadata
from tidelog.ports import Disk
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionId, TopicId

Watcher = Callable[[PartitionKey], None]


class Replica(msgspec.Struct, frozen=True):
    """A partition that this broker holds."""

    log: PartitionLog
    settings: TopicSettings
    topic_name: str
    is_led: bool = True
    """Whether this broker leads it: only then it is written and read here."""


class RecoverySummary(msgspec.Struct, kw_only=True):
    """What opening the logs found."""

    partitions: int = 0
    torn_bytes: int = 0
    failures: list[TidelogError] = []
    orphans: list[str] = []
    strangers: list[str] = []
    """Files in partitions' directories that are not ours."""
    restored: int = 0
    """Logs that the clean checkpoint told of: nothing of them was read."""
    checkpoint_damage: TidelogError | None = None

    def take_in(self, opened: OpenedLog) -> None:
        """Count one log."""
        self.torn_bytes += opened.torn_bytes
        self.strangers += opened.strangers
        if opened.log.failure is not None:
            self.failures.append(opened.log.failure)


_Placed = tuple[TopicImage, PartitionImage, TopicSettings]


class Replicas:
    """All partitions of one data directory, by topic id and number."""

    def __init__(
        self, disk: Disk, metadata: Metadata, broker_id: BrokerId, *, queued_bytes_max: int
    ) -> None:
        self._disk = disk
        self._metadata = metadata
        self._broker_id = broker_id
        self._replicas: dict[PartitionKey, Replica] = {}
        self._watchers: dict[PartitionKey, dict[Watcher, None]] = {}
        self._applied: Image = Image()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._queued_bytes_max = queued_bytes_max
        self._owner: DirectoryOwner | None = None

    @property
    def owner(self) -> DirectoryOwner:
        """The task that owns the data directory; there once `recover` has returned."""
        assert self._owner is not None, "the logs are recovered before anything is served"
        return self._owner

    async def recover(self) -> RecoverySummary:
        """Open everything that the image places here; before anything is served."""
        summary = RecoverySummary()
        image = self._metadata.image()
        placed = self._placed(image)
        directory = await open_directory(
            self._disk, {key: partition.leader_epoch for key, (_, partition, _) in placed.items()}
        )
        for each in directory.logs.values():
            summary.take_in(each)
        self._owner = DirectoryOwner(
            self._disk,
            directory.marks,
            on_advanced=self._on_advanced,
            queued_bytes_max=self._queued_bytes_max,
        )
        self._serve(image, placed, directory.logs)
        summary.partitions = len(placed)
        summary.orphans = directory.orphans
        summary.restored = directory.restored
        summary.checkpoint_damage = directory.checkpoint_damage
        return summary

    async def leave_checkpoint(self) -> None:
        """Once the owner has stopped: what the next start needs instead of reading the logs."""
        await write_checkpoint(self._disk, [replica.log for replica in self._replicas.values()])

    async def run(self) -> None:
        """Follow the image until cancelled."""
        while True:
            image = await self._metadata.wait_version(self._applied.version + 1)
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

    def find(self, topic_id: bytes, partition: int, leader_epoch: int, *, tried: str) -> Replica:
        """The replica, led here at the epoch that the client believes in; else a typed error."""
        replica = self._replicas.get(PartitionKey(TopicId(topic_id), PartitionId(partition)))
        if replica is None:
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

    def _placed(self, image: Image) -> dict[PartitionKey, _Placed]:
        """The partitions that the image places here and that are not served yet."""
        placed: dict[PartitionKey, _Placed] = {}
        inherited = inherited_by_topics(image, self._broker_id)
        for topic_id, topic in image.topics.items():
            if self._applied.topics.get(topic_id) is topic:
                continue
            settings = topic_configuration.parse(
                topic.configuration, topic=topic.name, inherited=inherited
            )
            for partition in topic.partitions:
                key = PartitionKey(topic_id, partition.partition)
                if self._broker_id in partition.replicas and key not in self._replicas:
                    placed[key] = (topic, partition, settings)
        return placed

    def _serve(
        self,
        image: Image,
        placed: Mapping[PartitionKey, _Placed],
        opened: Mapping[PartitionKey, OpenedLog],
    ) -> None:
        """Hand the partitions to the owner; a new one has no file until its first batch."""
        self._follow_known(image)
        for key, (topic, partition, settings) in placed.items():
            each = opened.get(key)
            if each is None:
                each = OpenedLog(log=PartitionLog(key, partition.leader_epoch), files={})
            is_led = partition.leader_id == self._broker_id
            self._replicas[key] = Replica(each.log, settings, topic.name, is_led)
            self.owner.add(each, settings)
        self._applied = image
        waiting, self._waiters = self._waiters, []
        for version, waiter in waiting:
            if version > image.version:
                self._waiters.append((version, waiter))
            elif not waiter.done():
                waiter.set_result(None)

    def _follow_known(self, image: Image) -> None:
        """Take over who leads what is served here already; a deleted topic is served no more."""
        for topic_id, known in self._applied.topics.items():
            topic = image.topics.get(topic_id)
            if topic is known:
                continue
            for number in range(len(known.partitions)):
                key = PartitionKey(topic_id, PartitionId(number))
                replica = self._replicas.get(key)
                if replica is None:
                    continue
                if topic is None:
                    del self._replicas[key]
                else:
                    self._replicas[key] = self._led(replica, topic.partitions[number])
                self._on_advanced(key)

    def _led(self, replica: Replica, partition: PartitionImage) -> Replica:
        replica.log.lead(partition.leader_epoch)
        is_led = partition.leader_id == self._broker_id
        return Replica(replica.log, replica.settings, replica.topic_name, is_led)

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
