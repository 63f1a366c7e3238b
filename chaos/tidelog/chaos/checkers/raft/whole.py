"""Invariants over all members at once: too dear for each step, checked now and then."""

import itertools

from tidelog.chaos.checkers.raft.board import Board, Seen
from tidelog.metadata_quorum.raft.effects import Persist, Role


def quorum_holds_committed(board: Board) -> str | None:
    """Every quorum has a member that holds the committed prefix, so that none can lose it."""
    index = board.commit_index
    if not index:
        return None
    term = board.committed_term(index)
    for members in (board.committed_members(),):
        lacking = 0
        for voter in members.voters:
            other = board.members.get(voter)
            if other is not None and not other.is_gone and not other.flushed.holds(index, term):
                lacking += 1
        if lacking >= members.majority:
            return f"{lacking} of {len(members.voters)} voters lack {index}, a quorum of them"
    return None


def winner_holds_committed(board: Board) -> str | None:
    """Whoever would win a voter's vote holds what that voter has committed."""
    alive = [member for member in board.alive() if member.role is not None]
    for candidate in alive:
        description = candidate.description
        assert description is not None, "it is alive"
        if description.is_repairing or candidate.id not in description.members.voters:
            continue
        last = candidate.asked.promised_last()
        for voter in alive:
            index = voter.commit_index
            if voter is candidate or last < voter.flushed.promised_last() or not index:
                continue
            if voter.flushed.last_index < index:
                continue
            if not candidate.asked.holds(index, board.committed_term(index)):
                return f"n{candidate.id.node_id} would win n{voter.id.node_id} without {index}"
    return None


def committed_prefixes_agree(board: Board) -> str | None:
    """Every flushed log equals the committed one as far as the member has committed. What a write
    under way cuts off is of no meaning any more.
    """
    for member in board.alive():
        content = member.flushed
        cuts = [
            effect.truncate_from - 1
            for effect in member.unflushed
            if isinstance(effect, Persist) and effect.truncate_from is not None
        ]
        end = min([member.commit_index, content.last_index, *cuts])
        for index in range(content.first_index, end + 1):
            if content.entry(index) != board.committed[index - 1]:
                return f"n{member.id.node_id} holds another {index} than was committed"
    return None


def logs_match(board: Board) -> str | None:
    """If two logs have an entry of one index and term, they are equal up to there."""
    members = list(board.members.values())
    for first, second in itertools.pairwise(members):
        ours, theirs = first.flushed, second.flushed
        low = max(ours.first_index, theirs.first_index)
        index = min(ours.last_index, theirs.last_index)
        while index >= low and ours.term_at(index) != theirs.term_at(index):
            index -= 1
        for place in range(low, index + 1):
            if ours.entry(place) != theirs.entry(place):
                return (
                    f"n{first.id.node_id} and n{second.id.node_id} agree at {index}, not at {place}"
                )
    return None


def progress_is_true(board: Board) -> str | None:
    """What a leader takes for acknowledged is flushed at that member."""
    for leader in board.alive():
        description = leader.description
        if description is None or description.role is not Role.LEADER:
            continue
        for progress in description.progress:
            other = board.members.get(progress.id)
            if other is None or other.is_gone or other.flushed.hard_state.term > description.term:
                continue
            if other.flushed.hard_state.repair is not None:
                continue
            if progress.match_index > other.flushed.last_index:
                last = other.flushed.last_index
                return (
                    f"n{leader.id.node_id} takes {progress.match_index} for flushed at "
                    f"n{progress.id.node_id}, {last} is"
                )
    return None


def one_leader_now(board: Board) -> str | None:
    """Of several members that take themselves for leaders, each leads another term."""
    terms: dict[int, Seen] = {}
    for member in board.alive():
        description = member.description
        if description is not None and description.role is Role.LEADER:
            other = terms.setdefault(description.term, member)
            if other is not member:
                return f"n{other.id.node_id} and n{member.id.node_id} lead {description.term}"
    return None


WHOLE_INVARIANTS = (
    quorum_holds_committed,
    winner_holds_committed,
    committed_prefixes_agree,
    logs_match,
    progress_is_true,
    one_leader_now,
)
