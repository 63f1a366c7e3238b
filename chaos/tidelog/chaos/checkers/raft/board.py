"""What was seen of a quorum: every member, what was committed, who led, who voted for whom.

Owns the memory that the invariants are checked against. It is fed by whoever runs the members: what
a core describes, what it wants done, what its storage holds. It must never ask a core for a
verdict on itself.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.chaos.checkers.raft.content import Content
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import Persist, ResetLog, Role
from tidelog.metadata_quorum.raft.membership import decode_members
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, MemberId, Members

VIOLATIONS_MAX: Final = 20


class Seen:
    """One member: a node with one directory, over all its lives."""

    __slots__ = (
        "applied_index",
        "asked",
        "bootstrap",
        "commit_index",
        "contact_ms",
        "contact_term",
        "description",
        "election_timeout_ms",
        "flushed",
        "id",
        "is_gone",
        "member_indexes",
        "now_ms",
        "term",
        "unflushed",
    )

    def __init__(self, member_id: MemberId, bootstrap: Members, election_timeout_ms: int) -> None:
        self.id = member_id
        self.bootstrap = bootstrap
        self.election_timeout_ms = election_timeout_ms
        self.description: Description | None = None
        """Of the present life, after its last step; None: dead."""
        self.asked = Content()
        """What the core has asked to be stored, flushed or not."""
        self.flushed = Content()
        """What its storage has promised to keep."""
        self.unflushed: list[Persist | ResetLog] = []
        """What was asked and not flushed yet: a crash may keep any first part of it."""
        self.term = 0
        """The highest it ever had flushed."""
        self.applied_index = 0
        """In this life."""
        self.commit_index = 0
        """In this life."""
        self.member_indexes: list[int] = []
        """Where its log has MEMBERS entries, as asked for."""
        self.contact_ms: int | None = None
        """When it last heard from a leader, in its own time; None: not in this life."""
        self.contact_term = 0
        self.now_ms = 0
        self.is_gone = False
        """Its directory was wiped: it can never vote again."""

    @property
    def role(self) -> Role | None:
        """None: dead."""
        return None if self.description is None else self.description.role


class Board:
    """Of one quorum, from its bootstrap on."""

    def __init__(self) -> None:
        self.members: dict[MemberId, Seen] = {}
        self.committed: list[Entry] = []
        """The entry of index i + 1 at place i; known from the first member that committed it."""
        self.committed_in: list[int] = []
        """In which term that was: the term of the leader that counted a majority, for nobody
        commits an entry before a leader did."""
        self.leaders: dict[int, MemberId] = {}
        """By term."""
        self.votes: dict[tuple[MemberId, int], MemberId] = {}
        """Granted for good, by voter and term."""
        self.votes_for: dict[tuple[MemberId, int], dict[MemberId, None]] = {}
        """Who has granted, by candidate and term."""
        self.requests: dict[tuple[MemberId, MemberId, int, bool], tuple[str, bool]] = {}
        """What voters heard, by voter, candidate, term and PreVote: why the candidate's log is not
        good enough, empty if it is, and whether a leader had handed over."""
        self.entries: dict[tuple[int, int], tuple[int, Entry]] = {}
        """By index and term: the term before it, and the entry."""
        self.term_ends: dict[int, int] = {}
        """By term, the highest index that anybody has stored an entry of it at."""
        self.reads: dict[tuple[MemberId, int], int] = {}
        """By member and request: what was committed when the read began."""
        self.states: dict[int, int] = {}
        """By index: a digest of the state machine after it."""
        self.violations: list[str] = []

    def blame(self, name: str, member: Seen, detail: str) -> None:
        """Write a violation down."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"{name}: n{member.id.node_id} {detail}")

    @property
    def commit_index(self) -> int:
        """The highest that anybody has seen committed."""
        return len(self.committed)

    def committed_up_to(self, term: int) -> int:
        """The highest index that was committed in this term or an earlier one."""
        for place in range(len(self.committed_in), 0, -1):
            if self.committed_in[place - 1] <= term:
                return place
        return 0

    def committed_term(self, index: int) -> int:
        """Of a committed entry."""
        return self.committed[index - 1].term if index else 0

    def leader_of(self, term: int) -> Seen | None:
        """Whoever leads this term now."""
        member_id = self.leaders.get(term)
        if member_id is None:
            return None
        member = self.members[member_id]
        description = member.description
        if description is None or description.role is not Role.LEADER or description.term != term:
            return None
        return member

    def alive(self) -> Iterator[Seen]:
        """Members with a running core."""
        return (member for member in self.members.values() if member.description is not None)

    def committed_members(self) -> Members:
        """In force by what is committed."""
        for entry in reversed(self.committed):
            if entry.kind is EntryKind.MEMBERS:
                return decode_members(entry.data)
        return next(iter(self.members.values())).bootstrap
