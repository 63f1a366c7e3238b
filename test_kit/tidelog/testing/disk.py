"""A node's data directory that remembers what was flushed, so that a crash can take the rest.

The files are real. A flush is accounted for and not handed to the drive: the directory is gone
after the test, whatever the machine does. What a crash leaves (one of the outcomes that the Disk
port allows, the worst one for what was written):

- of each file the bytes that a flush of it has covered, nothing behind them;
- no file and no directory whose name was never covered by a flush of the directory that it is in;
- renames, removals and truncations that were asked for, whether flushed or not.

Files made by the node's background process are kept as they are: their job has flushed them before
the node gives them their name. What is remembered outlives the node's process, as a disk does.
"""

import os
import shutil
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from tidelog.ports import Append, Disk, File
from tidelog.ports.real.disk.disk import check_path
from tidelog.wire.errors import ErrorCode, TidelogError

_Value = TypeVar("_Value")


class _Bytes:
    """How much of one file is flushed."""

    def __init__(self, flushed_bytes: int) -> None:
        self.flushed_bytes = flushed_bytes
        self.rounds: list[_Round] = []

    def cut(self, size_bytes: int) -> None:
        self.flushed_bytes = min(self.flushed_bytes, size_bytes)
        for each in self.rounds:
            each.covers_bytes = min(each.covers_bytes, size_bytes)


class _Round:
    """One file in a flush that is on its way; a truncation behind it takes part of it back."""

    def __init__(self, content: _Bytes, covers_bytes: int) -> None:
        self._content = content
        self.covers_bytes = covers_bytes
        content.rounds.append(self)

    def end(self, *, is_flushed: bool) -> None:
        self._content.rounds.remove(self)
        if is_flushed:
            flushed_bytes = self._content.flushed_bytes
            self._content.flushed_bytes = max(flushed_bytes, self.covers_bytes)


class Flushed:
    """What a crash would leave of one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._contents: dict[str, _Bytes] = {}
        """By path, of every file that a node has opened."""
        self._unnamed: dict[str, None] = {}
        """Files and directories whose own name is not flushed."""

    def opened(self, path: str, size_bytes: int) -> _Bytes:
        """A file that was there: as far as nothing else is known of it, it is flushed."""
        return self._contents.setdefault(path, _Bytes(size_bytes))

    def created(self, path: str) -> _Bytes:
        """An empty file."""
        self._unnamed[path] = None
        content = self._contents[path] = _Bytes(0)
        return content

    def made_directory(self, path: str) -> None:
        """With its parents; before it happens."""
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            parent = "/".join(parts[:count])
            if not (self.root / parent).is_dir():
                self._unnamed[parent] = None

    def renamed(self, old: str, new: str) -> None:
        """With everything in it."""
        self.removed(new)
        _move(self._contents, old, new)
        _move(self._unnamed, old, new)

    def removed(self, path: str) -> None:
        """With everything in it."""
        for each in _below(self._contents, path):
            del self._contents[each]
        for each in _below(self._unnamed, path):
            del self._unnamed[each]

    def names_in(self, directories: Sequence[str]) -> list[str]:
        """Names that a flush of these directories covers."""
        return [path for path in self._unnamed if path.rpartition("/")[0] in directories]

    def named(self, paths: Sequence[str]) -> None:
        """They are flushed."""
        for path in paths:
            self._unnamed.pop(path, None)

    def crash(self) -> None:
        """Take what no flush covered; nobody has the directory open."""
        for path in self._unnamed:
            found = self.root / path
            if found.is_dir():
                shutil.rmtree(found)
            else:
                found.unlink(missing_ok=True)
        for path, content in self._contents.items():
            found = self.root / path
            if found.is_file() and found.stat().st_size > content.flushed_bytes:
                os.truncate(found, content.flushed_bytes)
        self._contents.clear()
        self._unnamed.clear()


def _below(table: dict[str, _Value], path: str) -> list[str]:
    return [each for each in table if each == path or each.startswith(f"{path}/")]


def _move(table: dict[str, _Value], old: str, new: str) -> None:
    for path in _below(table, old):
        table[new + path[len(old) :]] = table.pop(path)


class RememberingDisk:
    """The Disk port over another one, for one life of a node."""

    def __init__(self, disk: Disk, flushed: Flushed) -> None:
        self._disk = disk
        self._flushed = flushed
        self._contents: weakref.WeakKeyDictionary[File, _Bytes] = weakref.WeakKeyDictionary()
        self._is_cut = False

    @property
    def name(self) -> str:
        """For messages: where the directory is."""
        return self._disk.name

    def cut(self) -> None:
        """The process is dead: nothing that it asks for happens any more."""
        self._is_cut = True

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and appending; with `create` it must not exist yet."""
        self._check(f"open {path}")
        file = await self._disk.open(path, create=create)
        flushed = self._flushed
        content = flushed.created(path) if create else flushed.opened(path, file.size_bytes)
        self._contents.setdefault(file, content)
        return file

    async def close(self, file: File) -> None:
        """Give the descriptor back. The file's unflushed bytes stay unflushed."""
        await self._disk.close(file)

    async def append(self, appends: Sequence[Append]) -> None:
        """Write all of them, in order, in one turn of the writer."""
        self._check("append")
        await self._disk.append(appends)

    async def read(self, file: File, byte_position: int, length_bytes: int) -> bytes:
        """Up to `length_bytes` from `byte_position`; shorter only at the end of the file."""
        self._check(f"read {file.path}")
        return await self._disk.read(file, byte_position, length_bytes)

    async def truncate(self, file: File, size_bytes: int) -> None:
        """Cut the tail off."""
        self._check(f"truncate {file.path}")
        self._contents[file].cut(size_bytes)
        await self._disk.truncate(file, size_bytes)

    async def flush(self, files: Sequence[File], *, directories: Sequence[str] = ()) -> None:
        """Make the files' bytes, and the names in the directories, survive a crash."""
        self._check("flush")
        rounds = [_Round(self._contents[file], file.size_bytes) for file in files]
        names = self._flushed.names_in(directories)
        is_flushed = False
        try:
            await self._disk.flush(files, directories=directories)
            is_flushed = not self._is_cut
        finally:
            for each in rounds:
                each.end(is_flushed=is_flushed)
        self._check("flush")
        self._flushed.named(names)

    async def list(self, directory: str = "") -> list[str]:
        """The names in a directory, sorted; directories end with `/`. Missing: empty."""
        self._check(f"list {directory}")
        return await self._disk.list(directory)

    async def make_directory(self, path: str) -> None:
        """With its parents; existing ones are fine."""
        self._check(f"make {path}")
        self._flushed.made_directory(check_path(path))
        await self._disk.make_directory(path)

    async def rename(self, old: str, new: str) -> None:
        """Replace atomically; durable once both parents are flushed."""
        self._check(f"rename {old}")
        self._flushed.renamed(old, new)
        await self._disk.rename(old, new)

    async def remove(self, path: str) -> None:
        """A file, or a directory with all in it; durable once the parent is flushed."""
        self._check(f"remove {path}")
        self._flushed.removed(path)
        await self._disk.remove(path)

    async def free_bytes(self) -> int:
        """Room left on the file system for unprivileged writers."""
        return await self._disk.free_bytes()

    async def shutdown(self) -> None:
        """Close every file, stop the threads, let the lock go. Flushes nothing."""
        await self._disk.shutdown()

    def _check(self, tried: str) -> None:
        if self._is_cut:
            raise TidelogError(
                ErrorCode.CLOSED, tried=f"{tried} in {self.name}", happened="the node was killed"
            )
