"""Opens all logs of a data directory: from the clean checkpoint, or each from its files.

Owns the order of an opening. It must never let anything be served before it is durable, nor remove
a segment before the mark that allows it is.

    marks ─▶ consume the checkpoint, which is believed of logs that have all their files
      ─▶ open what it does not tell of, a bounded number at a time ─▶ few flush rounds for all
      ─▶ marks made anew ─▶ remove what lies below the logs' starts
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.broker.log.marks.ballast import give_up_ballast
from tidelog.broker.log.marks.file import (
    MarksFile,
    make_marks_file,
    read_marks,
    read_starts,
)
from tidelog.broker.log.marks.marks import NO_MARKS, NO_STAMP, PartitionMarks
from tidelog.broker.log.names import directory_name, parse_directory_name
from tidelog.broker.log.opening import log as logs
from tidelog.broker.log.opening.checkpoint import consume_checkpoint, has_its_files, restore
from tidelog.broker.log.opening.clean_checkpoint import CleanLog
from tidelog.broker.log.opening.holding import hold_readers
from tidelog.broker.log.opening.log import OpenedLog
from tidelog.ports import Disk, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey

OPENINGS_MAX: Final = 16
"""Logs that are opened at once: each may hold a piece of a segment in memory."""
FLUSHED_AT_ONCE_MAX: Final = 1_000
"""Logs in one flush round: it holds two descriptors for each until it ends."""


class OpenedDirectory(msgspec.Struct, kw_only=True):
    """What was found, in the order of what was asked for."""

    logs: dict[PartitionKey, OpenedLog]
    """Without the partitions that have no file and no mark: they are new."""
    marks: MarksFile
    orphans: list[str]
    """Directories of partitions that were not asked for: kept."""
    restored: int = 0
    """Logs that the clean checkpoint told of."""
    checkpoint_damage: TidelogError | None = None
    """Why a checkpoint, or a part of it, was not believed."""


async def open_directory(
    disk: Disk,
    placed: Mapping[PartitionKey, LeaderEpoch],
    *,
    replicated: Collection[PartitionKey] = (),
    are_marks_whole: bool = True,
    epoch: int = NO_STAMP,
) -> OpenedDirectory:
    """Open the partitions placed here, each with its leader epoch; before anything is served.

    Of those in `replicated` there are other replicas: only what was known to be committed is.
    `are_marks_whole` says whether the marks are those that the last life left (`epoch_file`); the
    ones that are made bear the broker epoch as their stamp.
    """
    names = await disk.list()
    known = await read_marks(disk)
    are_marks_whole = are_marks_whole and known is not None
    known = await read_starts(disk) if known is None else known
    clean, damage = await consume_checkpoint(disk, names)
    on_disk = {}
    for name in names:
        key = parse_directory_name(name) if name.endswith("/") else None
        if key is not None:
            on_disk[key] = name
    found: dict[PartitionKey, OpenedLog] = {}
    if are_marks_whole:
        damage = _restore_clean(clean, placed, known, found) or damage
    await _drop_incomplete(disk, found)
    restored = len(found)
    committed = {key: clean[key].committed_offset for key in found}
    longer = {
        key: epoch
        for key, epoch in placed.items()
        if key not in found and (key in on_disk or _tells_of_files(known, key))
    }
    await _open_all(disk, longer, known, found, are_marks_whole=are_marks_whole)
    await _flush(disk, [found[key] for key in longer if key in on_disk])
    for key, each in found.items():
        if key in replicated and each.log.failure is None:
            marked = known.get(key, NO_MARKS).committed_offset
            each.log.hold_back(committed.get(key, marked))
            if key in longer:
                await hold_readers(disk, each.log)
        each.log.begin_committed()
    after = _marks_after(known, found, replicated)
    # What is neither placed here nor has a file was removed: it may come back as something new.
    after = {key: each for key, each in after.items() if key in on_disk or key in placed}
    opened = OpenedDirectory(
        logs={key: found[key] for key in placed if key in found},
        marks=await _made_marks(disk, after, epoch),
        orphans=[name for key, name in on_disk.items() if key not in placed],
        restored=restored,
        checkpoint_damage=damage,
    )
    unserved = {key: each for key, each in known.items() if key in on_disk}
    opened.marks.keep({key: each for key, each in unserved.items() if key not in placed})
    await _remove_below_starts(disk, opened)
    return opened


async def open_at_work(
    disk: Disk,
    key: PartitionKey,
    leader_epoch: LeaderEpoch,
    marks: PartitionMarks,
    *,
    is_replicated: bool,
) -> OpenedLog:
    """Open one partition that nobody serves while the others of the directory are served.

    As at a start: durable before it is served, and nothing goes but a torn tail and what stands for
    nothing. Segments below the log's start are left to whoever serves it.
    """
    has_files = f"{directory_name(key)}/" in await disk.list()
    opened = await logs.open_log(disk, key, leader_epoch, marks)
    if opened.log.failure is not None:
        return opened
    if has_files:
        await _flush(disk, [opened])
    if is_replicated:
        opened.log.hold_back(marks.committed_offset)
        await hold_readers(disk, opened.log)
    opened.log.begin_committed()
    return opened


def _restore_clean(
    clean: Mapping[PartitionKey, CleanLog],
    placed: Mapping[PartitionKey, LeaderEpoch],
    known: Mapping[PartitionKey, PartitionMarks],
    found: dict[PartitionKey, OpenedLog],
) -> TidelogError | None:
    """Take the logs over that the checkpoint tells of; the first that cannot be believed."""
    damage = None
    for key, epoch in placed.items():
        if key not in clean:
            continue
        try:
            log = restore(clean[key], epoch, known.get(key, NO_MARKS))
            if log.segments and log.segments[-1].size_bytes == 0:
                # Whether it has a file is not known: a full disk may have refused to make one.
                continue
        except TidelogError as error:
            damage = damage or error
            continue
        found[key] = OpenedLog(
            log=log,
            files={},
            to_seal=tuple(
                each.key for each in log.segments if each.is_sealed and each.summary is None
            ),
        )
    return damage


async def _drop_incomplete(disk: Disk, found: dict[PartitionKey, OpenedLog]) -> None:
    """What lacks a file is opened as after a crash: that tells which, and stops the partition."""
    waiting = iter(list(found.items()))

    async def look() -> None:
        for key, each in waiting:
            if not await has_its_files(disk, each.log):
                del found[key]

    async with TaskScope() as scope:
        for number in range(min(OPENINGS_MAX, len(found))):
            scope.start(look(), name=f"looking for files {number}")


def _tells_of_files(known: Mapping[PartitionKey, PartitionMarks], key: PartitionKey) -> bool:
    return known.get(key, NO_MARKS) != NO_MARKS


async def _open_all(
    disk: Disk,
    placed: Mapping[PartitionKey, LeaderEpoch],
    known: Mapping[PartitionKey, PartitionMarks],
    found: dict[PartitionKey, OpenedLog],
    *,
    are_marks_whole: bool,
) -> None:
    waiting = iter(placed.items())

    async def open_each() -> None:
        """Take the next one until none is left."""
        for key, epoch in waiting:
            found[key] = await logs.open_log(
                disk, key, epoch, known.get(key, NO_MARKS), are_marks_whole=are_marks_whole
            )

    async with TaskScope() as scope:
        for number in range(min(OPENINGS_MAX, len(placed))):
            scope.start(open_each(), name=f"opening {number}")


async def _flush(disk: Disk, opened: Sequence[OpenedLog]) -> None:
    """What is served after a crash is durable first: a few rounds for all logs.

    So is what is no more there: a segment that a killed process had removed would come back, with
    records that somebody has seen missing.
    """
    usable = [each for each in opened if each.active is not None or each.log.failure is None]
    for start in range(0, len(usable), FLUSHED_AT_ONCE_MAX):
        part = usable[start : start + FLUSHED_AT_ONCE_MAX]
        await disk.flush(
            [each.active for each in part if each.active is not None],
            directories=["", *(directory_name(each.log.key) for each in part)],
        )


async def _made_marks(
    disk: Disk, known: Mapping[PartitionKey, PartitionMarks], epoch: int
) -> MarksFile:
    """On a full disk in the room that was held back: what is opened can be trimmed."""
    try:
        return await make_marks_file(disk, known, epoch=epoch)
    except TidelogError as error:
        if error.code is not ErrorCode.STORAGE_FULL or not await give_up_ballast(disk):
            raise
        return await make_marks_file(disk, known, epoch=epoch)


def _marks_after(
    known: Mapping[PartitionKey, PartitionMarks],
    found: Mapping[PartitionKey, OpenedLog],
    replicated: Collection[PartitionKey],
) -> dict[PartitionKey, PartitionMarks]:
    """What is known to be durable now; of partitions that were not opened as much as before."""
    marks = dict(known)
    for key, each in found.items():
        before = known.get(key, NO_MARKS)
        committed = before.committed_offset
        if each.log.failure is None:
            committed = each.log.high_watermark if key in replicated else 0
        marks[key] = msgspec.structs.replace(
            before, flushed_offset=each.log.flushed_offset, committed_offset=committed
        )
    return marks


async def _remove_below_starts(disk: Disk, opened: OpenedDirectory) -> None:
    """Segments that a trim had given up; a log that has stopped keeps all that it has."""
    for each in opened.logs.values():
        if each.log.failure is not None or not each.to_remove:
            continue
        directory = directory_name(each.log.key)
        names = await disk.list(directory)
        for key in each.to_remove:
            file = each.files.pop(key, None)
            if file is not None:
                await disk.close(file)
            for path in (key.path, key.sidecar_path):
                if path.rpartition("/")[2] in names:
                    await disk.remove(path)
        each.to_remove = ()
