"""The entries in memory, from the log's start on; what lies before them is in a snapshot.

Owns positions and terms of entries. It must never know what is flushed or committed: those
pointers belong to `persistence` and `node`.
"""

from bisect import bisect_right
from collections.abc import Sequence

from tidelog.metadata_quorum.raft.types import Entry
from tidelog.wire.ids import LogIndex, Term


def _term_of(entry: Entry) -> Term:
    return entry.term


class EntryLog:
    """Entries `base_index` + 1 to `last_index`; of the base only its term is known."""

    def __init__(self, base_index: LogIndex, base_term: Term, entries: Sequence[Entry]) -> None:
        self.base_index = base_index
        self.base_term = base_term
        self._entries: list[Entry] = []
        self.append(entries)

    @property
    def first_index(self) -> LogIndex:
        """Where the log starts, whether an entry is there already or not."""
        return LogIndex(self.base_index + 1)

    @property
    def last_index(self) -> LogIndex:
        """The last entry's, or the base's if there is none."""
        return LogIndex(self.base_index + len(self._entries))

    @property
    def last_term(self) -> Term:
        """The last entry's, or the base's if there is none."""
        return self._entries[-1].term if self._entries else self.base_term

    def term_at(self, index: int) -> Term | None:
        """None: before the base, or after the end."""
        place = index - self.base_index - 1
        if 0 <= place < len(self._entries):
            return self._entries[place].term
        return self.base_term if place == -1 else None

    def append(self, entries: Sequence[Entry]) -> None:
        """At the end; indexes go on without a gap, terms never fall."""
        index, term = self.last_index, self.last_term
        for entry in entries:
            assert entry.index == index + 1, f"entry {entry.index} does not follow {index}"
            assert entry.term >= term, f"the term falls from {term} at entry {entry.index}"
            index, term = entry.index, entry.term
        self._entries.extend(entries)

    def truncate_from(self, index: LogIndex) -> None:
        """Drop this entry and all after it."""
        assert self.base_index < index <= self.last_index, f"no entry {index} to truncate from"
        del self._entries[index - self.base_index - 1 :]

    def trim(self, first_index: LogIndex) -> None:
        """Drop everything before this entry."""
        assert self.base_index < first_index <= self.last_index + 1, f"cannot trim to {first_index}"
        term = self.term_at(first_index - 1)
        assert term is not None, "the new base is an entry that is there"
        del self._entries[: first_index - self.base_index - 1]
        self.base_index, self.base_term = LogIndex(first_index - 1), term

    def reset(self, base_index: LogIndex, base_term: Term) -> None:
        """Drop everything: a snapshot that ends at the base takes its place."""
        self._entries.clear()
        self.base_index, self.base_term = base_index, base_term

    def between(self, first: int, last: int) -> tuple[Entry, ...]:
        """Both included."""
        assert self.base_index < first, f"entry {first} is before the log's start"
        assert last <= self.last_index, f"entry {last} is beyond {self.last_index}"
        return tuple(self._entries[first - self.base_index - 1 : last - self.base_index])

    def batch(self, first: int, bytes_max: int, entries_max: int) -> tuple[Entry, ...]:
        """From `first` on as many as the caps allow, but one at least if there is one."""
        place = first - self.base_index - 1
        assert place >= 0, f"entry {first} is before the log's start"
        end = min(place + entries_max, len(self._entries))
        size = 0
        for position in range(place, end):
            size += len(self._entries[position].data)
            if size > bytes_max and position > place:
                end = position
                break
        return tuple(self._entries[place:end])

    def last_up_to(self, index: int, term: Term) -> LogIndex:
        """The last place up to `index` whose term is at most `term`; before the base if even that
        has a later one.

        Terms never fall along a log: beyond this place it cannot agree with a log whose entry at
        `index` has this term. A base that was taken for common ground would be asked for again and
        again; the place before it is not in the log, so that a leader offers its snapshot.
        """
        if self.base_term > term:
            return LogIndex(min(index, self.base_index - 1))
        return LogIndex(
            min(index, self.base_index + bisect_right(self._entries, term, key=_term_of))
        )
