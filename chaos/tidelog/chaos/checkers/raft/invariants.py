"""All invariants of the quorum: when each is checked, and what the board remembers between them.

`RaftWatch` is told what happens to members, in the order in which it happens, and writes
violations on its board. It must never change what it watches.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog.chaos.checkers.raft import sent as raft_sent
from tidelog.chaos.checkers.raft import steps as raft_steps
from tidelog.chaos.checkers.raft import stored as raft_stored
from tidelog.chaos.checkers.raft import whole as raft_whole
from tidelog.chaos.checkers.raft.board import Board, Seen
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import Apply, Persist, ResetLog, Role
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    MemberId,
    Members,
    Recovered,
    Snapshot,
)

_BY_MESSAGE: Final[dict[type, tuple[Callable[[Board, Seen, Any], str | None], ...]]] = {
    VoteRequest: raft_sent.VOTE_REQUEST_INVARIANTS,
    VoteResponse: raft_sent.VOTE_RESPONSE_INVARIANTS,
    AppendRequest: raft_sent.APPEND_REQUEST_INVARIANTS,
    AppendResponse: raft_sent.APPEND_RESPONSE_INVARIANTS,
}

GROUPS: Final[tuple[tuple[str, Sequence[Callable[..., str | None]]], ...]] = (
    ("after each step", raft_steps.STEP_INVARIANTS),
    ("after a leader's step", raft_steps.LEADER_INVARIANTS),
    (
        "on each message",
        (
            *raft_sent.ANY_MESSAGE_INVARIANTS,
            *raft_sent.VOTE_REQUEST_INVARIANTS,
            *raft_sent.VOTE_RESPONSE_INVARIANTS,
            *raft_sent.APPEND_REQUEST_INVARIANTS,
            *raft_sent.APPEND_RESPONSE_INVARIANTS,
        ),
    ),
    ("on each write", raft_stored.ASKED_INVARIANTS),
    ("on each apply", raft_stored.APPLIED_INVARIANTS),
    ("on each start", raft_stored.STARTED_INVARIANTS),
    ("on each read", raft_stored.READ_INVARIANTS),
    ("now and then and at the end", raft_whole.WHOLE_INVARIANTS),
)
"""By when they are checked."""


def list_invariants() -> list[str]:
    """A line for each: its name, when it is checked, what it says."""
    lines = []
    for when, invariants in GROUPS:
        for invariant in invariants:
            says = " ".join((invariant.__doc__ or "").split())
            lines.append(f"{_name(invariant):<28} {when:<28} {says}")
    return lines


def _name(invariant: Callable[..., str | None]) -> str:
    name: str = getattr(invariant, "__name__", "")
    return name


class RaftWatch:
    """Of one quorum."""

    def __init__(self) -> None:
        self.board = Board()
        self.paces: dict[tuple[str, str], None] = {}
        """How leaders' views of members changed."""

    def on_start(
        self,
        member_id: MemberId,
        recovered: Recovered,
        bootstrap: Members,
        election_timeout_ms: int,
    ) -> Seen:
        """A life of a member begins with what its storage found."""
        board = self.board
        member = board.members.get(member_id)
        if member is None:
            member = board.members[member_id] = Seen(member_id, bootstrap, election_timeout_ms)
        else:
            self._run(raft_stored.STARTED_INVARIANTS, member, recovered)
        _refill(member, recovered)
        return member

    def on_death(self, member: Seen) -> None:
        """What it held back was never sent."""
        member.description = None

    def on_stepped(self, member: Seen, after: Description) -> None:
        """The core has digested an input."""
        before = member.description
        board = self.board
        for invariant in raft_steps.STEP_INVARIANTS:
            found = invariant(board, member, before, after)
            if found is not None:
                board.blame(invariant.__name__, member, found)
        if after.role is Role.LEADER:
            for invariant in raft_steps.LEADER_INVARIANTS:
                found = invariant(board, member, before, after)
                if found is not None:
                    board.blame(invariant.__name__, member, found)
            if before is not None and before.role is Role.LEADER:
                self._remember_paces(before, after)
        member.description = after
        if after.commit_index > member.commit_index:
            member.commit_index = after.commit_index

    def _remember_paces(self, before: Description, after: Description) -> None:
        for old, new in zip(before.progress, after.progress, strict=False):
            if old.state != new.state and old.id == new.id:
                self.paces["progress", f"{old.state}>{new.state}"] = None

    def on_sent(self, member: Seen, message: Message) -> None:
        """It is about to leave."""
        self._run(raft_sent.ANY_MESSAGE_INVARIANTS, member, message)
        checks = _BY_MESSAGE.get(type(message))
        if checks is not None:
            self._run(checks, member, message)

    def on_heard(self, member: Seen, message: Message) -> None:
        """It is about to be stepped."""
        if isinstance(message, AppendRequest) and message.term >= _term_of(member):
            member.contact_ms = member.now_ms
            member.contact_term = message.term
        elif isinstance(message, VoteRequest):
            self._remember_request(member, message)

    def _remember_request(self, member: Seen, message: VoteRequest) -> None:
        """A vote may leave long after it was given; it is judged by what was known then."""
        theirs, own = (message.last_term, message.last_index), member.asked.promised_last()
        flaw = "" if theirs >= own else f"to a log that ends with {theirs}, its own with {own}"
        key = (member.id, message.sender, message.term, message.is_pre_vote)
        before = self.board.requests.get(key)
        if before is not None and not message.is_pre_vote:
            flaw = "" if not before[0] else flaw
        self.board.requests[key] = (flaw, message.is_leadership_transfer)

    def on_death_hint(self, member: Seen) -> None:
        """Its leader is said to be gone: the lease ends."""
        member.contact_ms = None

    def on_asked(self, member: Seen, effect: Persist | ResetLog) -> None:
        """Storage is asked to keep it."""
        self._run(raft_stored.ASKED_INVARIANTS, member, effect)
        member.asked.perform(effect)
        member.unflushed.append(effect)
        if isinstance(effect, ResetLog):
            member.member_indexes = []
            return
        if effect.truncate_from is not None:
            cut = effect.truncate_from
            member.member_indexes = [index for index in member.member_indexes if index < cut]
        member.member_indexes += _member_indexes(effect.entries)

    def on_flushed(self, member: Seen, effects: Sequence[Persist | ResetLog]) -> None:
        """Storage has promised to keep it."""
        for effect in effects:
            member.flushed.perform(effect)
        del member.unflushed[: len(effects)]
        member.term = max(member.term, member.flushed.hard_state.term)

    def on_applied(self, member: Seen, apply: Apply) -> None:
        """The state machine gets it."""
        self._run(raft_stored.APPLIED_INVARIANTS, member, apply)
        member.applied_index = apply.entries[-1].index

    def on_restored(self, member: Seen, snapshot: Snapshot) -> None:
        """The state machine was replaced."""
        member.applied_index = snapshot.last_index

    def on_snapshot(self, member: Seen, snapshot: Snapshot) -> None:
        """It lies flushed in storage, taken here."""
        found = raft_stored.snapshot_is_true(self.board, snapshot.id)
        if found is not None:
            self.board.blame("snapshot_is_committed", member, found)
        member.asked.snapshot = member.flushed.snapshot = snapshot

    def on_trimmed(self, member: Seen, first_index: int) -> None:
        """Entries before are not kept any more."""
        member.asked.trim(first_index)
        member.flushed.trim(first_index)

    def on_state(self, member: Seen, index: int, digest: int) -> None:
        """The state machine after `index`: the same for everybody."""
        known = self.board.states.setdefault(index, digest)
        if known != digest:
            self.board.blame("states_agree", member, f"has another state after {index} than others")

    def on_read_asked(self, member: Seen, request_id: int) -> None:
        """A read begins."""
        self.board.reads[member.id, request_id] = self.board.commit_index

    def on_read_answered(self, member: Seen, request_id: int, index: int) -> None:
        """It may read at this index."""
        for invariant in raft_stored.READ_INVARIANTS:
            found = invariant(self.board, member, request_id, index)
            if found is not None:
                self.board.blame(invariant.__name__, member, found)

    def check_whole(self) -> None:
        """Everything at once."""
        for invariant in raft_whole.WHOLE_INVARIANTS:
            found = invariant(self.board)
            if found is not None:
                self.board.violations.append(f"{invariant.__name__}: {found}")

    def _run(
        self,
        invariants: Sequence[Callable[[Board, Seen, Any], str | None]],
        member: Seen,
        subject: object,
    ) -> None:
        board = self.board
        for invariant in invariants:
            found = invariant(board, member, subject)
            if found is not None:
                board.blame(_name(invariant), member, found)


def _term_of(member: Seen) -> int:
    return member.term if member.description is None else member.description.term


def _refill(member: Seen, recovered: Recovered) -> None:
    """From now on what was found is what is flushed: luck may have kept more than promised."""
    member.description = None
    member.contact_ms = None
    member.now_ms = -1
    member.unflushed.clear()
    flushed = member.flushed
    flushed.hard_state = recovered.hard_state
    flushed.snapshot = recovered.snapshot
    end = 1 if recovered.snapshot is None else recovered.snapshot.id.end_index
    flushed.entries = list(recovered.entries)
    flushed.first_index = recovered.entries[0].index if recovered.entries else end
    flushed.last_index = flushed.first_index + len(flushed.entries) - 1
    if flushed.last_index < end - 1:
        flushed.entries, flushed.first_index, flushed.last_index = [], end, end - 1
    member.asked = flushed.copy()
    member.applied_index = member.commit_index = end - 1
    member.member_indexes = _member_indexes(flushed.entries)
    member.term = max(member.term, flushed.hard_state.term)


def _member_indexes(entries: Sequence[Entry]) -> list[int]:
    return [entry.index for entry in entries if entry.kind is EntryKind.MEMBERS]
