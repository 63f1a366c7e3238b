"""The nouns of the quorum: members, entries, snapshots, and what a voter must never forget.

Values only. A member is a node *with one particular directory*: a wiped directory has a new uuid
and is another member, so that it cannot vote twice with the memory of its predecessor gone.
"""

import enum
from collections.abc import Iterator
from typing import NewType

import msgspec

from tidelog.wire.ids import LogIndex, Term

NodeId = NewType("NodeId", int)

NO_TERM = Term(0)
NO_INDEX = LogIndex(0)
"""Of the place before the first entry, which has index 1."""


class MemberId(msgspec.Struct, frozen=True, order=True):
    """A node with one particular directory."""

    node_id: NodeId
    directory_uuid: bytes
    """Sixteen random bytes, drawn when the directory was formatted."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the log names it."""

    id: MemberId
    address: str
    """`host:port` of its cluster listener."""
    is_learner: bool = False
    """A learner gets everything and has no vote."""


class Members(msgspec.Struct, frozen=True):
    """All members, in ascending order of id; in force as soon as the entry is in the log."""

    members: tuple[Member, ...] = ()

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def find(self, member_id: MemberId) -> Member | None:
        """The member of this id."""
        for member in self.members:
            if member.id == member_id:
                return member
        return None

    @property
    def voters(self) -> tuple[MemberId, ...]:
        """Those who elect and whose flushed entries count."""
        return tuple(member.id for member in self.members if not member.is_learner)

    @property
    def majority(self) -> int:
        """How many voters make a quorum."""
        return len(self.voters) // 2 + 1


class EntryKind(enum.Enum):
    """What an entry holds."""

    COMMAND = "command"
    """A command of the metadata state machine, opaque here."""
    MEMBERS = "members"
    """`encode_members(Members)`."""
    EMPTY = "empty"
    """The first entry of a leader's term."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log."""

    index: LogIndex
    term: Term
    kind: EntryKind
    data: bytes = b""


class SnapshotId(msgspec.Struct, frozen=True, order=True):
    """Two snapshots of the same id hold the same state."""

    end_index: LogIndex
    """The first index that is not part of it."""
    term: Term
    """The term of the last entry that is."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that lies whole and flushed in this member's storage."""

    id: SnapshotId
    members: Members
    """In force at its end."""
    size_bytes: int

    @property
    def last_index(self) -> LogIndex:
        """The last index that is part of it."""
        return LogIndex(self.id.end_index - 1)


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """Entries that this member once acknowledged and that were found corrupt.

    It judges votes by `last_*`, and neither campaigns nor acknowledges until every index from
    `from_index` to `last_index` has been fetched again from a leader.
    """

    from_index: LogIndex
    last_index: LogIndex
    last_term: Term


class HardState(msgspec.Struct, frozen=True, kw_only=True):
    """What a member must never forget; flushed before anything that depends on it is sent."""

    term: Term = NO_TERM
    voted_for: MemberId | None = None
    repair: Repair | None = None


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What storage found at start: everything the core begins with."""

    hard_state: HardState
    """With `repair` set if entries are corrupt, whether that was found now or before."""
    snapshot: Snapshot | None
    """None only at the log's very beginning, where `bootstrap` gives the members."""
    bootstrap: Members
    """The members before the first MEMBERS entry of the log; empty for a node that is to join."""
    entries: tuple[Entry, ...]
    """Whole entries, without a gap, from the log's start on; with a repair up to its from_index."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times. All times are differences of the monotonic ticks that the core is given."""

    election_timeout_ms: int = 1_000
    """Silence of the leader before an election; each wait is drawn from once to twice this."""
    heartbeat_ms: int = 150
    death_hint_wait_ms: int = 500
    """After the leader's process is said to be gone."""
    entry_bytes_max: int = 1024 * 1024
    append_bytes_max: int = 1024 * 1024
    """Entries of one AppendRequest together, unless a single one is larger."""
    append_entries_max: int = 1_024
    in_flight_appends_max: int = 16
    """Unanswered AppendRequests with entries to one member."""
    uncommitted_bytes_max: int = 16 * 1024 * 1024
    """Of proposals; beyond it they are refused RESOURCE_EXHAUSTED."""
    reads_waiting_max: int = 4_096
    entries_kept: int = 2_000
    """Entries kept before a snapshot's end, for members that are a little behind."""
    catch_up_entries_max: int = 1_000
    """A learner further behind is not promoted."""
    jitter_seed: int = 0
    """Drawn by the glue, different for each node and start: what election timeouts come from."""
