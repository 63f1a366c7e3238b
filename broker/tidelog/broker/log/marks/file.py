"""The files of marks: read at the start, appended to with each write, made anew when long.

Thin I/O around `log.marks`. It must never hold a FLUSHED mark above what was flushed, nor be
replaced by a file that knows less than it did.

A FLUSHED mark that rots away only makes the next start more careful. Where a log begins, and from
where on it may have gaps, nothing else tells: those marks stand in a second file as well, written
in the same turn, flushed in the same round. Of both files the higher start counts, with the epoch
that moved it; of the same start the one that knows its epoch.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.broker.log.marks.marks import (
    ENTRY_BYTES,
    NO_MARKS,
    NO_STAMP,
    Mark,
    MarkKind,
    PartitionMarks,
    decode_marks,
    encode_marks,
    marks_of,
    stamp,
    stamped_epoch,
)
from tidelog.ports import Append, Disk, File
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey

NAME: Final = "marks"
NEW_NAME: Final = "marks.new"
STARTS_NAME: Final = "starts"
"""Marks of the kinds in `TWICE` once more; a directory of which it is gone has `marks` still."""
NEW_STARTS_NAME: Final = "starts.new"
TWICE: Final = (MarkKind.LOG_START_EPOCH, MarkKind.LOG_START, MarkKind.GAPS)
SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Beyond this, and four times what one entry of each kind for each partition takes, the file is
made anew."""

_READ_BYTES: Final = 4 * 1024 * 1024
_READ_ENTRY_BYTES: Final = _READ_BYTES // ENTRY_BYTES * ENTRY_BYTES


async def read_marks(disk: Disk) -> Mapping[PartitionKey, PartitionMarks] | None:
    """What the last life knew to be durable; None if there is no such file."""
    names = await disk.list()
    if NAME not in names:
        return None
    known = dict(await _read(disk, NAME))
    if STARTS_NAME in names:
        for key, starts in (await _read(disk, STARTS_NAME)).items():
            known[key] = _merged(known.get(key, NO_MARKS), starts)
    return known


async def read_starts(disk: Disk) -> Mapping[PartitionKey, PartitionMarks]:
    """What the second file tells, of a directory in which `marks` is gone."""
    return await _read(disk, STARTS_NAME) if STARTS_NAME in await disk.list() else {}


async def read_stamp(disk: Disk) -> int:
    """Under which broker epoch `marks` was made; `NO_STAMP` if it is damaged or was never told."""
    return stamped_epoch(await _read_bytes(disk, NAME))


async def _read(disk: Disk, name: str) -> Mapping[PartitionKey, PartitionMarks]:
    return decode_marks(await _read_bytes(disk, name))


async def _read_bytes(disk: Disk, name: str) -> bytes:
    file = await disk.open(name)
    pieces = [
        await disk.read(file, position, _READ_ENTRY_BYTES)
        for position in range(0, file.size_bytes, _READ_ENTRY_BYTES)
    ]
    await disk.close(file)
    return b"".join(pieces)


def _merged(marks: PartitionMarks, starts: PartitionMarks) -> PartitionMarks:
    """A mark that one of the files has lost stands in the other."""
    gaps = [each.gaps_from for each in (marks, starts) if each.gaps_from >= 0]
    start, start_epoch = max(
        (each.log_start_offset, each.log_start_epoch) for each in (marks, starts)
    )
    return PartitionMarks(
        flushed_offset=marks.flushed_offset,
        committed_offset=marks.committed_offset,
        log_start_offset=start,
        log_start_epoch=start_epoch,
        gaps_from=min(gaps, default=-1),
    )


