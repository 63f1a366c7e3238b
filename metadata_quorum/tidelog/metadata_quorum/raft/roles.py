"""What a member remembers only while it has a role: a closed union, one of them at a time.

    follower ──silence──▶ pre-candidate ──would win──▶ candidate ──won──▶ leader
        ◀── a leader or a higher term is heard of; a leader that hears no majority ──┘

Owns the volatile part of Figure 2 and nothing that outlives a role: that is `node`.
"""

import msgspec

from tidelog.metadata_quorum.raft.progress import Progress
from tidelog.metadata_quorum.raft.types import NO_INDEX, MemberId
from tidelog.wire.ids import LogIndex, Term


class FollowerState(msgspec.Struct):
    """Answers, and waits for a leader."""


class PreCandidateState(msgspec.Struct):
    """Asks whether it would win; no term changes by it."""

    term: Term
    """The one that it would take."""
    votes: dict[MemberId, bool] = msgspec.field(default_factory=dict)
    asked_ms: int = 0


class CandidateState(msgspec.Struct):
    """Asks for votes; its own is in `votes` once it is flushed."""

    votes: dict[MemberId, bool] = msgspec.field(default_factory=dict)
    is_leadership_transfer: bool = False
    asked_ms: int = 0


class WaitingChange(msgspec.Struct):
    """A request that is answered when the members of `index` are committed."""

    request_id: int
    index: LogIndex


class HandOver(msgspec.Struct):
    """A transfer of leadership under way."""

    request_id: int
    to: MemberId
    deadline_ms: int
    is_told: bool = False
    """TimeoutNow was sent: from here on nobody can take it back."""


class LeaderRead(msgspec.Struct):
    """A read at the leader; `round` 0: no entry of the term is committed yet."""

    arrived_ms: int
    request_id: int = 0
    asker: MemberId | None = None
    """The member that forwarded it; None: asked here."""
    read_id: int = 0
    index: LogIndex = NO_INDEX
    round: int = 0


class LeaderState(msgspec.Struct):
    """Replicates; every member but itself has a progress."""

    progress: dict[MemberId, Progress]
    first_index: LogIndex
    """Of its term: committing it lets reads and changes of members through."""
    uncommitted_bytes: int = 0
    round: int = 0
    heartbeat_due_ms: int = 0
    reads: list[LeaderRead] = msgspec.field(default_factory=list)
    changes: list[WaitingChange] = msgspec.field(default_factory=list)
    leaving: list[MemberId] = msgspec.field(default_factory=list)
    """Taken out by the last change of members, and not told yet that it is committed."""
    hand_over: HandOver | None = None


RoleState = FollowerState | PreCandidateState | CandidateState | LeaderState
