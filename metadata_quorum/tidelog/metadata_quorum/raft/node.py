"""What a member has in every role: log, hard state, pointers, timers, effects of this input.

Owns the primitives that the roles are made of: append, truncate, commit, send, hold, answer. Holds
no decision of a role. The pointers stand in this order always, except while repairing:

    log start − 1 ≤ applied ≤ commit ≤ last      applied ≤ persisted ≤ last
"""

from collections.abc import Sequence

import msgspec

from tidelog.metadata_quorum.raft import recovery
from tidelog.metadata_quorum.raft.bounds import NUMBER_MAX
from tidelog.metadata_quorum.raft.effects import (
    Accepted,
    Answer,
    Apply,
    Done,
    Effect,
    FetchSnapshot,
    ReadAt,
    Refused,
    Role,
    Send,
    Uncertain,
)
from tidelog.metadata_quorum.raft.jitter import Jitter
from tidelog.metadata_quorum.raft.membership import Membership
from tidelog.metadata_quorum.raft.messages import AppendResponse, Message
from tidelog.metadata_quorum.raft.persistence import Persistence
from tidelog.metadata_quorum.raft.roles import (
    CandidateState,
    FollowerState,
    HandOver,
    LeaderState,
    PreCandidateState,
    RoleState,
)
from tidelog.metadata_quorum.raft.types import (
    NO_INDEX,
    NO_TERM,
    Entry,
    HardState,
    MemberId,
    Members,
    Options,
    Recovered,
    Repair,
    Snapshot,
)
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LogIndex, Term


class WaitingRead(msgspec.Struct):
    """A read asked for here, while this member does not lead."""

    request_id: int
    arrived_ms: int


class AskedReads(msgspec.Struct):
    """Reads that the leader was asked about, with one request for all of them."""

    read_id: int
    leader: MemberId
    sent_ms: int
    reads: list[WaitingRead]


class Installing(msgspec.Struct):
    """A fetched snapshot takes the log's place once this sequence is flushed."""

    sequence: int
    snapshot: Snapshot


class Fetching(msgspec.Struct):
    """A snapshot on its way."""

    wanted: FetchSnapshot
    position: int = 0


class Refetch(msgspec.Struct):
    """How far a repair has come; what is to be repaired is in the hard state."""

    next_index: LogIndex
    """Everything before it is there."""
    is_cut: bool = False
    """The damaged part of the log in storage was dropped."""


