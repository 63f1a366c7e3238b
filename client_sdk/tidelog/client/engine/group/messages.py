"""What goes into a group member's core and what comes out of it.

Owns the closed unions and the values of the group contract as the engine sees them.
"""

import enum

import msgspec

from tidelog.client.types.records import TopicPartition
from tidelog.wire.calls.groups import Subscription
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    PartitionId,
    PartitionKey,
    TopicId,
)


class GroupPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition by name and by id."""

    topic_partition: TopicPartition
    topic_id: TopicId

    @property
    def key(self) -> PartitionKey:
        """What tells it from others: a topic created again under its name has another id."""
        return PartitionKey(self.topic_id, PartitionId(self.topic_partition.partition))


class AssignedPartition(GroupPartition, frozen=True, kw_only=True):
    """A partition that the coordinator gave to this member."""

    partition_assignment_epoch: int


class OffsetToCommit(GroupPartition, frozen=True, kw_only=True):
    """How far one partition was read."""

    committed_offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""


class CommittedOffset(GroupPartition, frozen=True, kw_only=True):
    """How far a group has read; NO_OFFSET: it committed nothing."""

    committed_offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    error: TidelogError | None = None


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a member says; None: the coordinator keeps what it knows."""

    member_epoch: int
    subscription: Subscription | None = None
    owned: tuple[GroupPartition, ...] | None = None


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator says."""

    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    session_timeout_ms: int = 0
    assignment: tuple[AssignedPartition, ...] | None = None
    """None: nothing changed since the last answer."""
    is_idle: bool = False
    error: TidelogError | None = None


# From the user's side.


class Subscribed(msgspec.Struct, frozen=True, kw_only=True):
    """The user wants to read these, and nothing else; an empty one leaves the group."""

    subscription: Subscription


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """The user's side has done what the news of this number asks for."""

    number: int


class CommitWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Store these offsets; answered by CommitDone."""

    number: int
    offsets: tuple[OffsetToCommit, ...]
    deadline_ns: int


class LookupWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Tell what was committed; answered by one or more of OffsetsFound."""

    number: int
    partitions: tuple[GroupPartition, ...]
    deadline_ns: int | None
    """None: as long as the member owns them."""
    is_start: bool
    """Reading goes on from there."""


class LeaveWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Send what is to be committed, then leave for good; answered by HasLeft."""

    deadline_ns: int


# From brokers.


class CoordinatorFound(msgspec.Struct, frozen=True, kw_only=True):
    """Where the group's coordinator is."""

    address: str


class CoordinatorFailed(msgspec.Struct, frozen=True, kw_only=True):
    """There is none at the moment, or nobody could be asked."""

    error: TidelogError


class HeartbeatAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinator answered, or could not be asked: then `answer` holds nothing but an error."""

    number: int
    answer: HeartbeatAnswer


class CommitAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """One result for each offset of the request, in its order; none with an error."""

    number: int
    results: tuple[TidelogError | None, ...] = ()
    error: TidelogError | None = None
    throttle_ms: int = 0


class LookupAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """One answer for each partition of the request, in its order; none with an error."""

    number: int
    offsets: tuple[CommittedOffset, ...] = ()
    error: TidelogError | None = None


GroupMessage = (
    Subscribed
    | Reconciled
    | CommitWanted
    | LookupWanted
    | LeaveWanted
    | CoordinatorFound
    | CoordinatorFailed
    | HeartbeatAnswered
    | CommitAnswered
    | LookupAnswered
)


# News for the user's side.


class Revoke(msgspec.Struct, frozen=True, kw_only=True):
    """Finish these, commit them, tell the listener, let go of them; then say Reconciled."""

    number: int
    partitions: tuple[AssignedPartition, ...]


class Assign(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the listener, begin to read these; then say Reconciled. Empty: there is nothing."""

    number: int
    partitions: tuple[AssignedPartition, ...]


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Stop reading everything, commit nothing; then say Reconciled: the member joins again."""

    number: int
    error: TidelogError
    is_refused: bool = False
    """The user must see the error: joining again would not help by itself."""


class CommitDone(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a commit; what is not in `failures` is stored."""

    number: int
    failures: tuple[tuple[TopicPartition, TidelogError], ...] = ()


class OffsetsFound(msgspec.Struct, frozen=True, kw_only=True):
    """Some of what was looked up."""

    number: int
    offsets: tuple[CommittedOffset, ...] = ()
    error: TidelogError | None = None
    """The rest will not come."""
    is_last: bool = True


class HasLeft(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinator knows, or was told in vain until the deadline."""


GroupNews = Revoke | Assign | Lost | CommitDone | OffsetsFound | HasLeft


# Effects.


class FindCoordinator(msgspec.Struct, frozen=True, kw_only=True):
    """Ask any broker; answer with CoordinatorFound or CoordinatorFailed."""


class SendHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with HeartbeatAnswered."""

    number: int
    address: str
    timeout_ms: int
    heartbeat: Heartbeat


class SendCommit(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with CommitAnswered."""

    number: int
    address: str
    timeout_ms: int
    member_id: str
    member_epoch: int
    offsets: tuple[OffsetToCommit, ...]


class SendLookup(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with LookupAnswered."""

    number: int
    address: str
    timeout_ms: int
    member_id: str
    member_epoch: int
    partitions: tuple[GroupPartition, ...]
    require_stable: bool


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """News for the user's side; taken up at its next poll, in order."""

    news: GroupNews


class Severity(enum.Enum):
    """Of a line in the log."""

    INFO = "info"
    WARNING = "warning"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A line for the log."""

    severity: Severity
    text: str


GroupEffect = FindCoordinator | SendHeartbeat | SendCommit | SendLookup | Tell | Note
