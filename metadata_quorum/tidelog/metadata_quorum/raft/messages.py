"""What members say to each other: a closed union. Each field says what the receiver may conclude.

Any message may be lost, repeated, delayed and overtaken; terms, indexes and rounds tell. Whatever
an answer promises was flushed before the answer was sent.
"""

import msgspec

from tidelog.metadata_quorum.raft.types import NO_INDEX, NO_TERM, Entry, MemberId, SnapshotId
from tidelog.wire.ids import LogIndex, Term


class VoteRequest(msgspec.Struct, frozen=True, kw_only=True, tag="vote_request"):
    """Asks for a vote, or whether one would be given (`is_pre_vote`: no term changes anywhere)."""

    sender: MemberId
    receiver: MemberId
    term: Term
    """The term to be led; with `is_pre_vote` the one that the sender would take."""
    last_index: LogIndex
    """The last entry that the sender ever had."""
    last_term: Term
    is_pre_vote: bool
    is_leadership_transfer: bool = False
    """The old leader asked for it: grant even if a leader was heard of lately."""


class VoteResponse(msgspec.Struct, frozen=True, kw_only=True, tag="vote_response"):
    """A granted vote is flushed."""

    sender: MemberId
    receiver: MemberId
    term: Term
    """The sender's term; for a granted PreVote the term asked about."""
    is_granted: bool
    is_pre_vote: bool


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True, tag="append_request"):
    """Entries, a heartbeat (no entries), or the offer of a snapshot; only a leader sends it."""

    sender: MemberId
    receiver: MemberId
    term: Term
    previous_index: LogIndex
    """A receiver that does not have this entry with `previous_term` stores nothing."""
    previous_term: Term
    entries: tuple[Entry, ...]
    commit_index: LogIndex
    """The receiver takes over at most what it has in common with the leader."""
    round: int
    """Grows with each round of heartbeats of the term; echoed."""
    snapshot: SnapshotId | None = None
    """The leader's log no longer holds what the receiver lacks: fetch this and install it."""
    snapshot_bytes: int = 0
    matched_index: LogIndex = NO_INDEX
    """The receiver has acknowledged all up to here to this leader, in this term. One whose log ends
    before that has lost what it had flushed: its directory went back in time. 0: not said."""
    matched_term: Term = NO_TERM
    """The term of that entry."""


class AppendResponse(msgspec.Struct, frozen=True, kw_only=True, tag="append_response"):
    """What the leader may conclude; every promise in it is flushed."""

    sender: MemberId
    receiver: MemberId
    term: Term
    is_success: bool
    match_index: LogIndex
    """With success: all up to here is flushed and equal to the leader's."""
    hint_index: LogIndex
    """Without success: go on with an entry at or below this one."""
    hint_term: Term
    """The term of the sender's entry at `hint_index`; 0: it has none."""
    round: int
    repair_from_index: LogIndex
    """Above 0: entries from here on must be sent again although they were acknowledged; until
    then the sender counts for no commit."""
    snapshot_position: int = 0
    """While a snapshot is fetched: how many bytes are there."""


class TimeoutNow(msgspec.Struct, frozen=True, kw_only=True, tag="timeout_now"):
    """The leader hands over: campaign at once, without PreVote."""

    sender: MemberId
    receiver: MemberId
    term: Term


class ReadIndexRequest(msgspec.Struct, frozen=True, kw_only=True, tag="read_index_request"):
    """A member asks its leader for an index to read at."""

    sender: MemberId
    receiver: MemberId
    term: Term
    read_id: int
    """Echoed; of no meaning to the leader."""


class ReadIndexResponse(msgspec.Struct, frozen=True, kw_only=True, tag="read_index_response"):
    """Given after a round of heartbeats that began after the request had arrived."""

    sender: MemberId
    receiver: MemberId
    term: Term
    read_id: int
    index: LogIndex
    """Reflects everything committed before the request; 0: refused, the sender does not lead."""


Message = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | TimeoutNow
    | ReadIndexRequest
    | ReadIndexResponse
)
