"""What a coordinator's core is told, and what it wants done. Pure; answers are in `answers`.

Beside every request stand `now_ms`, monotonic, and `wall_ms`, milliseconds since 1970 that never
fall (the glue reads a steady clock: a jump of the wall must not expire offsets).
"""

from collections.abc import Mapping

import msgspec

from tidelog.broker.groups.state.answers import Response
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.calls.groups import (
    Assignor,
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    OffsetToCommit,
    SendOffsets,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, PartitionKey, TopicId


class BrokerLife(msgspec.Struct, frozen=True):
    """One of the times for which a broker is registered."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a request, as the broker knows that takes it."""

    client_id: str = ""
    address: str = ""
    """`host:port` from where it calls."""
    carrier: BrokerLife | None = None
    """The broker that is the member, for a client; None: the client itself."""


NOBODY = Caller()
"""Sends what says nothing of its sender: everything but a heartbeat."""


class ListGroups(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of this core, in ascending order of name. Filters and pages are the caller's."""


class DescribeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group for an operator."""

    group: str


class AlterOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Set offsets of a group without members: all or none. The caller has checked the ranges."""

    group: str
    offsets: tuple[OffsetToCommit, ...]
    validate_only: bool = False


class DeleteOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Forget offsets of partitions of topics to which no member subscribes."""

    group: str
    keys: tuple[PartitionKey, ...]
    validate_only: bool = False


class DeleteGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a group without members, with its offsets."""

    group: str
    validate_only: bool = False


class RemoveMembers(msgspec.Struct, frozen=True, kw_only=True):
    """Make members leave; without any name: all of them."""

    group: str
    member_ids: tuple[str, ...] = ()
    group_instance_ids: tuple[str, ...] = ()


class EndStaged(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction's marker is committed in this partition: what it has sent to groups counts from
    now on, or never will. Answered once that shows; also if nothing of it is here.
    """

    end: Identity
    """The producer, and the marker's epoch: above that of what it ends."""
    decision: Decision


class GroupTopic(msgspec.Struct, frozen=True):
    """A topic as the metadata have it."""

    topic_id: TopicId
    name: str
    partition_count: int


class TopicsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """All topics that exist, internal ones left out: it replaces what was known.

    The view must be at least as new as the metadata that made this broker the partition's leader,
    the first one included: then whatever a former coordinator knew and this view lacks was deleted,
    and its offsets are forgotten.
    """

    topics: tuple[GroupTopic, ...]
    now_ms: int
    wall_ms: int


class BrokerState(msgspec.Struct, frozen=True):
    """What the metadata say of a broker."""

    broker_epoch: BrokerEpoch
    """Of its latest registration."""
    is_fenced: bool


class BrokersChanged(msgspec.Struct, frozen=True, kw_only=True):
    """All registered brokers: it replaces what was known. The first comes behind `TopicsChanged`.

    Members that a broker is for clients are none any more once the broker is fenced, or registered
    again: it does not carry their streams any more.
    """

    brokers: Mapping[BrokerId, BrokerState]
    now_ms: int
    wall_ms: int


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set, for all groups or for one."""

    session_timeout_ms: int = 45_000
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 30 * 60 * 1000
    heartbeat_interval_ms: int = 3_000
    """For a member that has nothing to wait for."""
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    """After the group became empty; of a group that never had members after each commit."""
    assignor: Assignor = Assignor.UNIFORM
    """For members that do not ask for one."""


class SettingsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Settings from now on; those of a group named in `by_group` are there whole."""

    defaults: GroupSettings
    by_group: Mapping[str, GroupSettings] = {}


class LoadEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything committed was given to `apply`. Before it no request and no topic is taken.

    Sessions begin anew, with their full timeouts. `TopicsChanged` comes next, before any request.
    """

    now_ms: int
    wall_ms: int


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed: due at `next_deadline_ms()` at the latest."""

    now_ms: int
    wall_ms: int
    may_expire: bool = False
    """Whether the node's clock is one to forget offsets by."""


class AppendCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """The append with this token, and all before it, are committed: replicated as acks=all says."""

    token: int


class AppendRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The append, one of a transaction, was refused in its turn: it is not in the log for sure.

    It comes before any completion of a later token.
    """

    token: int
    error: TidelogError
    """What the producer is told."""


class AppendFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The append was refused or its fate is unknown; or this broker does not lead any more."""

    error: TidelogError
    """NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE: what everything that waits is answered with."""


AnyRequest = (
    Heartbeat
    | CommitOffsets
    | FetchOffsets
    | ListGroups
    | DescribeGroup
    | AlterOffsets
    | DeleteOffsets
    | DeleteGroup
    | RemoveMembers
    | SendOffsets
    | EndStaged
)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, with what stands beside it: put there by whoever hands it to the core.

    Each is answered once, by an `Answer` with its id; an id is never used twice in a core's life.
    """

    request: AnyRequest
    request_id: int
    now_ms: int
    wall_ms: int
    caller: Caller = NOBODY


class TransactionVerified(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a `VerifyTransaction`."""

    request_id: int
    error: TidelogError | None
    """None: the partition is part of the transaction, which is still in progress."""
    now_ms: int
    wall_ms: int


Message = Asked | TransactionVerified | TopicsChanged | BrokersChanged | SettingsChanged | LoadEnded

Completion = AppendCommitted | AppendRefused | AppendFailed


class StoredRecord(msgspec.Struct, frozen=True):
    """A record of `__groups`."""

    key: bytes
    value: bytes | None
    """None: a tombstone."""


class AppendRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Append the records as one batch, in the order of the tokens; then say `AppendCommitted`.

    At most `limits.APPEND_BYTES_MAX` in all. Appends may be in flight together.
    """

    token: int
    """One more than the one before; 1 is a core's first."""
    records: tuple[StoredRecord, ...]
    producer: Identity | None = None
    """The batch is part of this producer's transaction, and may be refused without any harm to what
    stands beside it: `AppendRefused`."""


class VerifyTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """Have this partition made part of the transaction, then say `TransactionVerified`."""

    request_id: int
    transactional_id: str
    identity: Identity


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The request is done with."""

    request_id: int
    result: Response | TidelogError
    """An error: nothing was changed, or with AppendFailed's perhaps."""


class ReloadNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """The core is of no more use: throw it away, and load anew if this broker still leads.

    It comes last; every request that was waiting has been answered before it.
    """

    error: TidelogError


Effect = AppendRecords | VerifyTransaction | Answer | ReloadNeeded
