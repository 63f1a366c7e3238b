"""Every setting that can be changed while the cluster runs, under the names of Kafka's users.

Pure data. A setting is listed when a release acts on it, or is bound to by the design; what this
release does not act upon yet is limited to the values that say what it does (`Setting.served`).
Names that are not here are refused with the nearest one that is.
"""

from collections.abc import Iterable
from typing import Final

from tidelog.metadata.settings.kinds import NUMBER_MAX, Kind, Scope, Setting
from tidelog.metadata.settings.limits import REPLICAS_MAX
from tidelog.wire.batch.limits import BATCH_BYTES_MAX
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.nearest import did_you_mean

SEGMENT_BYTES: Final = "segment.bytes"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
TIMESTAMP_TYPE: Final = "message.timestamp.type"
FLUSH: Final = "flush"
MIN_IN_SYNC_REPLICAS: Final = "min.insync.replicas"
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP_POLICY: Final = "cleanup.policy"
COMPRESSION_TYPE: Final = "compression.type"
VALIDATE_RECORDS: Final = "validate.records"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
SEGMENT_MS: Final = "segment.ms"
MIN_CLEANABLE_DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
MIN_COMPACTION_LAG_MS: Final = "min.compaction.lag.ms"
MAX_COMPACTION_LAG_MS: Final = "max.compaction.lag.ms"
DELETE_RETENTION_MS: Final = "delete.retention.ms"
TIMESTAMP_AFTER_MAX_MS: Final = "message.timestamp.after.max.ms"
TIMESTAMP_BEFORE_MAX_MS: Final = "message.timestamp.before.max.ms"
PLACEMENT_STRICT: Final = "placement.strict"
DEFAULT_PARTITIONS: Final = "num.partitions"
DEFAULT_REPLICATION_FACTOR: Final = "default.replication.factor"
LEADER_REBALANCE: Final = "auto.leader.rebalance.enable"
LEADER_REBALANCE_PARTITIONS: Final = "leader.rebalance.partitions.max"
REASSIGNMENT_THROTTLE: Final = "reassignment.throttle.bytes.per.second"
REPLICA_LAG_MS: Final = "replica.lag.time.max.ms"
GROUP_SESSION_MS: Final = "group.consumer.session.timeout.ms"
GROUP_SESSION_MS_MIN: Final = "group.consumer.min.session.timeout.ms"
GROUP_SESSION_MS_MAX: Final = "group.consumer.max.session.timeout.ms"
GROUP_HEARTBEAT_MS: Final = "group.consumer.heartbeat.interval.ms"
GROUP_ASSIGNOR: Final = "group.consumer.assignor"
OFFSETS_RETENTION_MINUTES: Final = "offsets.retention.minutes"
TRANSACTION_TIMEOUT_MS_MAX: Final = "transaction.max.timeout.ms"
TRANSACTIONAL_ID_EXPIRATION_MS: Final = "transactional.id.expiration.ms"
CLOCK_SKEW_MAX_MS: Final = "clock.skew.max.ms"
CLOCK_CONFIRMED_MS: Final = "clock.confirmed.ms"

SEGMENT_BYTES_MIN: Final = 1024
SEGMENT_BYTES_MAX: Final = 1 << 40
BATCH_BYTES_MIN: Final = 61
PARTITIONS_OF_A_TOPIC_MAX: Final = 100_000
REPLICA_LAG_MS_MIN: Final = 500
CLOCK_SKEW_MS_MIN: Final = 1_000
"""Below it the way of a heartbeat through a busy node would count as a wrong clock."""
HOUR_MS: Final = 60 * 60 * 1000
DAY_MS: Final = 24 * HOUR_MS
NAME_LENGTH_MAX: Final = 100
"""Of a name that a message repeats."""

_EVERYWHERE: Final = (Scope.TOPIC, Scope.BROKER, Scope.CLUSTER)
_TOPIC: Final = (Scope.TOPIC,)
_CLUSTER: Final = (Scope.CLUSTER,)
_BROKER: Final = (Scope.BROKER,)
_GROUPS: Final = (Scope.GROUP, Scope.CLUSTER)

