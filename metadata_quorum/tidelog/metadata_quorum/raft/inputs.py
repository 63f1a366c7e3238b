"""What the node itself tells the core: requests of its own, completions of effects, hints.

A request is answered by exactly one `Answer` effect, now or later, until the process ends.
"""

import msgspec

from tidelog.metadata_quorum.raft.types import Member, MemberId, Snapshot, SnapshotId
from tidelog.wire.ids import LogIndex, Term


class Propose(msgspec.Struct, frozen=True, kw_only=True, tag="propose"):
    """Put a command into the log, if this node leads and its term is `term` (0: whichever)."""

    request_id: int
    data: bytes
    term: Term


class Read(msgspec.Struct, frozen=True, kw_only=True, tag="read"):
    """An index that reflects everything committed before now; any member may ask."""

    request_id: int


class AddLearner(msgspec.Struct, frozen=True, kw_only=True, tag="add_learner"):
    """Let a node in as a learner; one that is a member already is answered with success."""

    request_id: int
    member: Member


class Promote(msgspec.Struct, frozen=True, kw_only=True, tag="promote"):
    """Make a learner that has caught up a voter."""

    request_id: int
    member_id: MemberId


class RemoveMember(msgspec.Struct, frozen=True, kw_only=True, tag="remove_member"):
    """Take a member out; a leader that removes itself steps down once that is committed."""

    request_id: int
    member_id: MemberId


class Transfer(msgspec.Struct, frozen=True, kw_only=True, tag="transfer"):
    """Hand the leadership over; None: to the voter that is furthest."""

    request_id: int
    to: MemberId | None


Request = Propose | Read | AddLearner | Promote | RemoveMember | Transfer


class Persisted(msgspec.Struct, frozen=True, kw_only=True, tag="persisted"):
    """Everything up to the `Persist` or `ResetLog` of this sequence is flushed."""

    sequence: int


class SnapshotTaken(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot_taken"):
    """The state machine's snapshot of applied entries lies flushed in storage."""

    snapshot: Snapshot


class SnapshotFetched(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot_fetched"):
    """What `FetchSnapshot` asked for lies checked and flushed in storage, not yet in use."""

    snapshot: Snapshot


class SnapshotFetchFailed(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot_fetch_failed"):
    """It could not be had; the leader's next offer tries again."""

    id: SnapshotId


class SnapshotProgress(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot_progress"):
    """How many bytes of a fetch are there, for the leader's eyes."""

    id: SnapshotId
    position: int


class CorruptEntry(msgspec.Struct, frozen=True, kw_only=True, tag="corrupt_entry"):
    """A read of storage found an entry damaged at rest: a leader steps down, all repair."""

    index: LogIndex


Completion = (
    Persisted
    | SnapshotTaken
    | SnapshotFetched
    | SnapshotFetchFailed
    | SnapshotProgress
    | CorruptEntry
)


class PeerDied(msgspec.Struct, frozen=True, kw_only=True, tag="peer_died"):
    """The network says that a member's process is gone. It may be wrong."""

    node_id: int


Input = Request | Completion | PeerDied
