"""What a quorum directory holds, found out without changing a byte: for people who look at it.

Thin I/O around `replay` and `resolve`, as `recovery` is; but it repairs, renames and removes
nothing, and damage is told instead of raised. Only what is not a quorum directory at all, or of
another format version, is refused.
"""

from typing import Final

import msgspec

from tidelog.metadata_quorum.raft.membership import decode_members
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Members,
    Snapshot,
)
from tidelog.metadata_quorum.storage import marks
from tidelog.metadata_quorum.storage.identity import QuorumIdentity, read_identity
from tidelog.metadata_quorum.storage.journal import parse_segment_name
from tidelog.metadata_quorum.storage.marks import FIRST_MARK, Mark, newest_mark
from tidelog.metadata_quorum.storage.replay import FoundSegment, replay
from tidelog.metadata_quorum.storage.resolve import Resolved, is_usable, resolve
from tidelog.metadata_quorum.storage.scan import SegmentScan, scan_segment
from tidelog.metadata_quorum.storage.small_files import read_file
from tidelog.metadata_quorum.storage.snapshot_files import SnapshotFiles
from tidelog.ports import Disk
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

ONLY_AN_EXPORT: Final = (
    "this is the only voter, and neither journal nor snapshot is left to go on from: only a file "
    "of `tidelog metadata export` helps. Move the `quorum` directory away, then `tidelog storage "
    "format --restore FILE`; the records stay"
)
"""Of a lone voter; what cannot be brought back by anything that lies here."""


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """A quorum directory as it was found."""

    identity: QuorumIdentity
    hard_state: HardState
    """With `repair` set if entries are lost that were acknowledged."""
    snapshot: Snapshot | None
    """The newest that is whole and fits the log."""
    first_index: LogIndex
    """The first entry that is here; above `last_index`: none is."""
    last_index: LogIndex
    """The last entry that this member can show."""
    last_term: Term
    members: Members
    """As of the last entry, committed or not."""
    size_bytes: int
    """Of all journal and snapshot files."""
    damage: tuple[str, ...]
    """One sentence each; empty: every byte is as it was written."""
    is_endless: bool = False
    """Nothing tells how much followed the last entry: the node does not start."""

    @property
    def is_alone(self) -> bool:
        """Whether no other member votes, as far as its log tells."""
        return self.members.voters == (self.identity.member_id,)

    @property
    def has_lost(self) -> bool:
        """Whether entries are lost that were acknowledged."""
        return self.is_endless or self.hard_state.repair is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to go on from, neither a snapshot nor an entry."""
        return self.snapshot is None and self.last_index < self.first_index


async def survey(disk: Disk, *, boot_id: str = "") -> Survey:
    """Of a directory that no process has open but this one.

    With the machine's `boot_id` it tells damage from a torn tail as a start of the node does.
    """
    found, _ = await look(disk, boot_id=boot_id)
    return found


async def look(disk: Disk, *, boot_id: str = "") -> tuple[Survey, tuple[Entry, ...]]:
    """The survey, and the entries that it tells of."""
    identity = await read_identity(disk)
    damage: list[str] = []
    mark = await _newest_mark(disk, damage)
    is_marked = not damage
    segments, segment_bytes = await _read_segments(disk, identity, damage)
    boot = marks.boot_tag(boot_id)
    is_same_boot = boot != marks.NO_BOOT and mark.boot == boot
    replayed = replay(segments, mark, where=disk.name, is_same_boot=is_same_boot, is_look=True)
    usable, newest, snapshot_bytes = None, None, 0
    snapshots = SnapshotFiles(disk)
    for snapshot_id in await snapshots.ids():
        try:
            snapshot, _ = await snapshots.load(snapshot_id)
        except TidelogError as error:
            if error.code is not ErrorCode.STORAGE_CORRUPT:
                raise
            damage.append(f"{error.tried.removeprefix('read ')}: {error.happened}")
            continue
        snapshot_bytes += snapshot.size_bytes
        newest = newest or snapshot
        if usable is None and is_usable(replayed, snapshot_id):
            usable = snapshot
    resolved = resolve(replayed, usable, newest)
    members = members_of(identity.bootstrap, resolved)
    if replayed.endless is not None and not damage:
        damage.append(f"{replayed.endless.tried.removeprefix('read ')}: it ends too early")
    found = Survey(
        identity=identity,
        hard_state=resolved.hard_state,
        snapshot=resolved.snapshot,
        first_index=LogIndex(resolved.base_index + 1),
        last_index=LogIndex(resolved.base_index + len(resolved.entries)),
        last_term=resolved.entries[-1].term if resolved.entries else resolved.base_term,
        members=members,
        size_bytes=segment_bytes + snapshot_bytes,
        damage=tuple(damage),
        is_endless=replayed.endless is not None or not is_marked,
    )
    lost = _lost(found)
    return msgspec.structs.replace(found, damage=(*damage, *lost)), resolved.entries


def members_of(bootstrap: Members, resolved: Resolved) -> Members:
    """Who the members are according to the last entry that says so."""
    for entry in reversed(resolved.entries):
        if entry.kind is EntryKind.MEMBERS:
            return decode_members(entry.data)
    return resolved.snapshot.members if resolved.snapshot is not None else bootstrap


async def _newest_mark(disk: Disk, damage: list[str]) -> Mark:
    where = f"{disk.name}/{marks.FILE_NAME}"
    if marks.FILE_NAME not in await disk.list():
        damage.append(f"{where}: the file is not there, a node does not start without it")
        return FIRST_MARK
    data = await read_file(disk, marks.FILE_NAME)
    mark = newest_mark(data)
    if mark is None:
        damage.append(f"{where}: it holds no whole mark, a node does not start without one")
        return FIRST_MARK
    return mark


async def _read_segments(
    disk: Disk, identity: QuorumIdentity, damage: list[str]
) -> tuple[list[FoundSegment], int]:
    found: list[FoundSegment] = []
    names: list[str] = []
    size_bytes = 0
    for name in await disk.list():
        sequences = parse_segment_name(name)
        if sequences is None:
            continue
        data = await read_file(disk, name)
        size_bytes += len(data)
        scan = scan_segment(data, identity.directory_uuid)
        names.append(name)
        found.append(FoundSegment(sequence=sequences[0], previous_sequence=sequences[1], scan=scan))
    for place, (name, segment) in enumerate(zip(names, found, strict=True)):
        if not segment.scan.is_clean:
            told = _told(segment.scan, is_newest=place == len(found) - 1)
            damage.append(f"{disk.name}/{name}: {told}")
    return found, size_bytes


def _told(scan: SegmentScan, *, is_newest: bool) -> str:
    damaged = [block for block in scan.blocks if not (block.is_whole and block.is_sealed)]
    is_torn = is_newest and damaged == list(scan.blocks[-1:])
    if is_torn:
        return "the newest block is not whole: torn by a crash, or damaged"
    return f"{len(damaged)} of {len(scan.blocks)} blocks that can be told apart are damaged"


def _lost(found: Survey) -> list[str]:
    """What the damage has taken, and what brings it back."""
    repair = found.hard_state.repair
    if not found.has_lost:
        return ["no entry is lost by it"] if found.damage else []
    lost = (
        f"entries {found.last_index + 1} and later"
        if repair is None
        else (f"entries {repair.from_index} to {repair.last_index}")
    )
    if found.is_endless:
        lost += ", nothing tells how many,"
    way = "a leader sends them again"
    if found.is_alone and found.is_empty:
        way = ONLY_AN_EXPORT
    elif found.is_alone:
        way = (
            "this is the only voter, nobody sends them again: `tidelog quorum recover --unsafe` "
            "goes on without them"
        )
    elif found.is_endless:
        way = "replace this voter: `tidelog quorum remove-voter`, then format it with --join"
    return [f"{lost} were acknowledged and are lost here; {way}"]