_TOPIC_SETTINGS: Final = (
    Setting(
        name=SEGMENT_BYTES,
        kind=Kind.NUMBER,
        default=str(1 << 30),
        scopes=_EVERYWHERE,
        lowest=SEGMENT_BYTES_MIN,
        highest=SEGMENT_BYTES_MAX,
        documentation="A segment file that is larger is closed and the next one begun.",
    ),
    Setting(
        name=MAX_MESSAGE_BYTES,
        kind=Kind.NUMBER,
        default="1048588",
        scopes=_EVERYWHERE,
        lowest=BATCH_BYTES_MIN,
        highest=BATCH_BYTES_MAX,
        documentation="The largest batch, as it is sent.",
    ),
    Setting(
        name=TIMESTAMP_TYPE,
        kind=Kind.CHOICE,
        default="CreateTime",
        scopes=_EVERYWHERE,
        choices=("CreateTime", "LogAppendTime"),
        documentation="Whether a record carries its producer's time or the time of its append.",
    ),
    Setting(
        name=FLUSH,
        kind=Kind.CHOICE,
        default="sync",
        scopes=_TOPIC,
        choices=("sync", "replicated"),
        documentation="What acks=all waits for: records flushed on the in-sync replicas (sync), "
        "or stored there (replicated); flushed also where only one replica is in sync.",
    ),
    Setting(
        name=MIN_IN_SYNC_REPLICAS,
        kind=Kind.NUMBER,
        default="1",
        scopes=_TOPIC,
        lowest=1,
        highest=REPLICAS_MAX,
        documentation="With fewer replicas in sync nothing more is acknowledged to acks=all; a "
        "topic that names no number gets half of its replicas, rounded down, and one.",
    ),
    Setting(
        name=UNCLEAN_ELECTION,
        kind=Kind.BOOLEAN,
        default="false",
        scopes=_TOPIC,
        served=("false",),
        documentation="Always false: a leader that may lack acknowledged records is elected on "
        "explicit request only, by `tidelog partition elect-leaders`.",
    ),
    Setting(
        name=RETENTION_MS,
        kind=Kind.NUMBER,
        default=str(7 * DAY_MS),
        scopes=_EVERYWHERE,
        lowest=-1,
        documentation="A segment of which every record is older is deleted; -1: never. For topics "
        "whose cleanup.policy has delete.",
    ),
    Setting(
        name=RETENTION_BYTES,
        kind=Kind.NUMBER,
        default="-1",
        scopes=_EVERYWHERE,
        lowest=-1,
        documentation="The oldest segments without which a partition is still this large are "
        "deleted; -1: never. For topics whose cleanup.policy has delete.",
    ),
    Setting(
        name=SEGMENT_MS,
        kind=Kind.NUMBER,
        default=str(7 * DAY_MS),
        scopes=_EVERYWHERE,
        lowest=1,
        documentation="A segment that is older is closed and the next one begun: only closed ones "
        "are deleted by time or compacted.",
    ),
    Setting(
        name=CLEANUP_POLICY,
        kind=Kind.LIST,
        default="delete",
        scopes=_TOPIC,
        choices=("compact", "delete"),
        documentation="Whether old segments are deleted, compacted to the last value of each key, "
        "or both. A topic that is compacted takes no record without a key.",
    ),
    Setting(
        name=MIN_CLEANABLE_DIRTY_RATIO,
        kind=Kind.DECIMAL,
        default="0.5",
        scopes=_EVERYWHERE,
        lowest=0,
        highest=1,
        documentation="A log is compacted when at least this part of its closed bytes was never "
        "compacted.",
    ),
    Setting(
        name=MIN_COMPACTION_LAG_MS,
        kind=Kind.NUMBER,
        default="0",
        scopes=_EVERYWHERE,
        lowest=0,
        documentation="A record that is younger is not compacted away.",
    ),
    Setting(
        name=MAX_COMPACTION_LAG_MS,
        kind=Kind.NUMBER,
        default=str(NUMBER_MAX),
        scopes=_EVERYWHERE,
        lowest=1,
        documentation="A log that holds an older record that was never compacted is compacted "
        "whatever its dirty ratio.",
    ),
    Setting(
        name=DELETE_RETENTION_MS,
        kind=Kind.NUMBER,
        default=str(DAY_MS),
        scopes=_EVERYWHERE,
        lowest=0,
        documentation="How long a record without value, which deletes its key, stays after the "
        "compaction that found nothing older of the key.",
    ),
    Setting(
        name=TIMESTAMP_AFTER_MAX_MS,
        kind=Kind.NUMBER,
        default=str(HOUR_MS),
        scopes=_EVERYWHERE,
        lowest=0,
        documentation="A record whose producer's time is further ahead of the broker's is refused "
        "INVALID_TIMESTAMP: it would keep its segment from being deleted by time.",
    ),
    Setting(
        name=TIMESTAMP_BEFORE_MAX_MS,
        kind=Kind.NUMBER,
        default=str(NUMBER_MAX),
        scopes=_EVERYWHERE,
        lowest=0,
        documentation="A record whose producer's time is further behind the broker's is refused "
        "INVALID_TIMESTAMP.",
    ),
    Setting(
        name=COMPRESSION_TYPE,
        kind=Kind.CHOICE,
        default="producer",
        scopes=_TOPIC,
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        served=("producer",),
        documentation="How batches are stored: as the producer sent them.",
    ),
    Setting(
        name=VALIDATE_RECORDS,
        kind=Kind.BOOLEAN,
        default="false",
        scopes=_TOPIC,
        documentation="Whether the broker decodes every record of a batch before it stores it; "
        "else it checks the batch's checksum and header.",
    ),
)

