"""A node's settings: one frozen tree, validated once, each leaf with the words that document it.

Owns names, defaults, bounds and precedence: flag, then `TIDELOG_*`, then file, then default.
`docs/configuration.md` is generated from it. It must never read a file or the environment itself:
the caller hands their content in, so that tests and the simulator need neither.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.replication.shared.messages import DEFAULT_REPLICATION_LIMITS, ReplicationLimits
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.metadata.new_topic import TopicDefaults
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.raft.types import Options
from tidelog.server.settings.listeners import Listeners, ListenerSettings
from tidelog.server.settings.metrics import MetricsSettings

__all__ = ["ListenerSettings", "Listeners", "NodeConfiguration"]

MIB: Final = 1024 * 1024
DEV_DEFAULTS: Final[Mapping[str, bool]] = {"auto_create_topics": True}
"""Of `tidelog dev` and `tidelog.testing`: trying something out needs no topic made beforehand."""


class ProduceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of writing."""

    timeout_ms: Annotated[
        int,
        Meta(
            description="How long an acknowledgement may take when the client says nothing.",
            ge=1,
            le=86_400_000,
        ),
    ] = 30_000
    queued_bytes_max: Annotated[
        int,
        Meta(
            description="Batches of one data directory between arrival and their log, together; "
            "beyond it a batch is refused RESOURCE_EXHAUSTED.",
            ge=MIB,
        ),
    ] = 128 * MIB
    stream_requests_max: Annotated[
        int,
        Meta(description="Unanswered requests of one produce stream; more wait.", ge=1, le=10_000),
    ] = 64


class FlushSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When bytes reach the disk for good."""

    replicated_interval_ms: Annotated[
        int,
        Meta(
            description="Records of topics with `flush=replicated` for which nobody waits are "
            "flushed after this time at the latest.",
            ge=1,
            le=3_600_000,
        ),
    ] = 1_000


class FetchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of reading."""

    response_bytes: Annotated[
        int,
        Meta(
            description="Bytes in an answer when the client says nothing; the envelope "
            "on top stays below the 4 MiB that many gRPC clients accept.",
            ge=1024,
            le=8 * MIB,
        ),
    ] = 3 * MIB
    response_bytes_max: Annotated[
        int, Meta(description="Bytes in an answer whatever the client says.", ge=MIB, le=12 * MIB)
    ] = 8 * MIB
    partition_bytes: Annotated[
        int,
        Meta(
            description="Bytes of one partition in an answer when the client says nothing.",
            ge=1024,
            le=8 * MIB,
        ),
    ] = MIB
    wait_ms_max: Annotated[
        int, Meta(description="Longest wait of a long poll.", ge=1, le=600_000)
    ] = 30_000
    positions_max: Annotated[
        int, Meta(description="Partitions in one fetch or one fetch stream.", ge=1, le=10_000)
    ] = 10_000


class RecordsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of the easy path."""

    request_records_max: Annotated[
        int, Meta(description="Plain records in one request or answer.", ge=1, le=20_000)
    ] = 10_000
    request_bytes_max: Annotated[
        int, Meta(description="Bytes of plain records in one request.", ge=1024, le=3 * MIB)
    ] = MIB


class QuorumSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The metadata quorum, and the ties of brokers to it."""

    bootstrap_servers: Annotated[
        tuple[str, ...],
        Meta(
            description="`host:port` of cluster listeners where the quorum can be found; for a "
            "broker that is no controller, and for a controller that joins. In a variable "
            "separated by commas."
        ),
    ] = ()
    election_timeout_ms: Annotated[
        int,
        Meta(
            description="Silence of the leader before an election; each wait is drawn from once "
            "to twice this.",
            ge=100,
            le=60_000,
        ),
    ] = 1_000
    heartbeat_ms: Annotated[
        int,
        Meta(description="Between heartbeats of the leader to the members.", ge=10, le=10_000),
    ] = 150
    snapshot_entries: Annotated[
        int,
        Meta(description="Entries after which the metadata are written as a snapshot.", ge=100),
    ] = 20_000
    snapshot_bytes: Annotated[
        int,
        Meta(description="Bytes of entries after which they are, if that is sooner.", ge=65_536),
    ] = 16 * MIB
    session_timeout_ms: Annotated[
        int,
        Meta(
            description="Silence of a broker after which the controller fences it.",
            ge=1_000,
            le=600_000,
        ),
    ] = 9_000


class TopicLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What topics may ask for."""

    partitions_max: Annotated[
        int, Meta(description="Partitions of one topic.", ge=1, le=100_000)
    ] = 10_000
    partitions_total_max: Annotated[
        int, Meta(description="Partitions of all topics together.", ge=1)
    ] = 100_000


class ReplicationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How replicas are copied."""

    far_behind_bytes: Annotated[
        int,
        Meta(
            description="A replica that is out of sync and further behind, or has nothing yet of "
            "what its leader has, is copied on the lane that "
            "`reassignment.throttle.bytes.per.second` bounds, until it is eight times as near.",
            ge=1_024,
            le=1_099_511_627_776,
        ),
    ] = DEFAULT_REPLICATION_LIMITS.far_behind_bytes


