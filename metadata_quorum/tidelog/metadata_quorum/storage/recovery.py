"""Opens a quorum directory: reads everything, decides what counts, makes that durable.

Thin I/O around `replay` and `resolve`. It cuts nothing and deletes nothing except files that a
crash left half written; damaged segments stay, damaged snapshots are renamed.
"""

import re
from typing import Final

import msgspec

from tidelog.metadata_quorum.raft.bounds import NUMBER_MAX
from tidelog.metadata_quorum.raft.types import Recovered, Snapshot
from tidelog.metadata_quorum.storage import identity as identity_module
from tidelog.metadata_quorum.storage import marks
from tidelog.metadata_quorum.storage.errors import corrupt
from tidelog.metadata_quorum.storage.identity import QuorumIdentity
from tidelog.metadata_quorum.storage.journal import (
    Journal,
    Segment,
    parse_segment_name,
    segment_name,
    state_after,
)
from tidelog.metadata_quorum.storage.marks_file import MarksFile, open_marks
from tidelog.metadata_quorum.storage.replay import FoundSegment, Replayed, replay
from tidelog.metadata_quorum.storage.resolve import Resolved, is_usable, resolve
from tidelog.metadata_quorum.storage.scan import scan_segment
from tidelog.metadata_quorum.storage.small_files import read_file
from tidelog.metadata_quorum.storage.snapshot_files import SnapshotFiles
from tidelog.metadata_quorum.storage.terms import Terms
from tidelog.ports import Disk, File
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex

