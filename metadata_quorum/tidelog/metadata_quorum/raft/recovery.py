"""What a core begins with, made of what storage found.

Owns what a crash in the middle of a write leaves behind; see "Durability" in docs/raft.md.
"""

from tidelog.metadata_quorum.raft.log import EntryLog
from tidelog.metadata_quorum.raft.types import NO_INDEX, NO_TERM, HardState, Recovered
from tidelog.wire.ids import Term


def must_reset(recovered: Recovered) -> bool:
    """Whether the log in storage does not lead up to the snapshot: entries appended at its end
    would leave a gap there.
    """
    if recovered.snapshot is None:
        return False
    last_index, repair = recovered.snapshot.last_index, recovered.hard_state.repair
    if repair is not None and repair.from_index <= last_index:
        return True
    entries = recovered.entries
    if not entries or entries[0].index > last_index:
        return False
    place = last_index - entries[0].index
    return place >= len(entries) or entries[place].term != recovered.snapshot.id.term


def hard_state_of(hard_state: HardState, last_term: Term) -> HardState:
    """Entries may have reached the disk without the term that came with them; no vote of that
    term was ever sent, or it would be there.
    """
    if last_term <= hard_state.term:
        return hard_state
    return HardState(term=last_term, repair=hard_state.repair)


def log_of(recovered: Recovered) -> EntryLog:
    """Entries up to a snapshot's end are kept if they lead up to it, and dropped otherwise."""
    entries, snapshot = recovered.entries, recovered.snapshot
    repair = recovered.hard_state.repair
    if repair is not None:
        entries = tuple(entry for entry in entries if entry.index < repair.from_index)
    if snapshot is None:
        return EntryLog(NO_INDEX, NO_TERM, entries)
    if entries and entries[0].index == snapshot.id.end_index:
        return EntryLog(snapshot.last_index, snapshot.id.term, entries)
    assert not entries or entries[0].index < snapshot.id.end_index, (
        f"entries from {snapshot.id.end_index} to {entries[0].index} are missing"
    )
    place = snapshot.last_index - entries[0].index if entries else 0
    if place >= len(entries) or entries[place].term != snapshot.id.term:
        return EntryLog(snapshot.last_index, snapshot.id.term, ())
    # The term before the first entry is not known, so the first one becomes the base.
    return EntryLog(entries[0].index, entries[0].term, entries[1:])
