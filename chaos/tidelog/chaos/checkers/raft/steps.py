"""Invariants of a member's state: what its core describes before and after a step.

Each function is one invariant: it gets the board, the member, and the descriptions before (None:
the first of a life) and after, and returns what is wrong, or None. docs/simulation.md lists them.
"""

from tidelog.chaos.checkers.raft.board import Board, Seen
from tidelog.chaos.checkers.raft.content import members_of
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.membership import decode_members
from tidelog.metadata_quorum.raft.types import MemberId


def one_leader_per_term(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """Two members never lead the same term (Figure 3, election safety)."""
    if after.role is not Role.LEADER:
        return None
    first = board.leaders.setdefault(after.term, member.id)
    return None if first == member.id else f"leads term {after.term} as does n{first.node_id}"


def term_never_falls(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """Neither in memory nor flushed, over all lives; memory is never behind what is flushed."""
    if after.term < member.term:
        return f"is in term {after.term} after {member.term} was flushed"
    if before is not None and after.term < before.term:
        return f"went back from term {before.term} to {after.term}"
    return None


def flushed_state_is_true(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """What the core takes for flushed is flushed; a vote that was flushed is not forgotten."""
    believed, flushed = after.persisted_state, member.flushed.hard_state
    if believed.term > flushed.term:
        return f"takes term {believed.term} for flushed, {flushed.term} is"
    if flushed.voted_for is not None and after.term == flushed.term:
        own = after.hard_state
        if own.voted_for != flushed.voted_for:
            return f"forgot its vote of term {flushed.term}"
    if after.persisted_index > member.flushed.last_index:
        return f"takes {after.persisted_index} for flushed, {member.flushed.last_index} is"
    return None


def commit_never_falls(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """In one life of a member."""
    if after.commit_index < member.commit_index:
        return f"commit went back from {member.commit_index} to {after.commit_index}"
    return None


def commits_agree(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """Committed logs are prefixes of each other; the first to commit an entry says which it is."""
    for index in range(member.commit_index + 1, after.commit_index + 1):
        entry = member.asked.entry(index)
        if index > board.commit_index:
            if entry is None:
                return f"committed {index}, which it does not have"
            board.committed.append(entry)
            board.committed_in.append(after.term)
        elif entry is not None and entry != board.committed[index - 1]:
            known = board.committed[index - 1]
            return f"committed {index} of term {entry.term}, another one has term {known.term}"
    return None


def commit_counts_own_term(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """A leader commits by counting only what is of its own term (§5.4.2)."""
    if not _leader_moved(before, after):
        return None
    term = member.asked.term_at(after.commit_index)
    if term is not None and term != after.term:
        return f"leader of {after.term} committed {after.commit_index} of term {term}"
    return None


def commit_within_own_flush(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """A leader commits nothing that it has not flushed itself."""
    if _leader_moved(before, after) and after.commit_index > member.flushed.last_index:
        return f"committed {after.commit_index}, flushed is {member.flushed.last_index}"
    return None


def majority_holds_commit(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """What a leader commits is flushed on a majority of the voters in force."""
    if not _leader_moved(before, after):
        return None
    term = member.asked.term_at(after.commit_index)
    assert term is not None, "a leader holds what it commits"
    return held_by_majority(board, after, after.commit_index, term)


def held_by_majority(board: Board, after: Description, index: int, term: int) -> str | None:
    """A wiped member never votes again, so that its copy is not needed."""
    holders = []
    for voter in after.members.voters:
        other = board.members.get(voter)
        if other is not None and (other.is_gone or other.flushed.holds(index, term)):
            holders.append(voter.node_id)
    if len(holders) < after.members.majority:
        return f"{index} of term {term} is committed and only flushed on {holders}"
    return None


def leader_is_complete(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """A new leader has what was committed up to its term (Figure 3, leader completeness). What the
    leader of a later term has committed already is not asked of one that hears late of its votes:
    it leads for nobody, because a majority is in that later term.
    """
    if not _took_lead(before, after):
        return None
    index = board.committed_up_to(after.term)
    if index and not member.asked.holds(index, board.committed_term(index)):
        return f"leads term {after.term} without {index}, which is committed"
    return None


def leader_has_majority(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """Elected by flushed votes of a majority of its voters; learners have no vote."""
    if not _took_lead(before, after):
        return None
    granted = board.votes_for.get((member.id, after.term), {})
    voters = [voter for voter in after.members.voters if voter in granted]
    own = member.flushed.hard_state
    if member.id in after.members.voters and (own.term, own.voted_for) == (after.term, member.id):
        voters.append(member.id)
    if len(voters) < after.members.majority:
        return f"leads term {after.term} with {len(voters)} of {len(after.members.voters)} votes"
    return None


def leader_is_furthest(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """Nobody has an entry of a leader's term behind the leader's last one."""
    if after.role is Role.LEADER and board.term_ends.get(after.term, 0) > after.last_index:
        end = board.term_ends[after.term]
        return f"leads term {after.term} up to {after.last_index}, somebody has {end} of it"
    return None


def only_whole_voters_campaign(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """Neither a learner nor a member that repairs asks for votes. A member that is being taken out
    may, for as long as it does not know that this is committed (dissertation 4.2.2): its log may be
    the only one that a majority would elect.
    """
    if after.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
        return None
    if before is not None and before.role is after.role and before.term == after.term:
        return None
    if after.is_repairing:
        return f"is {after.role.value} while it repairs"
    if member.id not in (*after.members.voters, *_voters_before_change(member, after)):
        return f"is {after.role.value} and no voter"
    return None


def _voters_before_change(member: Seen, after: Description) -> tuple[MemberId, ...]:
    """Who had a vote until the log's last change of members, if that may not be committed yet."""
    indexes = member.member_indexes
    if not indexes or indexes[-1] <= after.commit_index:
        return ()
    entry = member.asked.entry(indexes[-2]) if len(indexes) > 1 else None
    if entry is None:
        return members_of(member.asked, member.bootstrap).voters
    return decode_members(entry.data).voters


def log_starts_in_snapshot(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """The log begins at its beginning, or at or before the end of the snapshot."""
    start = after.log_start_index
    end = 1 if after.snapshot is None else after.snapshot.end_index
    return f"the log starts at {start}, the snapshot ends at {end}" if start > end else None


def pointers_in_order(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """applied ≤ commit ≤ last, and the log is what the core asked for."""
    if not after.applied_index <= after.commit_index <= after.last_index:
        return (
            f"applied {after.applied_index}, commit {after.commit_index}, last {after.last_index}"
        )
    is_installing = member.asked.first_index > after.commit_index + 1
    if not after.is_repairing and not is_installing and after.last_index != member.asked.last_index:
        return f"has its last entry at {after.last_index}, asked for {member.asked.last_index}"
    return None


def last_term_is_true(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """The last entry has the term that is stored, also if it is a snapshot's."""
    is_installing = member.asked.first_index > after.commit_index + 1
    if after.is_repairing or is_installing or after.last_index != member.asked.last_index:
        return None
    if after.last_term != member.asked.last_term:
        return f"takes {after.last_term} for its last term, stored is {member.asked.last_term}"
    return None


def one_change_of_members(
    board: Board, member: Seen, before: Description | None, after: Description
) -> str | None:
    """A leader's log has at most one MEMBERS entry that is not committed, of one voter more or
    less, and one of its term is committed before (§6).
    """
    if after.role is not Role.LEADER or not member.member_indexes:
        return None
    pending = [index for index in member.member_indexes if index > board.commit_index]
    if len(pending) > 1:
        return f"has uncommitted members at {pending}"
    if pending and before is not None and before.members_index != after.members_index:
        changed = set(before.members.voters) ^ set(after.members.voters)
        if len(changed) > 1 and before.role is Role.LEADER:
            return f"changed {len(changed)} voters at once"
        if before.term == after.term and before.role is Role.LEADER:
            last = before.commit_index
            if member.asked.term_at(last) not in (after.term, None):
                return f"changes members at {pending[0]} before it committed in its term"
    return None


def _leader_moved(before: Description | None, after: Description) -> bool:
    return (
        after.role is Role.LEADER
        and before is not None
        and before.role is Role.LEADER
        and before.term == after.term
        and before.commit_index < after.commit_index
    )


def _took_lead(before: Description | None, after: Description) -> bool:
    return after.role is Role.LEADER and (
        before is None or before.role is not Role.LEADER or before.term != after.term
    )


STEP_INVARIANTS = (
    term_never_falls,
    flushed_state_is_true,
    commit_never_falls,
    commits_agree,
    pointers_in_order,
    last_term_is_true,
    log_starts_in_snapshot,
    only_whole_voters_campaign,
)
"""After each step that had an effect."""

LEADER_INVARIANTS = (
    one_leader_per_term,
    leader_is_furthest,
    leader_is_complete,
    leader_has_majority,
    commit_counts_own_term,
    commit_within_own_flush,
    majority_holds_commit,
    one_change_of_members,
)
"""After those of a member that leads."""
