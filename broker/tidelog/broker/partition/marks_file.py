"""The file of flush marks: read at the start, appended to with each write, made anew when long.

Thin I/O around `flush_marks`. It must never hold a mark above what was flushed.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.broker.log.flush_marks import ENTRY_BYTES, decode_marks, encode_marks
from tidelog.broker.log.names import PartitionKey
from tidelog.ports import Append, Disk, File
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset

NAME: Final = "flush_marks"
NEW_NAME: Final = "flush_marks.new"
SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Beyond this, and four times what one entry for each partition takes, the file is made anew."""

_READ_BYTES: Final = 4 * 1024 * 1024


async def read_marks(disk: Disk) -> Mapping[PartitionKey, Offset] | None:
    """What the last life knew to be durable; None if there is no such file."""
    if NAME not in await disk.list():
        return None
    file = await disk.open(NAME)
    pieces = [
        await disk.read(file, position, _READ_BYTES)
        for position in range(0, file.size_bytes, _READ_BYTES)
    ]
    await disk.close(file)
    return decode_marks(b"".join(pieces))


class MarksFile:
    """The open file; `append` goes into the same turn of the writer as the batches."""

    def __init__(
        self, disk: Disk, file: File, partition_count: int, *, size_bytes_max: int
    ) -> None:
        self._disk = disk
        self._size_bytes_max = size_bytes_max
        self._partition_count = partition_count
        self._size_bytes = file.size_bytes
        self.file = file

    @property
    def is_long(self) -> bool:
        """Whether it should be made anew."""
        enough = max(self._size_bytes_max, 4 * ENTRY_BYTES * self._partition_count)
        return self._size_bytes > enough

    def append(self, marks: tuple[tuple[PartitionKey, Offset], ...]) -> Append:
        """The append to write."""
        return Append(self.file, [encode_marks(marks)])

    def take_in(self) -> None:
        """The append was written whole."""
        self._size_bytes = self.file.size_bytes

    async def made_anew(self, marks: Mapping[PartitionKey, Offset]) -> "MarksFile":
        """A short file in place of this one, which stays open."""
        return await make_marks_file(self._disk, marks, size_bytes_max=self._size_bytes_max)

    async def cut_back(self) -> None:
        """The append failed: entries stand at multiples of their size, and a file that an append
        failed on takes no other before it is cut, if only to the length that it has.
        """
        await self._disk.truncate(self.file, self._size_bytes)


async def make_marks_file(
    disk: Disk, marks: Mapping[PartitionKey, Offset], *, size_bytes_max: int = SIZE_BYTES_MAX
) -> MarksFile:
    """A new file with one mark a partition, in place of the old one."""
    if NEW_NAME in await disk.list():
        await disk.remove(NEW_NAME)
    file = await disk.open(NEW_NAME, create=True)
    known = encode_marks((key, offset) for key, offset in marks.items() if offset > 0)
    try:
        if known:
            await disk.append([Append(file, [known])])
        await disk.flush([file], directories=[""])
        await disk.rename(NEW_NAME, NAME)
        await disk.flush([], directories=[""])
    except TidelogError:
        # A full disk is tried again: without this each try would keep a descriptor.
        await disk.close(file)
        raise
    return MarksFile(disk, file, len(marks), size_bytes_max=size_bytes_max)
