"""Records of what belongs to the cluster as a whole; and what all records have in common.

Owns the persisted form of bootstrap, feature levels, settings, quotas, producer ids and the marks
around records that take effect together over several entries. `records` tells how they evolve.
"""

from typing import Final

import msgspec

from tidelog.wire.ids import BrokerEpoch, BrokerId, ProducerId, TopicId

FORMAT_VERSION: Final = 1
"""Of the log as a whole: the first record of every log carries it."""


class Record(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False
):
    """What every release knows of any record. Fields at their defaults are not written."""

    version: int = 1
    is_optional: bool = False


class FormatRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag="format", tag_field="type", gc=False
):
    """The first record: which release's rules the rest follows, and whose log it is."""

    version: int = FORMAT_VERSION
    is_optional: bool = False
    cluster_id: str


class ClusterRecord(Record, frozen=True, kw_only=True, tag="cluster"):
    """What was decided when the cluster was formatted; written once, right after the format."""

    default_replication_factor: int
    internal_replication_factor: int
    internal_partition_counts: dict[str, int]
    """Internal topic → its partition count, which never changes: coordinators are found by it."""


class FeatureRecord(Record, frozen=True, kw_only=True, tag="feature"):
    """A feature's level is in force from here on; 0: the feature is off."""

    name: str
    level: int


class BeginRecord(Record, frozen=True, kw_only=True, tag="begin"):
    """What follows, over several entries, becomes visible together at the `EndRecord`."""

    name: str = ""
    """What is being done, for people."""


class EndRecord(Record, frozen=True, kw_only=True, tag="end"):
    """Everything since the `BeginRecord` takes effect."""


class AbortRecord(Record, frozen=True, kw_only=True, tag="abort"):
    """Everything since the `BeginRecord` is forgotten; without one it means nothing."""

    reason: str = ""


class ClusterConfigurationRecord(Record, frozen=True, kw_only=True, tag="cluster_configuration"):
    """Settings for all brokers: by name, None removes; the others stay."""

    changes: dict[str, str | None]


class BrokerConfigurationRecord(Record, frozen=True, kw_only=True, tag="broker_configuration"):
    """Settings for one broker, which need not be registered."""

    broker_id: BrokerId
    changes: dict[str, str | None]


class GroupConfigurationRecord(Record, frozen=True, kw_only=True, tag="group_configuration"):
    """Settings for one consumer group, which need not exist."""

    group: str
    changes: dict[str, str | None]


class TopicConfigurationChangeRecord(
    Record, frozen=True, kw_only=True, tag="topic_configuration_change"
):
    """Settings for one topic: by name, None removes; the others stay."""

    topic_id: TopicId
    changes: dict[str, str | None]
    flushed_since: BrokerEpoch | None = None
    """`flush` becomes sync: the epoch that was given to a broker last. None: it does not."""


class TopicConfigurationRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag="topic_configuration", tag_field="type", gc=False
):
    """All settings of a topic: they replace the earlier ones."""

    version: int = 1
    is_optional: bool = False
    topic_id: TopicId
    configuration: dict[str, str]


class QuotaRecord(Record, frozen=True, kw_only=True, tag="quota"):
    """The whole quota of a client id; one without limits removes it."""

    client_id: str
    """Empty: all that have no quota of their own."""
    produce_bytes_per_second: int | None = None
    fetch_bytes_per_second: int | None = None
    requests_per_second: int | None = None


class ProducerIdsRecord(Record, frozen=True, kw_only=True, tag="producer_ids"):
    """A broker got the block of producer ids that ends before `next_producer_id`."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    next_producer_id: ProducerId
    """The first one that nobody has got."""
