"""A broker's data directories as its controller is told of them: epochs stored, which of them work.

Owns what the registration and the heartbeats say of directories. The logs in them are `replicas`'.
"""

from collections.abc import Mapping, Sequence

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.metadata.image.image import BrokerImage
from tidelog.metadata.records.entries import BrokerDirectory
from tidelog.server.events import log as log_events
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerEpoch


class OwnDirectories:
    """The data directory and every one of log_dirs, in this order."""

    def __init__(self, directories: tuple[LogDirectory, ...]) -> None:
        self.all = directories

    async def find_epochs(self) -> Mapping[bytes, BrokerEpoch]:
        """What is stored in the directories that can be read, by their uuids."""
        found: dict[bytes, BrokerEpoch] = {}
        for each in self.all:
            epoch = await each.read_epoch()
            if epoch is not None:
                found[each.directory_uuid] = epoch
        return found

    async def store_epoch(self, epoch: BrokerEpoch) -> Mapping[bytes, BrokerEpoch]:
        """Store it in all that work; one in which it cannot be stored before the logs are open
        fails."""
        for each in self.all:
            await each.store_epoch(epoch)
        return {each.directory_uuid: epoch for each in self.all if each.failure is None}

    def described(self) -> tuple[BrokerDirectory, ...]:
        """Those that could be read, and whether each works."""
        return tuple(
            BrokerDirectory(each.directory_uuid, each.failure is None)
            for each in self.all
            if each.directory_uuid
        )

    @property
    def failures(self) -> dict[str, TidelogError]:
        """By directory, why it stopped."""
        return {each.name: each.failure for each in self.all if each.failure is not None}

    @property
    def full_disks(self) -> dict[str, TidelogError]:
        """By directory, what the disk said to the last write if that was that there is no room."""
        return {each.name: each.no_room for each in self.all if each.no_room is not None}

    @property
    def queued_bytes(self) -> int:
        """Batches between arrival and acknowledgement."""
        return sum(each.queued_bytes for each in self.all)


def log_gone_back(broker: BrokerImage | None, directories: Sequence[LogDirectory]) -> None:
    """Tell what the controller found of the directories by the epochs that they hold."""
    names = {each.directory_uuid: each.name for each in directories}
    for each in () if broker is None else broker.directory_epochs:
        if each.went_back_from is not None and each.uuid in names:
            log_events.error(
                "directory_went_back",
                directory=names[each.uuid],
                stored_epoch=each.went_back_to,
                served_epoch=each.went_back_from,
                hint="It is an older copy of the data directory, or what tells its age is gone "
                "from it. Its replicas lead nothing until leaders have sent them what they "
                "lack; nothing of them is discarded before. Where no other replica is left the "
                "longest log leads.",
            )
