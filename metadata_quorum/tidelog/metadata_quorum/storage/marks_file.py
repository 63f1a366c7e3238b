"""The file of marks: read at the start, appended to when a flush is to be proven.

Thin I/O around `marks`. It must never hold a mark of blocks that were not flushed.
"""

from typing import Final

from tidelog.metadata_quorum.storage.errors import corrupt
from tidelog.metadata_quorum.storage.marks import (
    ENTRY_BYTES,
    FILE_NAME,
    Mark,
    encode_mark,
    newest_mark,
)
from tidelog.metadata_quorum.storage.small_files import read_file, rename, write_new
from tidelog.ports import Append, Disk, File
from tidelog.wire.errors import TidelogError

SIZE_BYTES_MAX: Final = 256 * 1024
"""Beyond this the file is made anew, with the newest mark only."""


class MarksFile:
    """The open file and its newest mark."""

    def __init__(self, disk: Disk, file: File, newest: Mark) -> None:
        self._disk = disk
        self.file = file
        self.newest = newest

    async def write(self, mark: Mark) -> None:
        """Durable at return."""
        is_whole = self.file.size_bytes % ENTRY_BYTES == 0
        if not is_whole or self.file.size_bytes >= SIZE_BYTES_MAX:
            await self._make_anew(mark)
        else:
            await self._append(mark)
        self.newest = mark

    async def _append(self, mark: Mark) -> None:
        size_bytes = self.file.size_bytes
        try:
            await self._disk.append([Append(self.file, [encode_mark(mark)])])
        except TidelogError:
            await self._disk.truncate(self.file, size_bytes)
            raise
        await self._disk.flush([self.file])

    async def _make_anew(self, mark: Mark) -> None:
        beside = await write_new(self._disk, FILE_NAME, [encode_mark(mark)])
        await rename(self._disk, beside, FILE_NAME)
        await self._disk.close(self.file)
        self.file = await self._disk.open(FILE_NAME)


async def open_marks(disk: Disk) -> MarksFile:
    """STORAGE_CORRUPT without a single whole mark: then nothing tells what was promised."""
    if FILE_NAME not in await disk.list():
        raise corrupt(f"{disk.name}/{FILE_NAME}", "the file is not there")
    newest = newest_mark(await read_file(disk, FILE_NAME))
    if newest is None:
        raise corrupt(f"{disk.name}/{FILE_NAME}", "it holds no whole mark")
    return MarksFile(disk, await disk.open(FILE_NAME), newest)
