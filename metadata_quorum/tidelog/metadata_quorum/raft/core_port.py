"""The core as its users see it: the runner, the golden scripts, the simulator."""

from typing import Protocol

import msgspec

from tidelog.metadata_quorum.raft.effects import Effect, Role
from tidelog.metadata_quorum.raft.inputs import Input
from tidelog.metadata_quorum.raft.messages import Message
from tidelog.metadata_quorum.raft.types import (
    HardState,
    MemberId,
    Members,
    SnapshotId,
)
from tidelog.wire.ids import LogIndex, Term


class MemberProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the leader sees it."""

    id: MemberId
    match_index: LogIndex
    next_index: LogIndex
    state: str
    """probe, replicate, snapshot or repair."""
    in_flight: int
    last_contact_ms: int
    """How long ago; -1: never."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a core that operators, checks and tests look at."""

    id: MemberId
    role: Role
    term: Term
    leader: MemberId | None
    hard_state: HardState
    """In memory."""
    persisted_state: HardState
    """As of the last Persisted."""
    last_index: LogIndex
    last_term: Term
    persisted_index: LogIndex
    commit_index: LogIndex
    applied_index: LogIndex
    """As far as Apply was emitted."""
    log_start_index: LogIndex
    snapshot: SnapshotId | None
    members: Members
    members_index: LogIndex
    committed_members: Members
    is_repairing: bool
    transfer_to: MemberId | None
    progress: tuple[MemberProgress, ...]
    """Of a leader only."""


class Core(Protocol):
    """Made by `raft.core.RaftCore(member_id, recovered, options)`.

    `tick` is called first whenever time may have passed, so that `step` and `give` need no time.
    """

    def tick(self, now_ms: int) -> list[Effect]:
        """Monotonic time; never falls. A one-voter quorum elects itself at the first."""
        ...

    def step(self, message: Message) -> list[Effect]:
        """A message of another member, in any state, however old, of whatever sender."""
        ...

    def give(self, given: Input) -> list[Effect]:
        """A request, a completion or a hint of this node."""
        ...

    def term_at(self, index: LogIndex) -> Term | None:
        """Of an entry, or of the snapshot's last one; None: not there any more, or not yet."""
        ...

    def describe(self) -> Description:
        """A value; costs as much as there are members."""
        ...
