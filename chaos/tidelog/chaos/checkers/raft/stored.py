"""Invariants of what is stored and applied: asked of storage, found at a start, told to others."""

from tidelog.chaos.checkers.raft.board import Board, Seen
from tidelog.metadata_quorum.raft.effects import Apply, Persist, ResetLog, Role
from tidelog.metadata_quorum.raft.types import Recovered, SnapshotId
from tidelog.wire.ids import LogIndex, Term


def committed_stays(board: Board, member: Seen, effect: Persist | ResetLog) -> str | None:
    """No member ever drops an entry that is committed."""
    first = member.asked.first_index
    if isinstance(effect, ResetLog):
        begin = effect.snapshot.id.end_index
    elif effect.truncate_from is not None:
        begin = effect.truncate_from
    else:
        return None
    if member.asked.hard_state.repair is not None:
        return None
    end = min(member.asked.last_index, board.commit_index)
    kept = {entry.index: entry for entry in getattr(effect, "entries", ())}
    for index in range(max(begin, first), end + 1):
        entry = member.asked.entry(index)
        if entry == board.committed[index - 1] and kept.get(index) != entry:
            return f"drops {index} of term {entry.term}, which is committed"
    return None


def log_matching(board: Board, member: Seen, effect: Persist | ResetLog) -> str | None:
    """Entries of one index and term are the same and follow the same (Figure 3), in any log."""
    if isinstance(effect, ResetLog) or not effect.entries:
        return None
    content = member.asked
    last = content.last_index if effect.truncate_from is None else effect.truncate_from - 1
    before = content.term_at(last)
    for entry in effect.entries:
        if entry.index != last + 1:
            return f"stores {entry.index} behind {last}"
        if before is not None:
            if entry.term < before:
                return f"stores {entry.index} of term {entry.term} behind one of {before}"
            known = board.entries.setdefault((entry.index, entry.term), (before, entry))
            if known[0] != before or (known[1] is not entry and known[1] != entry):
                return f"stores another {entry.index} of term {entry.term} than others have"
        last, before = entry.index, entry.term
        if board.term_ends.get(entry.term, 0) < last:
            board.term_ends[entry.term] = last
    return None


def leader_only_appends(board: Board, member: Seen, effect: Persist | ResetLog) -> str | None:
    """A leader never cuts its log and never loads a snapshot (Figure 3, leader append-only)."""
    description = member.description
    if description is None or description.role is not Role.LEADER:
        return None
    if isinstance(effect, ResetLog):
        return "loads a snapshot while it leads"
    state = effect.hard_state
    if effect.truncate_from is not None and (state is None or state.term == description.term):
        return f"cuts its log from {effect.truncate_from} on while it leads"
    return None


def repair_ends_whole(board: Board, member: Seen, effect: Persist | ResetLog) -> str | None:
    """A repair ends only when the log is as late again as it ever was."""
    repair = member.asked.hard_state.repair
    state = effect.hard_state
    if repair is None or state is None or state.repair is not None:
        return None
    if isinstance(effect, ResetLog):
        last = (effect.snapshot.id.term, effect.snapshot.last_index)
    elif effect.entries:
        last = (effect.entries[-1].term, effect.entries[-1].index)
    elif effect.truncate_from is not None:
        index = LogIndex(effect.truncate_from - 1)
        last = (member.asked.term_at(index) or Term(0), index)
    else:
        last = (member.asked.last_term, LogIndex(member.asked.last_index))
    if last < (repair.last_term, repair.last_index):
        return f"ends a repair at {last}, it had {(repair.last_term, repair.last_index)}"
    return None


def snapshot_is_committed(board: Board, member: Seen, effect: Persist | ResetLog) -> str | None:
    """A snapshot that is put in use ends at a committed entry, with its term."""
    return snapshot_is_true(board, effect.snapshot.id) if isinstance(effect, ResetLog) else None


def snapshot_is_true(board: Board, snapshot: SnapshotId) -> str | None:
    """Of any snapshot that is taken or put in use."""
    last = snapshot.end_index - 1
    if last > board.commit_index:
        return f"a snapshot ends at {last}, committed is {board.commit_index}"
    if board.committed_term(last) != snapshot.term:
        known = board.committed_term(last)
        return f"a snapshot up to {last} has term {snapshot.term}, the entry {known}"
    return None


def applied_in_order(board: Board, member: Seen, apply: Apply) -> str | None:
    """Each committed entry once, in order, the same everywhere (Figure 3, state machine safety)."""
    for place, entry in enumerate(apply.entries):
        index = member.applied_index + 1 + place
        if entry.index != index:
            return f"applied {entry.index} where {index} comes next"
        if index <= board.commit_index and entry != board.committed[index - 1]:
            return f"applied another entry at {index} than was committed"
    return None


def applied_is_committed(board: Board, member: Seen, apply: Apply) -> str | None:
    """Nothing is applied that is not committed, or not flushed here."""
    last = apply.entries[-1].index
    if last > board.commit_index:
        return f"applied {last}, committed is {board.commit_index}"
    if last > member.flushed.last_index:
        return f"applied {last}, flushed is {member.flushed.last_index}"
    return None


def restart_forgets_nothing(board: Board, member: Seen, recovered: Recovered) -> str | None:
    """A start finds every flushed term, vote and entry (a snapshot holds those before its end), or
    says what it repairs.
    """
    flushed, found = member.flushed, recovered.hard_state
    vote = flushed.hard_state.voted_for
    if found.term < flushed.hard_state.term or (
        found.term == flushed.hard_state.term and vote is not None and found.voted_for != vote
    ):
        return f"forgot term {flushed.hard_state.term} and its vote, found {found.term}"
    end = 1 if recovered.snapshot is None else recovered.snapshot.id.end_index
    last = recovered.entries[-1].index if recovered.entries else end - 1
    last = max(last, end - 1)
    if found.repair is not None:
        last = max(last, found.repair.last_index)
    cuts = [
        effect.truncate_from - 1
        for effect in member.unflushed
        if isinstance(effect, Persist) and effect.truncate_from is not None
    ]
    if last < min([flushed.last_index, *cuts]):
        return f"forgot entries {last + 1} to {flushed.last_index}"
    for entry in recovered.entries:
        known = flushed.entry(entry.index)
        if known is not None and known.term == entry.term and known != entry:
            return f"found another entry {entry.index} than was flushed"
    return None


def read_reflects_commits(board: Board, member: Seen, request_id: int, index: int) -> str | None:
    """A read is told an index that covers everything committed before it was asked for."""
    least = board.reads.pop((member.id, request_id), 0)
    return f"may read at {index}, {least} was committed before" if index < least else None


ASKED_INVARIANTS = (
    committed_stays,
    log_matching,
    leader_only_appends,
    repair_ends_whole,
    snapshot_is_committed,
)
APPLIED_INVARIANTS = (applied_in_order, applied_is_committed)
STARTED_INVARIANTS = (restart_forgets_nothing,)
READ_INVARIANTS = (read_reflects_commits,)
