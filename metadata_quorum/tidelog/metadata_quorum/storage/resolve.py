"""Journal and snapshots together: which entries count, and what has to be fetched again. Pure."""

import msgspec

from tidelog.metadata_quorum.raft.types import Entry, HardState, Repair, Snapshot, SnapshotId
from tidelog.metadata_quorum.storage.plan import Plan
from tidelog.metadata_quorum.storage.replay import Replayed
from tidelog.wire.ids import LogIndex, Term


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What the core begins with, and what the journal has to be told."""

    snapshot: Snapshot | None
    entries: tuple[Entry, ...]
    hard_state: HardState
    base_index: LogIndex
    base_term: Term
    opening: Plan | None
    """To be written before anything else: the journal does not say all this yet."""


def is_usable(replayed: Replayed, snapshot_id: SnapshotId) -> bool:
    """Whether the log goes on from this snapshot. One that was fetched and never put in use may
    lie beyond the log's end, or contradict it.
    """
    last = snapshot_id.end_index - 1
    if not replayed.base_index <= last <= replayed.end_index:
        return False
    place = last - replayed.base_index - 1
    if place < 0:
        return replayed.base_term in (0, snapshot_id.term)
    cell = replayed.cells[place] if place < len(replayed.cells) else None
    return cell is None or cell.term == snapshot_id.term


def resolve(replayed: Replayed, usable: Snapshot | None, newest: Snapshot | None) -> Resolved:
    """`usable`: the newest snapshot that the log goes on from; `newest`: of all whole ones."""
    snapshot = usable
    is_reset = False
    if usable is None and replayed.base_index > 0:
        snapshot = newest
        is_reset = newest is not None and newest.last_index >= replayed.base_index
    last, last_term = (snapshot.last_index, snapshot.id.term) if snapshot else (0, 0)
    base, base_term, cells = replayed.base_index, replayed.base_term, list(replayed.cells)
    damage: int | None = None
    if is_reset or base > last:
        damage = last + 1 if base > last else None
        base, base_term, cells = LogIndex(last), Term(last_term), []
    elif None in cells[: last - base]:
        # What is damaged lies in the snapshot as well.
        cells = cells[last - base :]
        base, base_term = LogIndex(last), Term(last_term)
    if damage is None and None in cells:
        damage = base + 1 + cells.index(None)
    entries = tuple(cell for cell in cells[: cells.index(None) if None in cells else None] if cell)
    end_index = LogIndex(base + len(entries))
    repair = _repair(replayed, damage, end_index)
    hard_state = msgspec.structs.replace(replayed.hard_state, repair=repair)
    is_known = replayed.is_clean and replayed.is_marked and damage is None and not is_reset
    opening = _opening(replayed, base, base_term, entries, hard_state, is_reset=is_reset)
    return Resolved(
        snapshot=snapshot,
        entries=entries,
        hard_state=hard_state,
        base_index=base,
        base_term=base_term,
        opening=None if is_known and hard_state == replayed.hard_state else opening,
    )


def _opening(
    replayed: Replayed,
    base: LogIndex,
    base_term: Term,
    entries: tuple[Entry, ...],
    hard_state: HardState,
    *,
    is_reset: bool,
) -> Plan:
    """The state, and once more the entries of a newest block that no mark covers. If its flush
    failed, the page cache shows it and calls it clean, but the disk may not have it: another flush
    would say nothing (docs/adr/0011-quorum-storage.md).
    """
    count = len(entries)
    if not replayed.is_marked:
        count = min(count, max(0, replayed.from_index - 1 - base))
    return Plan(
        from_index=LogIndex(base + count + 1),
        previous_term=entries[count - 1].term if count else base_term,
        is_reset=is_reset,
        entries=entries[count:],
        hard_state=hard_state,
    )


def _repair(replayed: Replayed, damage: int | None, end_index: LogIndex) -> Repair | None:
    """What is damaged now, and what is left of an earlier repair."""
    earlier = replayed.hard_state.repair
    if damage is not None:
        return Repair(
            from_index=LogIndex(damage),
            last_index=LogIndex(max(replayed.end_index, earlier.last_index if earlier else 0)),
            last_term=Term(max(replayed.end_term, earlier.last_term if earlier else 0)),
        )
    if earlier is None or end_index >= earlier.last_index:
        return None
    return msgspec.structs.replace(earlier, from_index=LogIndex(end_index + 1))
