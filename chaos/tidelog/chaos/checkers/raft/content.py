"""What a member's storage holds, as plain values: term and vote, entries, the newest snapshot.

The simulator keeps two for each member: what the core has asked for, and what is flushed. It must
never be kept by the core or the storage under test, because it is what they are judged by.
"""

from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.types import Entry, HardState, Members, Snapshot
from tidelog.wire.ids import LogIndex, Term


class Content:
    """Entries from `first_index` on, without a gap."""

    __slots__ = ("entries", "first_index", "hard_state", "last_index", "snapshot")

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.snapshot: Snapshot | None = None
        self.first_index = 1
        self.entries: list[Entry] = []
        self.last_index = 0
        """Of an entry, or of the snapshot if there is none behind it."""

    def perform(self, effect: Persist | ResetLog) -> None:
        """In the order that the effect prescribes."""
        if isinstance(effect, ResetLog):
            self.snapshot = effect.snapshot
            self.entries = []
            self.first_index = effect.snapshot.id.end_index
            self.last_index = self.first_index - 1
            self.hard_state = effect.hard_state
            return
        if effect.truncate_from is not None:
            self.truncate(effect.truncate_from)
        if effect.entries:
            self.append(effect.entries)
        if effect.hard_state is not None:
            self.hard_state = effect.hard_state

    def truncate(self, index: int) -> None:
        """Cut from this index on."""
        del self.entries[max(0, index - self.first_index) :]
        self.last_index = self.first_index + len(self.entries) - 1

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Behind the last one."""
        self.entries += entries
        self.last_index = self.first_index + len(self.entries) - 1

    def trim(self, first_index: int) -> None:
        """Entries before this one are gone."""
        count = min(first_index - self.first_index, len(self.entries))
        if count > 0:
            del self.entries[:count]
            self.first_index += count

    def entry(self, index: int) -> Entry | None:
        """None: trimmed, or not there yet."""
        place = index - self.first_index
        return self.entries[place] if 0 <= place < len(self.entries) else None

    def term_at(self, index: int) -> Term | None:
        """Of an entry, or of the last one in the snapshot; None: neither."""
        place = index - self.first_index
        if 0 <= place < len(self.entries):
            return self.entries[place].term
        if index == 0:
            return Term(0)
        if self.snapshot is not None and index == self.snapshot.last_index:
            return self.snapshot.id.term
        return None

    @property
    def last_term(self) -> Term:
        """The term of the last entry, 0 if there is none."""
        if self.entries:
            return self.entries[-1].term
        return Term(0) if self.snapshot is None else self.snapshot.id.term

    def promised_last(self) -> tuple[Term, LogIndex]:
        """By what votes are judged: the last entry that it ever had."""
        repair = self.hard_state.repair
        mine = (self.last_term, LogIndex(self.last_index))
        return mine if repair is None else max(mine, (repair.last_term, repair.last_index))

    def holds(self, index: int, term: int) -> bool:
        """Whether the entry is here, or in the snapshot, or was and is being repaired."""
        if self.snapshot is not None and index <= self.snapshot.last_index:
            return True
        if self.term_at(index) == term:
            return True
        repair = self.hard_state.repair
        return repair is not None and repair.from_index <= index <= repair.last_index

    def copy(self) -> "Content":
        """Another one of the same content; entries are immutable and shared."""
        other = Content()
        other.hard_state = self.hard_state
        other.snapshot = self.snapshot
        other.first_index = self.first_index
        other.entries = list(self.entries)
        other.last_index = self.last_index
        return other


def members_of(content: Content, bootstrap: Members) -> Members:
    """In force at the snapshot's end, or at the very beginning."""
    return bootstrap if content.snapshot is None else content.snapshot.members
