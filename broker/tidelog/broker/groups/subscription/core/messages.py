"""What a subscription is told, and what it wants done. Pure."""

import enum

import msgspec

from tidelog.wire.batch import DecodedRecord
from tidelog.wire.calls.groups import CommitOffsets, FetchOffsets, Heartbeat
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset, PartitionId, PartitionKey


class StartAt(enum.Enum):
    """Where to begin without a committed offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """What the client asked for, validated."""

    group: str
    """Empty: no group, every partition is read."""
    topics: tuple[str, ...]
    topic_pattern: str
    start_at: StartAt
    credit_records: int
    acknowledge_timeout_ms: int
    group_instance_id: str
    rack: str
    principal: str
    client_id: str
    address: str
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


class Position(msgspec.Struct, frozen=True):
    """A place in one partition."""

    topic: str
    partition: PartitionId
    next_offset: Offset


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of where to begin in one partition."""

    committed_offset: Offset
    """-1: nothing was committed."""
    log_start_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset


class SendHeartbeat(msgspec.Struct, frozen=True):
    """To the group's coordinator; then say `on_heartbeat`."""

    request: Heartbeat


class SendCommit(msgspec.Struct, frozen=True):
    """To the group's coordinator; then say `on_committed`. One at a time."""

    request: CommitOffsets


class FindPositions(msgspec.Struct, frozen=True):
    """Ask for what is committed and what the logs hold; then say `on_positions`."""

    keys: tuple[PartitionKey, ...]
    request: FetchOffsets | None
    """None: no group."""


class SendRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition, to the client."""

    topic: str
    partition: PartitionId
    records: tuple[DecodedRecord, ...]
    high_watermark: Offset
    last_stable_offset: Offset


class SendAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """What the client reads from now on."""

    assigned: tuple[Position, ...]
    revoked: tuple[Position, ...]
    is_idle: bool


class SendAcknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an acknowledgement."""

    correlation_id: int
    failures: tuple[tuple[str, int, TidelogError], ...]
    """Topic, partition, why."""


class ChangeReads(msgspec.Struct, frozen=True):
    """What is to be read has changed: look at `wanted` again."""


class EndStream(msgspec.Struct, frozen=True):
    """It cannot go on; the member leaves."""

    error: TidelogError


Effect = (
    SendHeartbeat
    | SendCommit
    | FindPositions
    | SendRecords
    | SendAssignment
    | SendAcknowledged
    | ChangeReads
    | EndStream
)