class NodeConfiguration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a node."""

    roles: Annotated[
        tuple[Literal["broker", "controller"], ...],
        Meta(
            description="What the node does: `broker` holds partitions, `controller` is a member "
            "of the metadata quorum. In a variable separated by commas.",
            min_length=1,
        ),
    ] = ("broker", "controller")
    node_id: Annotated[
        int, Meta(description="The node's number in its cluster.", ge=1, le=2_147_483_647)
    ] = 1
    data_dir: Annotated[str, Meta(description="Directory that holds all of the node's data.")] = (
        "data"
    )
    log_dirs: Annotated[
        tuple[str, ...],
        Meta(
            description="Further directories for partitions, each best on a disk of its own; one "
            "that fails takes only its own partitions with it. In a variable separated by commas."
        ),
    ] = ()
    rack: Annotated[
        str, Meta(description="Where the node stands, for placement and nearest reads.")
    ] = ""
    allow_plaintext: Annotated[
        bool, Meta(description="Permit unencrypted listeners on addresses other than loopback.")
    ] = False
    certificate_reload_ms: Annotated[
        int,
        Meta(
            description="How often the files of certificates are looked at; what changed counts "
            "for every connection after that.",
            ge=100,
            le=86_400_000,
        ),
    ] = 10_000
    shutdown_grace_ms: Annotated[
        int, Meta(description="How long calls in progress may take at a stop.", ge=0, le=600_000)
    ] = 300
    handover_ms: Annotated[
        int,
        Meta(
            description="How long a stopping broker waits for others to take over what it leads.",
            ge=0,
            le=600_000,
        ),
    ] = 1_000
    admin_timeout_ms: Annotated[
        int,
        Meta(
            description="How long an administrative call may take when the client says nothing.",
            ge=1,
            le=86_400_000,
        ),
    ] = 30_000
    trust_own_clock: Annotated[
        bool,
        Meta(
            description="A node without others to ask deletes by time although its clock has "
            "jumped since it was last up; `tidelog dev` does."
        ),
    ] = False
    auto_create_topics: Annotated[
        bool,
        Meta(
            description="Create a topic when a producer writes to one that is not there; who reads "
            "creates none. `tidelog dev` and `tidelog.testing` have it on unless it is set."
        ),
    ] = False
    default_partitions: Annotated[
        int,
        Meta(description="Partitions of a topic that asks for no number of them.", ge=1, le=10_000),
    ] = 1
    default_replication_factor: Annotated[
        int,
        Meta(
            description="Replicas of a topic that asks for no number of them. Read by the "
            "formatting of a new cluster, which decides; 0: as many as brokers are expected, at "
            "most 3. Later `default.replication.factor` of the cluster changes it.",
            ge=0,
            le=32_767,
        ),
    ] = 0
    stall_log_ms: Annotated[
        int,
        Meta(description="A stall of the node's loop that is longer is logged.", ge=1, le=60_000),
    ] = 100
    slow_request_ms: Annotated[
        int,
        Meta(
            description="A request that takes longer is logged, a long poll only if it takes so "
            "much longer than it asked for; 0: none is.",
            ge=0,
            le=3_600_000,
        ),
    ] = 1_000
    peer_addresses: Annotated[
        dict[str, str],
        Meta(description="Node number → `host:port` to reach it at instead of its advertised one."),
    ] = {}
    listeners: Listeners = Listeners()
    metrics: MetricsSettings = MetricsSettings()
    quorum: QuorumSettings = QuorumSettings()
    topics: TopicLimits = TopicLimits()
    produce: ProduceSettings = ProduceSettings()
    flush: FlushSettings = FlushSettings()
    fetch: FetchSettings = FetchSettings()
    records: RecordsSettings = RecordsSettings()
    housekeeping: HousekeepingLimits = HousekeepingLimits()
    replication: ReplicationSettings = ReplicationSettings()

    @property
    def is_broker(self) -> bool:
        """Whether it holds partitions."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it is a member of the quorum, or wants to become one."""
        return "controller" in self.roles

    def quorum_limits(self) -> QuorumLimits:
        """The limits of the quorum's glue."""
        return QuorumLimits(
            snapshot_after_entries=self.quorum.snapshot_entries,
            snapshot_after_bytes=self.quorum.snapshot_bytes,
        )

    def raft_options(self) -> Options:
        """The times of the quorum's core."""
        return Options(
            election_timeout_ms=self.quorum.election_timeout_ms,
            heartbeat_ms=self.quorum.heartbeat_ms,
        )

    def broker_limits(self) -> BrokerLimits:
        """The limits in the broker's words."""
        return BrokerLimits(
            produce_timeout_ms=self.produce.timeout_ms,
            queued_bytes_max=self.produce.queued_bytes_max,
            stream_requests_max=self.produce.stream_requests_max,
            fetch_bytes=self.fetch.response_bytes,
            fetch_bytes_max=self.fetch.response_bytes_max,
            partition_fetch_bytes=self.fetch.partition_bytes,
            fetch_wait_ms_max=self.fetch.wait_ms_max,
            fetch_positions_max=self.fetch.positions_max,
            records_per_request_max=self.records.request_records_max,
            records_bytes_max=self.records.request_bytes_max,
            admin_timeout_ms=self.admin_timeout_ms,
        )

    def replication_limits(self) -> ReplicationLimits:
        """The limits of copying between brokers."""
        far_behind_bytes = self.replication.far_behind_bytes
        return msgspec.structs.replace(
            DEFAULT_REPLICATION_LIMITS,
            far_behind_bytes=far_behind_bytes,
            near_end_bytes=far_behind_bytes // 8,
        )

    def topic_defaults(self) -> TopicDefaults:
        """The topic settings in the controller's words."""
        return TopicDefaults(
            partition_count=self.default_partitions,
            replication_factor=self.default_replication_factor or 1,
            partition_count_max=self.topics.partitions_max,
            partitions_total_max=self.topics.partitions_total_max,
        )