class Node:
    """The state of a core, whatever its role."""

    def __init__(self, member_id: MemberId, recovered: Recovered, options: Options) -> None:
        self.id = member_id
        self.options = options
        self.jitter = Jitter(options.jitter_seed)
        self.now_ms = 0
        self.is_started = False
        self.snapshot = recovered.snapshot
        self.log = recovery.log_of(recovered)
        base_members = recovered.snapshot.members if recovered.snapshot else recovered.bootstrap
        self.commit_index = recovered.snapshot.last_index if recovered.snapshot else NO_INDEX
        self.applied_index = self.commit_index
        self.membership = Membership(self.commit_index, base_members)
        self.membership.append(self.log.between(self.log.first_index, self.log.last_index))
        self.hard_state = recovery.hard_state_of(recovered.hard_state, self.log.last_term)
        # A repair counts as flushed only once it was handed over and reported: see `repair`.
        flushed_state = msgspec.structs.replace(recovered.hard_state, repair=None)
        self.persistence = Persistence(flushed_state, self.log.last_index)
        self.refetch: Refetch | None = None
        if self.hard_state.repair is not None:
            self.refetch = Refetch(next_index=LogIndex(self.log.last_index + 1))
        self.must_reset = recovery.must_reset(recovered)
        self.leader: MemberId | None = None
        self.lease_until_ms = 0
        self.election_due_ms = 0
        self.role: RoleState = FollowerState()
        self.reads: list[WaitingRead] = []
        self.asked_reads: AskedReads | None = None
        self.last_read_id = self.jitter.bits() >> 1
        self.fetching: Fetching | None = None
        self.installing: Installing | None = None
        self.hand_over: HandOver | None = None
        self.effects: list[Effect] = []

    @property
    def term(self) -> Term:
        """The current one."""
        return self.hard_state.term

    @property
    def repair(self) -> Repair | None:
        """Entries that were acknowledged and are not there."""
        return self.hard_state.repair

    @property
    def members(self) -> Members:
        """In force, committed or not."""
        return self.membership.members

    @property
    def role_name(self) -> Role:
        """For those outside."""
        match self.role:
            case FollowerState():
                return Role.FOLLOWER
            case PreCandidateState():
                return Role.PRE_CANDIDATE
            case CandidateState():
                return Role.CANDIDATE
            case LeaderState():
                return Role.LEADER

    @property
    def is_voter(self) -> bool:
        """Of the members in force."""
        return self.membership.is_voter(self.id)

    @property
    def is_sole_voter(self) -> bool:
        """Nobody needs to be asked."""
        return self.membership.voters == (self.id,)

    @property
    def has_lease(self) -> bool:
        """A leader was heard of so lately that no election is wanted."""
        if isinstance(self.role, LeaderState):
            return True
        return self.leader is not None and self.now_ms < self.lease_until_ms

    @property
    def can_campaign(self) -> bool:
        """A voter with everything that it ever acknowledged, and no snapshot half in use. One that
        is being taken out goes on until that is committed: its log may be the only one left that is
        good enough to be elected with (dissertation 4.2.2). After the last term there is no next.
        """
        is_needed = self.membership.is_needed(self.id, self.commit_index)
        is_whole = self.repair is None and self.installing is None
        return is_needed and is_whole and self.term < NUMBER_MAX

    def last_ever(self) -> tuple[Term, LogIndex]:
        """What votes are judged by: the last entry that this member ever had."""
        mine = (self.log.last_term, self.log.last_index)
        if self.repair is None:
            return mine
        return max(mine, (self.repair.last_term, self.repair.last_index))

    def set_state(self, term: Term, voted_for: MemberId | None) -> None:
        """Of a new term, or a vote in this one."""
        assert self.term <= term <= NUMBER_MAX, f"the term goes from {self.term} to {term}"
        assert term > self.term or self.hard_state.voted_for in (None, voted_for), (
            f"a second vote in term {term}"
        )
        self.hard_state = HardState(term=term, voted_for=voted_for, repair=self.repair)

    def set_repair(self, repair: Repair | None) -> None:
        """Of the hard state; term and vote stay."""
        self.hard_state = msgspec.structs.replace(self.hard_state, repair=repair)

    def start_election_timer(self) -> None:
        """Once to twice the election timeout from now."""
        timeout_ms = self.options.election_timeout_ms
        self.election_due_ms = self.now_ms + timeout_ms + self.jitter.between(0, timeout_ms)

    def append(self, entries: Sequence[Entry]) -> None:
        """To the log in memory now, to storage with this input's Persist."""
        self.log.append(entries)
        self.membership.append(entries)
        self.persistence.stage_append(entries)

    def truncate_from(self, index: LogIndex) -> None:
        """Entries that a leader of a later term has replaced; never committed ones."""
        assert index > self.commit_index, f"entry {index} is committed and would be truncated"
        self.log.truncate_from(index)
        self.membership.truncate_from(index)

    def commit_to(self, index: LogIndex) -> None:
        """What is committed stays."""
        assert self.commit_index <= index <= self.log.last_index, (
            f"commit index from {self.commit_index} to {index} of {self.log.last_index}"
        )
        self.commit_index = index
        self.apply_ready()

    def apply_ready(self) -> None:
        """Emit what is committed and flushed here, each entry once."""
        if self.installing is not None:
            return
        last = min(self.commit_index, self.persistence.persisted_index)
        if last > self.applied_index:
            self.emit(Apply(entries=self.log.between(self.applied_index + 1, last)))
            self.applied_index = last

    def emit(self, effect: Effect) -> None:
        """An effect of this input."""
        self.effects.append(effect)

    def send(self, message: Message) -> None:
        """Now: it promises nothing that is not flushed."""
        self.effects.append(Send(message=message))

    def send_after(self, barrier: int, message: Message) -> None:
        """Once this sequence is flushed."""
        if barrier <= self.persistence.flushed_sequence:
            self.send(message)
        else:
            self.persistence.hold(barrier, message)

    def answer(
        self, request_id: int, outcome: Accepted | ReadAt | Done | Refused | Uncertain
    ) -> None:
        """To a request of this node."""
        self.effects.append(Answer(request_id=request_id, outcome=outcome))

    def refuse(self, request_id: int, code: ErrorCode, happened: str, hint: str = "") -> None:
        """Nothing was changed."""
        self.answer(
            request_id, Refused(code=code, happened=happened, hint=hint, leader=self.leader)
        )

    def respond(
        self,
        receiver: MemberId,
        round_answered: int,
        *,
        match_index: LogIndex | None = None,
        hint_index: LogIndex = NO_INDEX,
        barrier: int | None = None,
        snapshot_position: int = 0,
    ) -> None:
        """To an AppendRequest; without a match it is a rejection. Held until term and vote, and
        with a later barrier what is matched, are flushed.
        """
        self.send_after(
            self.persistence.state_barrier(self.hard_state) if barrier is None else barrier,
            AppendResponse(
                sender=self.id,
                receiver=receiver,
                term=self.term,
                is_success=match_index is not None,
                match_index=match_index or NO_INDEX,
                hint_index=hint_index,
                hint_term=self.log.term_at(hint_index) or NO_TERM,
                round=round_answered,
                repair_from_index=self.refetch.next_index if self.refetch else NO_INDEX,
                snapshot_position=snapshot_position,
            ),
        )
