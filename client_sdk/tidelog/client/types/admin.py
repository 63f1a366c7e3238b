"""What the admin client takes and gives beyond topics: settings, moves, brokers, the quorum.

Owns the user's types; names follow kafka-python where it has them. Values only.
"""

import enum
from collections.abc import Mapping

import msgspec

from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import TidelogError


class ConfigResourceType(enum.Enum):
    """What has settings."""

    TOPIC = "topic"
    BROKER = "broker"
    CLUSTER = "cluster"
    GROUP = "group"


class ConfigResource(msgspec.Struct, frozen=True):
    """Something that has settings, and the settings to change; a value of None unsets."""

    resource_type: ConfigResourceType
    name: str = ""
    """A topic's or group's name, a broker's id in decimal; empty for the cluster."""
    configs: Mapping[str, str | None] = {}


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it is."""

    name: str
    value: str
    """Empty for a secret."""
    source: str
    """`target`, `broker`, `cluster`, `node` or `default`: where the value comes from."""
    is_read_only: bool
    is_secret: bool
    documentation: str


class ConfigDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one resource."""

    resource: ConfigResource
    entries: tuple[ConfigEntry, ...]


class DeletedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that was deleted, or with `validate_only` would be."""

    name: str
    topic_id: bytes


class NewPartitions(msgspec.Struct, frozen=True):
    """How many partitions a topic is to have in all, and where the new ones stand."""

    total_count: int
    new_assignments: tuple[tuple[int, ...], ...] = ()
    """Brokers of each new partition; empty: the controller places them."""


class ElectionType(enum.Enum):
    """Which replica is to lead."""

    PREFERRED = "preferred"
    """The first of the replicas, if it is in sync."""
    UNCLEAN = "unclean"
    """Any that is alive: records that it lacks are lost. Only where nobody leads."""


class ElectionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads one partition after an election."""

    partition: TopicPartition
    leader: int
    """-1: nobody."""
    error: TidelogError | None
    """None: the leader is as asked for, whether it changed or not."""


class PartitionReassignment(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas on the move."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    """All at the moment, those that come and those that go included."""
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    remaining_bytes: int
    """-1: not known."""


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller knows of a broker."""

    broker_id: int
    broker_epoch: int
    address: str
    rack: str
    host: str
    is_fenced: bool
    is_draining: bool
    is_shutting_down: bool
    leader_count: int
    replica_count: int
    last_contact_ms: int
    """-1: not since the controller was elected."""
    release: str
    clock_state: str = "unknown"
    """`right`, `off`, `no_majority`, `alone`, `held`; `unknown` also of an older release. Only a
    broker whose clock is `right` or `alone` deletes by time."""
    clock_skew_ms: int = 0
    """How far its clock is ahead of the cluster's; where it is `held`, of what it stored last."""
    clock_wall_ms: int = 0
    """What its clock shows, in milliseconds since 1970; 0: not known."""


class DrainOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a drained broker still has to give away."""

    remaining_replicas: int
    warnings: tuple[str, ...]


class ReassignmentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Moves that would even out replicas and leaders; nothing was done."""

    moves: Mapping[TopicPartition, tuple[int, ...]]
    """For `alter_partition_reassignments` as they are, the most useful first."""
    warnings: tuple[str, ...]


class ClientQuota(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client id on each broker; None: no limit."""

    produce_bytes_per_second: int | None = None
    fetch_bytes_per_second: int | None = None
    requests_per_second: int | None = None

    def limits(self) -> dict[str, int | None]:
        """By name."""
        return msgspec.structs.asdict(self)


class QuorumMember(msgspec.Struct, frozen=True, kw_only=True):
    """A node with one particular quorum directory."""

    node_id: int
    directory_uuid: bytes
    address: str
    is_learner: bool


class QuorumMemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the leader sees it."""

    member: QuorumMember
    match_index: int
    """The last entry that it has fsynced; 0: none, or not known yet."""
    lag: int
    last_contact_ms: int
    """-1: never; 0 for the leader itself."""
    is_repairing: bool
    is_installing_snapshot: bool


class QuorumObserver(msgspec.Struct, frozen=True, kw_only=True):
    """A reader of the metadata stream."""

    node_id: int
    applied_index: int


class QuorumDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata quorum as its leader sees it."""

    leader_id: int
    term: int
    last_index: int
    commit_index: int
    log_start_index: int
    is_membership_changing: bool
    members: tuple[QuorumMemberStatus, ...]
    observers: tuple[QuorumObserver, ...]


class QuorumLeader(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads the quorum."""

    leader_id: int
    term: int


class FeatureDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A feature's level in force, and the levels that every node can speak."""

    name: str
    finalised_level: int
    """0: the feature is off."""
    level_min: int
    level_max: int


class MetadataNode(msgspec.Struct, frozen=True, kw_only=True):
    """One place in the metadata."""

    json: str
    """Its form may change from release to release."""
    applied_index: int


class MetadataNames(msgspec.Struct, frozen=True, kw_only=True):
    """What stands below a place in the metadata."""

    names: tuple[str, ...]
    """One that ends with `/` has names below it."""
    applied_index: int
