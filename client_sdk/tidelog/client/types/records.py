"""What users hand in and get back: plain values with the names that Kafka's clients know.

Owns the public data types. They hold no connection and may be pickled. Constructing a
ConsumerRecord happens once per record: its class is the one that was the fastest to build.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tidelog.wire.batch import BatchHeader, read_header
from tidelog.wire.errors import TidelogError

Headers = Sequence[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a record was stored."""

    topic: str
    partition: int
    offset: int
    """-1 with acks=0."""
    timestamp: int
    """Milliseconds since 1970."""
    leader_epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value."""
        return TopicPartition(self.topic, self.partition)


class ConsumerRecord(msgspec.Struct, frozen=True, gc=False):
    """One record as it was read; key and value are what the deserializers made of them."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: int
    """0: set by the producer; 1: set by the broker on append."""
    key: Any
    value: Any
    headers: Headers


class OffsetAndMetadata(NamedTuple):
    """A committed offset and what was noted beside it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """Which member of which group a consumer is."""

    group_id: str
    member_epoch: int
    """0: not a member at the moment."""
    member_id: str
    """Empty: a reader that assigns partitions to itself."""
    group_instance_id: str | None = None

    @property
    def generation_id(self) -> int:
        """The name that Kafka's older protocol has for it."""
        return self.member_epoch


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a point in time."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class RawBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One record batch as it is stored; unpacks into (topic_partition, data, high_watermark)."""

    topic_partition: TopicPartition
    data: bytes
    """Exactly one batch, decoded by `tidelog.wire.batch.decode_records`."""
    high_watermark: int
    first_offset: int
    """Records below it were not asked for: a batch is never cut."""
    next_offset: int
    """The offset after the batch."""
    leader_epoch: int
    is_left_out: bool = False
    """No record of it is for this reader: a marker, or a batch of an aborted transaction where only
    committed records are read. Only a reader that asks for such batches is given them, to know how
    far it has come."""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.topic_partition, self.data, self.high_watermark))

    @property
    def header(self) -> BatchHeader:
        """The batch's fixed header: offsets, timestamps, codec, record count."""
        return read_header(self.data, is_compacted=True)


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create; 0 takes the cluster's default."""

    name: str
    num_partitions: int = 0
    replication_factor: int = 0
    topic_configs: Mapping[str, str] = {}


class CreatedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that was created."""

    name: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int


class ReplicaDescription(msgspec.Struct, frozen=True, kw_only=True):
    """How one replica stands; -1 stands for what nobody who answered knew."""

    broker_id: int
    log_end_offset: int = -1
    flushed_offset: int = -1
    lag: int = -1
    """Records that it lacks, as its leader knows."""
    caught_up_ago_ms: int = -1
    """When it last had all that its leader had; 0: it is the leader."""
    size_bytes: int = -1
    is_known: bool = False
    """Whether its own broker has answered."""
    failure: TidelogError | None = None
    """Why it has stopped."""


class IneligibleReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that may not lead, and why."""

    broker_id: int
    reason: str
    hint: str
    """What becomes of it, or what to do."""


class PartitionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One partition; -1 stands for what the answering broker did not know."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    size_bytes: int
    eligible: tuple[int, ...] = ()
    """Who may lead without losing acknowledged records."""
    replica_states: tuple[ReplicaDescription, ...] = ()
    """Of each replica in their order, if they were asked for."""
    ineligible: tuple[IneligibleReplica, ...] = ()
    """Those that may not lead for a cause that the metadata know: not one that only lags."""


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A topic with its settings and partitions."""

    name: str
    topic_id: bytes
    is_internal: bool
    replication_factor: int
    configs: dict[str, str]
    partitions: tuple[PartitionDescription, ...]


class BrokerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of the cluster."""

    broker_id: int
    address: str
    rack: str
    is_fenced: bool
    leader_count: int
    replica_count: int


class PartitionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How all partitions of a cluster stand."""

    topic_count: int = 0
    partition_count: int = 0
    offline_count: int = 0
    under_replicated_count: int = 0
    under_min_isr_count: int = 0
    not_preferred_count: int = 0
    reassigning_count: int = 0


class ClusterDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as the answering broker sees it."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]
    release: str
    partitions: PartitionSummary = PartitionSummary()
    without_controller_ms: int = 0
    """For how long that broker has known no active controller: all this is as of then. 0: it knows
    one."""