_CLUSTER_SETTINGS: Final = (
    Setting(
        name=PLACEMENT_STRICT,
        kind=Kind.BOOLEAN,
        default="false",
        scopes=_CLUSTER,
        documentation="Refuse a placement that puts two replicas of a partition into one rack or "
        "onto one machine, instead of warning.",
    ),
    Setting(
        name=DEFAULT_PARTITIONS,
        kind=Kind.NUMBER,
        default="1",
        scopes=_CLUSTER,
        lowest=1,
        highest=PARTITIONS_OF_A_TOPIC_MAX,
        documentation="Partitions of a topic that asks for no number of them.",
    ),
    Setting(
        name=DEFAULT_REPLICATION_FACTOR,
        kind=Kind.NUMBER,
        default="1",
        scopes=_CLUSTER,
        lowest=1,
        highest=REPLICAS_MAX,
        documentation="Replicas of a topic that asks for no number of them.",
    ),
    Setting(
        name=LEADER_REBALANCE,
        kind=Kind.BOOLEAN,
        default="true",
        scopes=_CLUSTER,
        documentation="Whether leadership goes back to the preferred replica when it is in sync.",
    ),
    Setting(
        name=LEADER_REBALANCE_PARTITIONS,
        kind=Kind.NUMBER,
        default="100",
        scopes=_CLUSTER,
        lowest=1,
        highest=10_000,
        documentation="How many leaders go back to their preferred replica in one round.",
    ),
    Setting(
        name=REASSIGNMENT_THROTTLE,
        kind=Kind.NUMBER,
        default="0",
        scopes=_CLUSTER,
        lowest=0,
        documentation="How many bytes a second are copied to each broker while replicas move; "
        "0: no limit.",
    ),
    Setting(
        name=REPLICA_LAG_MS,
        kind=Kind.NUMBER,
        default="10000",
        scopes=_CLUSTER,
        lowest=REPLICA_LAG_MS_MIN,
        highest=DAY_MS,
        documentation="A replica that was not caught up with its leader for so long, in "
        "milliseconds, is in sync no more; `acks=all` waits for it until then.",
    ),
    # A minute: a clock that nobody sets drifts as far in two weeks, a broker that is stopped and
    # goes on is late by seconds, and the smallest wrong start, a time zone's, is half an hour.
    Setting(
        name=CLOCK_SKEW_MAX_MS,
        kind=Kind.NUMBER,
        default="60000",
        scopes=_CLUSTER,
        lowest=CLOCK_SKEW_MS_MIN,
        highest=DAY_MS,
        documentation="A broker whose wall clock is further away from the median of a majority of "
        "the brokers' clocks deletes nothing by time and leads no topic with LogAppendTime that "
        "another in-sync replica can lead.",
    ),
    Setting(
        name=CLOCK_CONFIRMED_MS,
        kind=Kind.NUMBER,
        default="0",
        scopes=_BROKER,
        lowest=0,
        documentation="The time, in milliseconds since 1970, that an operator has said to be right "
        "for a node without others to ask; `tidelog cluster confirm-clock` sets it.",
    ),
)

