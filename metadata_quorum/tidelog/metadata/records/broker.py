"""Records of brokers: that they registered, what changed since, that they are forgotten."""

import msgspec

from tidelog.metadata.records.cluster import Record
from tidelog.wire.ids import BrokerEpoch, BrokerId


class BrokerDirectory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A data directory of a broker."""

    uuid: bytes
    """Sixteen random bytes, drawn when it was formatted."""
    is_online: bool = True


class DirectoryEpoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How new what lies in a data directory must at least be (`controller.directory_epochs`)."""

    uuid: bytes
    served_epoch: BrokerEpoch
    """The last epoch under which its broker was unfenced with it; -1: not yet."""
    went_back_from: BrokerEpoch | None = None
    """What `served_epoch` was when an older epoch was found there; None: it did not go back."""
    went_back_to: BrokerEpoch | None = None
    """The epoch that was found; -1: none."""


class FeatureRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The levels of a feature that a node can speak."""

    level_min: int
    level_max: int


class BrokerRecord(Record, frozen=True, kw_only=True, tag="broker"):
    """A broker registered: it replaces what was known of its id, except `is_draining`."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    """Above every epoch that any broker ever had: one more than `Image.last_broker_epoch`."""
    incarnation: bytes
    """Random, new with each start of the process."""
    listeners: dict[str, str]
    """Listener name → advertised `host:port`."""
    host_name: str = ""
    rack: str = ""
    is_fenced: bool = True
    directories: tuple[BrokerDirectory, ...] = ()
    features: dict[str, FeatureRange] = msgspec.field(default_factory=dict)
    boot_id: str = ""
    """Tells one boot of its machine from the next."""
    release: str = ""
    unflushed_since: BrokerEpoch | None = None
    """The epoch since which what it stored may be in its machine's memory alone; None: `epoch`."""


class FenceRecord(msgspec.Struct, frozen=True, kw_only=True, tag="fence", tag_field="type"):
    """A broker may lead from now on, or no more. Of an older registration: it means nothing."""

    version: int = 1
    is_optional: bool = False
    broker_id: BrokerId
    epoch: BrokerEpoch
    is_fenced: bool


class BrokerChangeRecord(Record, frozen=True, kw_only=True, tag="broker_change"):
    """Something of a registered broker changed; None: it did not."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    """The registration that is changed: the present one."""
    is_fenced: bool | None = None
    is_shutting_down: bool | None = None
    """Its process has asked to stop and leads nothing new; a registration ends that."""
    is_draining: bool | None = None
    """An operator empties it: it gets no replicas; a registration leaves that as it is."""
    directories: tuple[BrokerDirectory, ...] | None = None


class DirectoryEpochsRecord(Record, frozen=True, kw_only=True, tag="directory_epochs"):
    """What is expected of a broker's directories from now on, all of them. Written as optional: a
    release that does not know it goes by what it knew before."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    """The registration that it belongs to: the present one."""
    directories: tuple[DirectoryEpoch, ...]


class BrokerRemovedRecord(Record, frozen=True, kw_only=True, tag="broker_removed"):
    """A broker is forgotten; it holds no replica."""

    broker_id: BrokerId
    epoch: BrokerEpoch
