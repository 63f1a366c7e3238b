"""Many effects as one block: what remains of them when they are done in order. Pure."""

from collections.abc import Sequence

import msgspec

from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.types import Entry, HardState
from tidelog.metadata_quorum.storage.terms import Terms
from tidelog.wire.ids import LogIndex, Term


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Cut the log from `from_index` on, or begin it there anew; then append; then this state."""

    from_index: LogIndex
    previous_term: Term
    is_reset: bool
    entries: tuple[Entry, ...]
    hard_state: HardState

    @property
    def end_index(self) -> LogIndex:
        """The log's last entry afterwards."""
        return LogIndex(self.from_index - 1 + len(self.entries))

    @property
    def end_term(self) -> Term:
        """That entry's term."""
        return self.entries[-1].term if self.entries else self.previous_term


def plan(effects: Sequence[Persist | ResetLog], terms: Terms, hard_state: HardState) -> Plan:
    """All of them, in order, on a log of these terms with this hard state."""
    from_index = LogIndex(terms.end_index + 1)
    previous_term = terms.end_term
    is_reset = False
    entries: list[Entry] = []
    for effect in effects:
        hard_state = effect.hard_state or hard_state
        if isinstance(effect, ResetLog):
            from_index, previous_term = effect.snapshot.id.end_index, effect.snapshot.id.term
            is_reset = True
            entries.clear()
            continue
        cut = effect.truncate_from
        if cut is not None and cut < from_index:
            assert not is_reset, f"entry {cut} is part of the snapshot"
            from_index, previous_term = cut, terms.term_at(LogIndex(cut - 1))
            entries.clear()
        elif cut is not None:
            del entries[cut - from_index :]
        for entry in effect.entries:
            expected = from_index + len(entries)
            assert entry.index == expected, f"entry {entry.index} stands where {expected} belongs"
            entries.append(entry)
    return Plan(
        from_index=from_index,
        previous_term=previous_term,
        is_reset=is_reset,
        entries=tuple(entries),
        hard_state=hard_state,
    )