_GROUP_SETTINGS: Final = (
    Setting(
        name=GROUP_SESSION_MS,
        kind=Kind.NUMBER,
        default="45000",
        scopes=_GROUPS,
        lowest=100,
        highest=DAY_MS,
        documentation="A member of a group that is silent for so long is removed, unless it asked "
        "for another time itself.",
    ),
    Setting(
        name=GROUP_SESSION_MS_MIN,
        kind=Kind.NUMBER,
        default="6000",
        scopes=_CLUSTER,
        lowest=100,
        highest=DAY_MS,
        documentation="The shortest session timeout that a member may ask for.",
    ),
    Setting(
        name=GROUP_SESSION_MS_MAX,
        kind=Kind.NUMBER,
        default=str(HOUR_MS // 2),
        scopes=_CLUSTER,
        lowest=100,
        highest=DAY_MS,
        documentation="The longest session timeout that a member may ask for.",
    ),
    Setting(
        name=GROUP_HEARTBEAT_MS,
        kind=Kind.NUMBER,
        default="3000",
        scopes=_GROUPS,
        lowest=10,
        highest=HOUR_MS,
        documentation="How often a member of a group is told to report when nothing is going on.",
    ),
    Setting(
        name=GROUP_ASSIGNOR,
        kind=Kind.CHOICE,
        default="uniform",
        scopes=_GROUPS,
        choices=("uniform", "range"),
        documentation="How the partitions of a group are divided when no member asks for a way.",
    ),
    Setting(
        name=OFFSETS_RETENTION_MINUTES,
        kind=Kind.NUMBER,
        default=str(7 * 24 * 60),
        scopes=_GROUPS,
        lowest=1,
        highest=100 * 365 * 24 * 60,
        documentation="Committed offsets are forgotten so long after the group has lost its last "
        "member; those of a group that never had one, so long after the commit.",
    ),
)

_TRANSACTION_SETTINGS: Final = (
    Setting(
        name=TRANSACTION_TIMEOUT_MS_MAX,
        kind=Kind.NUMBER,
        default=str(HOUR_MS // 4),
        scopes=_CLUSTER,
        lowest=1,
        highest=DAY_MS,
        documentation="The longest timeout that a transactional producer may ask for. A "
        "transaction that is open for longer than its producer's timeout is aborted: until then it "
        "holds readers of committed records back.",
    ),
    Setting(
        name=TRANSACTIONAL_ID_EXPIRATION_MS,
        kind=Kind.NUMBER,
        default=str(7 * DAY_MS),
        scopes=_CLUSTER,
        lowest=1,
        highest=100 * 365 * DAY_MS,
        documentation="A transactional id that nobody used for so long is forgotten, unless a "
        "transaction of it is open, prepared or ending.",
    ),
)

CATALOGUE: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in sorted(
        (*_TOPIC_SETTINGS, *_CLUSTER_SETTINGS, *_GROUP_SETTINGS, *_TRANSACTION_SETTINGS),
        key=lambda each: each.name,
    )
}


def settings_of(scope: Scope) -> tuple[Setting, ...]:
    """What can be set there, in ascending order of name."""
    return tuple(setting for setting in CATALOGUE.values() if scope in setting.scopes)


def find_setting(name: str, scope: Scope, *, tried: str) -> Setting:
    """The setting, or INVALID_CONFIGURATION with the name that was probably meant."""
    setting = CATALOGUE.get(name)
    if setting is not None and scope in setting.scopes:
        return setting
    if setting is not None:
        places = _names(each.value for each in setting.scopes)
        raise _invalid(
            tried,
            f"`{name}` is a setting of {places}, not of a {scope.value}",
            f"Set it at {places}.",
        )
    known = [each.name for each in settings_of(scope)]
    raise _invalid(
        tried,
        f"there is no such setting of a {scope.value} that calls can change",
        did_you_mean(name, known) or _FILE_ONLY,
    )


_FILE_ONLY: Final = (
    "Ask for the settings that there are, without naming any. What stands in a node's "
    "configuration file alone is changed there, and by a restart: docs/configuration.md."
)


def _names(places: Iterable[str]) -> str:
    return " or ".join(f"the {place}" for place in places)


def _invalid(tried: str, happened: str, hint: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_CONFIGURATION, tried=tried, happened=happened, hint=hint)