_STALE: Final = re.compile(
    rf"({re.escape(identity_module.FILE_NAME)}|{marks.FILE_NAME}|snapshot-\d{{20}}-\d{{20}})\.new"
)


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the storage goes on with."""

    recovered: Recovered
    journal: Journal
    marks_file: MarksFile
    snapshots: SnapshotFiles


async def recover(
    disk: Disk, identity: QuorumIdentity, segment_bytes_max: int, boot_id: str = ""
) -> Opened:
    """Of a directory whose identity was found right."""
    boot = marks.boot_tag(boot_id)
    await _remove_stale(disk)
    marks_file = await open_marks(disk)
    segments = await _read_segments(disk, identity.directory_uuid)
    active = await _flush_what_was_written(disk, marks_file, segments)
    is_same_boot = boot != marks.NO_BOOT and marks_file.newest.boot == boot
    replayed = replay(segments, marks_file.newest, where=disk.name, is_same_boot=is_same_boot)
    snapshots = SnapshotFiles(disk)
    resolved = await _resolve(snapshots, replayed)
    _check_bounds(resolved, disk.name)
    journal = _journal(
        disk,
        identity.directory_uuid,
        resolved,
        replayed,
        segments,
        active if replayed.is_clean else None,
        marks_file,
        segment_bytes_max,
        boot,
    )
    if not replayed.is_clean and active is not None:
        await disk.close(active)
    await _write_opening(journal, marks_file, resolved, replayed)
    recovered = Recovered(
        hard_state=resolved.hard_state,
        snapshot=resolved.snapshot,
        bootstrap=identity.bootstrap,
        entries=resolved.entries,
    )
    return Opened(recovered=recovered, journal=journal, marks_file=marks_file, snapshots=snapshots)


async def _remove_stale(disk: Disk) -> None:
    for name in await disk.list():
        if _STALE.fullmatch(name):
            await disk.remove(name)


async def _read_segments(disk: Disk, salt: bytes) -> list[FoundSegment]:
    segments = []
    for name in await disk.list():
        sequences = parse_segment_name(name)
        if sequences is not None:
            scan = scan_segment(await read_file(disk, name), salt)
            segments.append(
                FoundSegment(sequence=sequences[0], previous_sequence=sequences[1], scan=scan)
            )
    return segments


async def _flush_what_was_written(
    disk: Disk, marks_file: MarksFile, segments: list[FoundSegment]
) -> File | None:
    """What a killed process had written may sit in the page cache only."""
    if not segments:
        return None
    newest = segments[-1]
    active = await disk.open(segment_name(newest.sequence, newest.previous_sequence))
    await disk.flush([active, marks_file.file], directories=[""])
    return active


async def _resolve(snapshots: SnapshotFiles, replayed: Replayed) -> Resolved:
    newest: Snapshot | None = None
    for snapshot_id in await snapshots.ids():
        try:
            snapshot, _ = await snapshots.load(snapshot_id)
        except TidelogError as error:
            if error.code is not ErrorCode.STORAGE_CORRUPT:
                raise
            await snapshots.set_aside(snapshot_id)
            continue
        if is_usable(replayed, snapshot_id):
            return resolve(replayed, snapshot, newest or snapshot)
        newest = newest or snapshot
    return resolve(replayed, None, newest)


def _check_bounds(resolved: Resolved, where: str) -> None:
    """Numbers that no member would have taken: nothing could be added to them any more."""
    state, snapshot = resolved.hard_state, resolved.snapshot
    found = {
        "term": state.term,
        "end of the log": resolved.base_index + len(resolved.entries),
        "last term of the log": resolved.entries[-1].term if resolved.entries else 0,
        "end of the snapshot": snapshot.id.end_index if snapshot else 0,
        "term of the snapshot": snapshot.id.term if snapshot else 0,
        "end of the repair": state.repair.last_index if state.repair else 0,
        "term of the repair": state.repair.last_term if state.repair else 0,
    }
    for name, number in found.items():
        if number > NUMBER_MAX:
            raise corrupt(
                where,
                f"the {name} is {number}, above the largest possible, {NUMBER_MAX}: an earlier "
                "release took it from a forged message",
                hint='Nothing was written. See "The terms are spent" in docs/operations.md.',
            )


def _journal(
    disk: Disk,
    salt: bytes,
    resolved: Resolved,
    replayed: Replayed,
    found: list[FoundSegment],
    active: File | None,
    marks_file: MarksFile,
    segment_bytes_max: int,
    boot: bytes,
) -> Journal:
    terms = Terms(resolved.base_index, resolved.base_term)
    for entry in resolved.entries:
        terms.append(entry.index, entry.term)
    state = state_after(terms, replayed.hard_state, replayed.sequence, marks_file.newest)
    segments = [_segment(each) for each in found]
    return Journal(
        disk,
        salt=salt,
        terms=terms,
        newest=state,
        marked=marks_file.newest,
        previous_from_index=replayed.from_index or LogIndex(1),
        is_after_reset=replayed.is_reset,
        next_sequence=replayed.sequence_max + 1,
        segments=segments,
        active=active,
        segment_bytes_max=segment_bytes_max,
        boot=boot,
    )


def _segment(found: FoundSegment) -> Segment:
    first = found.scan.blocks[0].head if found.scan.blocks else None
    is_known = first is not None and first.sequence == found.sequence
    return Segment(
        sequence=found.sequence,
        previous_sequence=found.previous_sequence,
        first_from_index=first.from_index if first is not None and is_known else None,
        is_damaged=not found.scan.is_clean,
    )


async def _write_opening(
    journal: Journal, marks_file: MarksFile, resolved: Resolved, replayed: Replayed
) -> None:
    """What this start has judged becomes durable.

    A state that only a torn block tells is marked first: that block is passed over now. That mark
    keeps the boot it was found in: until the opening is there, the newest block may look torn to
    the next start, and must not be taken for one that was written whole in this boot.
    """
    found = marks_file.newest
    if resolved.opening is not None:
        is_mark_ahead = found.sequence > replayed.sequence
        if not is_mark_ahead and found.hard_state != replayed.hard_state:
            mark = journal.mark()
            assert mark is not None, "the state is new"
            mark = msgspec.structs.replace(mark, boot=found.boot)
            await marks_file.write(mark)
            journal.marked(mark)
        await journal.write(resolved.opening)
    mark = journal.mark()
    if mark is not None:
        await marks_file.write(mark)
        journal.marked(mark)
