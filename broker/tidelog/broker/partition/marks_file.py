"""The file of marks: read at the start, appended to with each write, made anew when long.

Thin I/O around `log.marks`. It must never hold a FLUSHED mark above what was flushed, nor be
replaced by a file that knows less than it did.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.broker.log.marks import (
    ENTRY_BYTES,
    Mark,
    MarkKind,
    PartitionMarks,
    decode_marks,
    encode_marks,
    marks_of,
)
from tidelog.broker.log.names import PartitionKey
from tidelog.ports import Append, Disk, File
from tidelog.wire.errors import TidelogError

NAME: Final = "marks"
NEW_NAME: Final = "marks.new"
SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Beyond this, and four times what one entry of each kind for each partition takes, the file is
made anew."""

_READ_BYTES: Final = 4 * 1024 * 1024
_READ_ENTRY_BYTES: Final = _READ_BYTES // ENTRY_BYTES * ENTRY_BYTES


async def read_marks(disk: Disk) -> Mapping[PartitionKey, PartitionMarks] | None:
    """What the last life knew to be durable; None if there is no such file."""
    if NAME not in await disk.list():
        return None
    file = await disk.open(NAME)
    pieces = [
        await disk.read(file, position, _READ_ENTRY_BYTES)
        for position in range(0, file.size_bytes, _READ_ENTRY_BYTES)
    ]
    await disk.close(file)
    return decode_marks(b"".join(pieces))


class MarksFile:
    """The open file; `append` goes into the same turn of the writer as the batches."""

    def __init__(
        self,
        disk: Disk,
        file: File,
        known: Mapping[PartitionKey, PartitionMarks],
        *,
        size_bytes_max: int,
    ) -> None:
        self._disk = disk
        self._size_bytes_max = size_bytes_max
        self._partition_count = len(known)
        self._unserved: Mapping[PartitionKey, PartitionMarks] = {}
        self._size_bytes = file.size_bytes
        self.file = file

    @property
    def is_long(self) -> bool:
        """Whether it should be made anew."""
        all_kinds = ENTRY_BYTES * len(MarkKind) * self._partition_count
        return self._size_bytes > max(self._size_bytes_max, 4 * all_kinds)

    def keep(self, unserved: Mapping[PartitionKey, PartitionMarks]) -> None:
        """What is known of partitions that lie here and are not served: nobody else tells it."""
        self._unserved = unserved

    def append(self, marks: Iterable[Mark]) -> Append:
        """The append to write."""
        return Append(self.file, [encode_marks(marks)])

    def take_in(self) -> None:
        """The append was written whole."""
        self._size_bytes = self.file.size_bytes

    async def made_anew(self, known: Mapping[PartitionKey, PartitionMarks]) -> "MarksFile":
        """A short file in place of this one, which stays open."""
        made = await make_marks_file(
            self._disk, {**self._unserved, **known}, size_bytes_max=self._size_bytes_max
        )
        made.keep(self._unserved)
        return made

    async def cut_back(self) -> None:
        """The append failed: entries stand at multiples of their size, and a file that an append
        failed on takes no other before it is cut, if only to the length that it has.
        """
        await self._disk.truncate(self.file, self._size_bytes)


async def make_marks_file(
    disk: Disk,
    known: Mapping[PartitionKey, PartitionMarks],
    *,
    size_bytes_max: int = SIZE_BYTES_MAX,
) -> MarksFile:
    """A new file with all that is known, in place of the old one."""
    if NEW_NAME in await disk.list():
        await disk.remove(NEW_NAME)
    entries = encode_marks(mark for key, each in known.items() for mark in marks_of(key, each))
    file = await disk.open(NEW_NAME, create=True)
    try:
        if entries:
            await disk.append([Append(file, [entries])])
        await disk.flush([file], directories=[""])
        await disk.rename(NEW_NAME, NAME)
        await disk.flush([], directories=[""])
    except TidelogError:
        # A full disk is tried again: without this each try would keep a descriptor.
        await disk.close(file)
        raise
    return MarksFile(disk, file, known, size_bytes_max=size_bytes_max)
