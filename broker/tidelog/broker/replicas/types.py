"""What a broker knows of one partition that it holds, and who is told what it is there."""

from typing import Protocol

import msgspec

from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import LogDirectory, Placed
from tidelog.metadata.image.image import Image, PartitionImage, TopicImage
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.ids import LeaderEpoch, PartitionKey

PlacedHere = tuple[TopicImage, PartitionImage, TopicSettings]
"""What the image says of a partition that it places here."""


class Roles(Protocol):
    """Who acts on what the image says of a replica; see `tasks.roles`."""

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
        """The partition's settings have changed."""

    def drop(self, key: PartitionKey) -> None:
        """The replica is not served here any more."""

    def stand_by(self, key: PartitionKey) -> None:
        """The replica's log is being opened again: what was asked of others for it still counts."""

    def settle(self) -> None:
        """The image is taken over."""


class NoRoles:
    """Nobody acts on it: where nothing is led or followed."""

    def on_image(self, image: Image) -> None:
        """See `Roles`."""

    def take(
        self,
        log: PartitionLog,
        owner: DirectoryOwner,
        partition: PartitionImage,
        *,
        is_flush_sync: bool,
    ) -> None:
        """See `Roles`."""

    def configure(self, key: PartitionKey, *, is_flush_sync: bool) -> None:
        """See `Roles`."""

    def drop(self, key: PartitionKey) -> None:
        """See `Roles`."""

    def stand_by(self, key: PartitionKey) -> None:
        """See `Roles`."""

    def settle(self) -> None:
        """See `Roles`."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that this broker holds."""

    log: PartitionLog
    settings: TopicSettings
    topic_name: str
    directory: LogDirectory
    is_internal: bool = False
    """The cluster itself writes the topic, and nobody else."""
    is_led: bool = True
    """Whether this broker leads it: only then it is written here."""
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    """The image's; the log has it once its owner has taken the role over."""


def settings_of(settings: TopicSettings, partition: PartitionImage) -> TopicSettings:
    """Of the partition: its topic's, but what is about to lie on one disk alone is flushed first.

    With flush=replicated a record is safe by being in several memories.
    """
    if settings.is_flush_sync or partition.last_replica is None:
        return settings
    return msgspec.structs.replace(settings, is_flush_sync=True)


def stricter_of(settings: TopicSettings, before: TopicSettings) -> TopicSettings:
    """The settings, with a commit that asks for all that either of both ask for."""
    return msgspec.structs.replace(
        settings,
        is_flush_sync=settings.is_flush_sync or before.is_flush_sync,
        in_sync_replicas_min=max(settings.in_sync_replicas_min, before.in_sync_replicas_min),
    )


def wanted_of(partition: PartitionImage, settings: TopicSettings) -> Placed:
    """What its directory is to serve."""
    return Placed(
        leader_epoch=partition.leader_epoch,
        settings=settings,
        is_sole=len(partition.replicas) == 1,
    )