class MarksFile:
    """The open file; `append` goes into the same turn of the writer as the batches."""

    def __init__(
        self,
        disk: Disk,
        file: File,
        starts: File,
        known: Mapping[PartitionKey, PartitionMarks],
        *,
        size_bytes_max: int,
        epoch: int = NO_STAMP,
    ) -> None:
        self._disk = disk
        self._epoch = epoch
        self._size_bytes_max = size_bytes_max
        self._partition_count = len(known)
        self._unserved: dict[PartitionKey, PartitionMarks] = {}
        self._size_bytes = file.size_bytes
        self._starts_bytes = starts.size_bytes
        self._are_starts_unflushed = False
        self.file = file
        self.starts = starts

    @property
    def is_long(self) -> bool:
        """Whether it should be made anew."""
        all_kinds = ENTRY_BYTES * len(MarkKind) * self._partition_count
        return self._size_bytes > max(self._size_bytes_max, 4 * all_kinds)

    def keep(self, unserved: Mapping[PartitionKey, PartitionMarks]) -> None:
        """What is known of partitions that lie here and are not served: nobody else tells it."""
        self._unserved = dict(unserved)

    def keep_one(self, key: PartitionKey, marks: PartitionMarks) -> None:
        """The partition is served no more, and its files stay."""
        self._unserved[key] = marks

    def unserved(self, key: PartitionKey) -> PartitionMarks:
        """What is known of a partition that is not served."""
        return self._unserved.get(key, NO_MARKS)

    def note_served(self, key: PartitionKey) -> None:
        """The partition is served: from now on its log tells what is known of it."""
        self._unserved.pop(key, None)

    def append(self, marks: Sequence[Mark]) -> list[Append]:
        """What to write."""
        appends = [Append(self.file, [encode_marks(marks)])]
        twice = [mark for mark in marks if mark.kind in TWICE]
        if twice:
            appends.append(Append(self.starts, [encode_marks(twice)]))
        return appends

    def take_in(self) -> None:
        """What was to be written is, whole."""
        self._size_bytes = self.file.size_bytes
        if self.starts.size_bytes != self._starts_bytes:
            self._starts_bytes = self.starts.size_bytes
            self._are_starts_unflushed = True

    def to_flush(self) -> list[File]:
        """The files that a flush round has to cover; a round that fails is the last one."""
        files = [self.file, self.starts] if self._are_starts_unflushed else [self.file]
        self._are_starts_unflushed = False
        return files

    async def made_anew(self, known: Mapping[PartitionKey, PartitionMarks]) -> "MarksFile":
        """Short files in place of these, which stay open."""
        made = await make_marks_file(
            self._disk,
            {**self._unserved, **known},
            size_bytes_max=self._size_bytes_max,
            epoch=self._epoch,
        )
        made._unserved = self._unserved
        return made

    async def cut_back(self) -> None:
        """The append failed: entries stand at multiples of their size, and a file that an append
        failed on takes no other before it is cut, if only to the length that it has.
        """
        await self._disk.truncate(self.file, self._size_bytes)
        await self._disk.truncate(self.starts, self._starts_bytes)

    async def close(self) -> None:
        """Give the descriptors back."""
        await self._disk.close(self.file)
        await self._disk.close(self.starts)


async def make_marks_file(
    disk: Disk,
    known: Mapping[PartitionKey, PartitionMarks],
    *,
    size_bytes_max: int = SIZE_BYTES_MAX,
    epoch: int = NO_STAMP,
) -> MarksFile:
    """New files with all that is known, in place of the old ones, stamped with the broker epoch."""
    names = await disk.list()
    for name in (NEW_NAME, NEW_STARTS_NAME):
        if name in names:
            await disk.remove(name)
    marks = [mark for key, each in known.items() for mark in marks_of(key, each)]
    stamps = [] if epoch == NO_STAMP else [stamp(epoch)]
    made = [
        (await disk.open(NEW_NAME, create=True), [*marks, *stamps]),
        (
            await disk.open(NEW_STARTS_NAME, create=True),
            [mark for mark in marks if mark.kind in TWICE],
        ),
    ]
    files = [file for file, _ in made]
    try:
        appends = [Append(file, [encode_marks(each)]) for file, each in made if each]
        if appends:
            await disk.append(appends)
        await disk.flush(files, directories=[""])
        # A start that only one of the files knows counts: the order does not matter.
        await disk.rename(NEW_STARTS_NAME, STARTS_NAME)
        await disk.rename(NEW_NAME, NAME)
        await disk.flush([], directories=[""])
    except TidelogError:
        # A full disk is tried again: without this each try would keep descriptors.
        for file in files:
            await disk.close(file)
        raise
    main, starts = files
    return MarksFile(disk, main, starts, known, size_bytes_max=size_bytes_max, epoch=epoch)
