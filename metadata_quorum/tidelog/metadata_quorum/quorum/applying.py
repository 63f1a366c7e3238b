"""Committed entries on their way into the state machine, in order and in bounded slices.

Owns the state machine's only writer, the committed entries that others may read, and the count
that tells when a snapshot is due. It must never apply an entry twice or out of order.
"""

from collections import deque
from collections.abc import Callable, Sequence

from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.port import StateMachine
from tidelog.metadata_quorum.raft.types import (
    NO_INDEX,
    NO_TERM,
    Entry,
    EntryKind,
    Members,
    Recovered,
    Snapshot,
)
from tidelog.wire.ids import LogIndex, Term

ENTRY_OVERHEAD_BYTES = 64
"""What an entry costs beside its data."""


class Applying:
    """Used by the runner's task only; others read."""

    def __init__(
        self,
        state_machine: StateMachine,
        limits: QuorumLimits,
        recovered: Recovered,
        *,
        read_members: Callable[[bytes], Members],
        on_applied: Callable[[tuple[Entry, ...]], None],
    ) -> None:
        self._state_machine = state_machine
        self._limits = limits
        self._read_members = read_members
        self._on_applied = on_applied
        self._backlog: deque[Entry] = deque()
        self._entries: list[Entry] = []
        """Applied ones that the log still holds."""
        snapshot = recovered.snapshot
        self.applied_index = NO_INDEX if snapshot is None else snapshot.last_index
        self.applied_term: Term = NO_TERM if snapshot is None else snapshot.id.term
        self.members = recovered.bootstrap if snapshot is None else snapshot.members
        """In force at `applied_index`."""
        self.has_state = snapshot is not None
        """Whether a command was ever applied."""
        self.entries_since_snapshot = 0
        self.bytes_since_snapshot = 0
        covered = [each for each in recovered.entries if each.index <= self.applied_index]
        if covered and (covered[-1].index, covered[-1].term) == self.applied:
            self._entries.extend(covered)

    @property
    def applied(self) -> tuple[LogIndex, Term]:
        """The last entry that the state machine holds."""
        return self.applied_index, self.applied_term

    @property
    def has_backlog(self) -> bool:
        """Whether `go_on` has something to do."""
        return bool(self._backlog)

    @property
    def is_snapshot_due(self) -> bool:
        """Whether enough was applied since the last one; a state without commands needs none."""
        return self.has_state and (
            self.entries_since_snapshot >= self._limits.snapshot_after_entries
            or self.bytes_since_snapshot >= self._limits.snapshot_after_bytes
        )

    def add(self, entries: tuple[Entry, ...]) -> None:
        """An Apply effect; `go_on` does the work."""
        last = self._backlog[-1].index if self._backlog else self.applied_index
        assert entries, "an Apply holds at least one entry"
        assert entries[0].index == last + 1, (
            f"entries are applied in order: {entries[0].index} comes after {last}"
        )
        self._backlog.extend(entries)

    def go_on(self) -> None:
        """Apply a slice of what is there."""
        if not self._backlog:
            return
        taken: list[Entry] = []
        size_bytes = 0
        while self._backlog and len(taken) < self._limits.apply_entries_max:
            if taken and size_bytes >= self._limits.apply_bytes_max:
                break
            entry = self._backlog.popleft()
            taken.append(entry)
            size_bytes += len(entry.data) + ENTRY_OVERHEAD_BYTES
        entries = tuple(taken)
        self._state_machine.apply(entries)
        self._count(entries, size_bytes)
        self._on_applied(entries)

    def restore(self, snapshot: Snapshot, state: Sequence[bytes]) -> None:
        """A snapshot took the place of the whole log: a leader's, or this node's at the start."""
        assert snapshot.last_index >= self.applied_index, (
            f"a snapshot up to {snapshot.last_index} would take back what is applied "
            f"up to {self.applied_index}"
        )
        self._backlog.clear()
        self._entries.clear()
        self._state_machine.restore(snapshot, state)
        self.applied_index = snapshot.last_index
        self.applied_term = snapshot.id.term
        self.members = snapshot.members
        self.has_state = True
        self.start_count()

    def start_count(self) -> None:
        """A snapshot of what is applied now is there or being made."""
        self.entries_since_snapshot = 0
        self.bytes_since_snapshot = 0

    def owe_snapshot(self) -> None:
        """The one that was begun has failed, or the newest is lost: the next is due at once."""
        self.entries_since_snapshot = self._limits.snapshot_after_entries

    def trim(self, first_index: LogIndex) -> None:
        """The log does not hold what is before any more."""
        if self._entries and self._entries[0].index < first_index:
            del self._entries[: first_index - self._entries[0].index]

    def committed_entries(self, first_index: LogIndex, bytes_max: int) -> Sequence[Entry] | None:
        """See `Quorum`."""
        assert first_index > 0, "the first entry has index 1"
        if first_index > self.applied_index:
            return ()
        if not self._entries or first_index < self._entries[0].index:
            return None
        found: list[Entry] = []
        size_bytes = 0
        place = first_index - self._entries[0].index
        while place < len(self._entries):
            entry = self._entries[place]
            size_bytes += len(entry.data) + ENTRY_OVERHEAD_BYTES
            if found and size_bytes > bytes_max:
                break
            found.append(entry)
            place += 1
        return found

    def _count(self, entries: tuple[Entry, ...], size_bytes: int) -> None:
        self._entries.extend(entries)
        self.applied_index = entries[-1].index
        self.applied_term = entries[-1].term
        self.entries_since_snapshot += len(entries)
        self.bytes_since_snapshot += size_bytes
        for entry in entries:
            if entry.kind is EntryKind.COMMAND:
                self.has_state = True
            elif entry.kind is EntryKind.MEMBERS:
                self.members = self._read_members(entry.data)
