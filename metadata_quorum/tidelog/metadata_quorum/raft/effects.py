"""What the core wants done: a closed union, performed by the runner in the order given.

Only `Persist` and `ResetLog` are waited for, and only by the core itself: what depends on their
being flushed is emitted after `Persisted`, so every effect may be performed as soon as it is there.
"""

import enum

import msgspec

from tidelog.metadata_quorum.raft.messages import Message
from tidelog.metadata_quorum.raft.types import (
    Entry,
    HardState,
    MemberId,
    Members,
    Snapshot,
    SnapshotId,
)
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LogIndex, Term


class Role(enum.Enum):
    """What a member is at the moment."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Persist(msgspec.Struct, frozen=True, kw_only=True, tag="persist"):
    """In this order: cut the log from `truncate_from` on, append `entries`, store the hard state;
    flush; then `Persisted(sequence)`. Several may be done with one flush, in order. A crash may
    leave any part of it. Entries begin where the log ends, or at `truncate_from` if it is given.
    """

    sequence: int
    hard_state: HardState | None = None
    truncate_from: LogIndex | None = None
    entries: tuple[Entry, ...] = ()


class ResetLog(msgspec.Struct, frozen=True, kw_only=True, tag="reset_log"):
    """Put a fetched snapshot in use: the whole log gives way to it, the state machine loads it.
    Then `Persisted(sequence)`. What follows is appended from the snapshot's end on. At start also
    with the snapshot that was recovered, if the log in storage does not lead up to its end.
    """

    sequence: int
    snapshot: Snapshot
    hard_state: HardState


class TrimLog(msgspec.Struct, frozen=True, kw_only=True, tag="trim_log"):
    """Entries before `first_index` are in a snapshot and wanted by nobody; no hurry."""

    first_index: LogIndex


class Send(msgspec.Struct, frozen=True, kw_only=True, tag="send"):
    """To `message.receiver`, at its address in the members."""

    message: Message


class Apply(msgspec.Struct, frozen=True, kw_only=True, tag="apply"):
    """Committed entries of every kind, each once, in order, flushed here."""

    entries: tuple[Entry, ...]


class FetchSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag="fetch_snapshot"):
    """Fetch it in pieces from `source`; one at a time, a new one replaces the one under way."""

    source: MemberId
    id: SnapshotId
    size_bytes: int


class RoleChanged(msgspec.Struct, frozen=True, kw_only=True, tag="role_changed"):
    """Term, role or known leader changed; comes after what it depends on was flushed for LEADER."""

    term: Term
    role: Role
    leader: MemberId | None


class MembersChanged(msgspec.Struct, frozen=True, kw_only=True, tag="members_changed"):
    """The members in force, committed or not: whom to keep connections to."""

    members: Members
    is_committed: bool


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """A proposal stands in the leader's log at this place. It took effect if and only if the
    entry applied at `index` has this `term`.
    """

    index: LogIndex
    term: Term


class ReadAt(msgspec.Struct, frozen=True, kw_only=True, tag="read_at"):
    """Read once this index is applied."""

    index: LogIndex


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """A change of members is committed, or was in force already; a transfer has taken place."""

    members: Members
    index: LogIndex


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """Nothing was changed."""

    code: ErrorCode
    happened: str
    hint: str = ""
    leader: MemberId | None = None


class Uncertain(msgspec.Struct, frozen=True, kw_only=True, tag="uncertain"):
    """The change may or may not take effect: leadership was lost before it was committed."""

    happened: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """To the request of this id."""

    request_id: int
    outcome: Accepted | ReadAt | Done | Refused | Uncertain


Effect = (
    Persist
    | ResetLog
    | TrimLog
    | Send
    | Apply
    | FetchSnapshot
    | RoleChanged
    | MembersChanged
    | Answer
)
