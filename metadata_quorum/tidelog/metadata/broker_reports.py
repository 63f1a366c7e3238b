"""What brokers report to the controller: registration, clocks, in-sync sets, log ends, damage.

Pure.
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.metadata.records.entries import BrokerDirectory, FeatureRange
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    TopicId,
)

NO_CLEAN_SHUTDOWN: Final = BrokerEpoch(-1)


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of itself when it starts."""

    broker_id: BrokerId
    incarnation: bytes
    listeners: Mapping[str, str]
    host_name: str = ""
    rack: str = ""
    directories: tuple[BrokerDirectory, ...] = ()
    features: Mapping[str, FeatureRange] = {}
    clean_shutdown_epoch: BrokerEpoch = NO_CLEAN_SHUTDOWN
    """The epoch that it had when it last shut down in order."""
    boot_id: str = ""
    release: str = ""
    stored_epochs: Mapping[bytes, BrokerEpoch] = {}
    """Directory uuid → the broker epoch that was found there; -1: none was. A directory that is
    named here gets the new epoch before the broker wants to serve."""


class ClockState(enum.IntEnum):
    """What is known of a node's wall clock. The numbers are the contract's."""

    UNKNOWN = 0
    """Nothing: it was not heard of, or is of a release that does not tell its time."""
    RIGHT = 1
    """Within the tolerance of the cluster's clock."""
    OFF = 2
    """Beyond it."""
    NO_MAJORITY = 3
    """There is no clock of the cluster to compare it with: no majority of the brokers agrees."""
    ALONE = 4
    """There is no other clock; it keeps to the time that it stored last."""
    HELD = 5
    """Alone, and it has jumped away from that time."""


class ClockVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat is answered about the clock that it told."""

    state: ClockState = ClockState.UNKNOWN
    skew_ms: int = 0
    """How far the node is ahead of the cluster's clock; 0 where there is none."""
    skew_max_ms: int = 0
    """The tolerance that it was judged by: `clock.skew.max.ms`."""


class Reading(msgspec.Struct, frozen=True):
    """The two clocks of a machine in one moment."""

    wall_ms: int
    uptime_ms: int
    """Since the machine's start, sleep included."""


class InSyncMember(msgspec.Struct, frozen=True, kw_only=True):
    """A replica wanted in the set, with its broker's epoch as the leader saw it."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class InSyncChange(msgspec.Struct, frozen=True, kw_only=True):
    """The whole set that a leader wants, and what it decided upon."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    members: tuple[InSyncMember, ...]
    is_recovered_unclean: bool = False
    is_withdrawal: bool = False
    """The present set, with a new partition epoch: no earlier request can take effect any more."""
    is_flushed: bool = False
    """What is committed is on the disk of the one replica that a reassignment leaves, and nothing
    will be committed before it is."""


class InSyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one change."""

    topic_id: TopicId
    partition: int
    error: TidelogError | None = None
    partition_epoch: PartitionEpoch
    in_sync_replicas: tuple[BrokerId, ...] = ()


class ReplicaEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where one broker's log of one partition ends."""

    topic_id: TopicId
    partition: PartitionId
    leader_epoch: LeaderEpoch
    """The partition's; nobody leads in it."""
    last_epoch: LeaderEpoch
    """Of the last batch; -1: there is none."""
    log_end_offset: Offset


class DamagedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker reports, and the leader epoch that it knew then."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    may_come_back: bool = False
    """It could not be opened or read; what it holds is not given up."""
