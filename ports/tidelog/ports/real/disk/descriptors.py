"""The open descriptors of a data directory: a bounded table, least recently used out first.

A File stands for what was opened, not for a path: it follows a rename, and outlives its name if
another file takes it. Threads pin a descriptor while they use it. One with unflushed writes is
never evicted: the kernel reports a failed write-back to descriptors that were open at the time,
and nowhere else. So the bound is exceeded rather than that: pinned and dirty ones come on top.

Two locks. `_naming` is held over system calls that look a path up or change what it means, which
may wait for the disk; `_table` only over a few lines of memory. The event loop takes `_table` only.
"""

import contextlib
import errno
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

from tidelog.ports.real.disk import io as disk_io
from tidelog.wire.errors import ErrorCode, TidelogError

EVICTION_SCAN_MAX: Final = 64
"""Entries looked at per opening, so that many dirty files do not make each opening slow."""


class RealFile:
    """An open file. Its writer thread alone changes `end_bytes`; others read it at any time."""

    def __init__(self, path: str, size_bytes: int, identity: tuple[int, int]) -> None:
        self._path = path
        self.identity = identity
        """Device and inode: what a path must lead to when it is opened again."""
        self.end_bytes = size_bytes
        self.open_count = 1
        self.descriptor = -1
        self.pin_count = 0
        self.is_dirty = False
        """Written since the last flush: the descriptor stays."""
        self.is_torn = False
        """An append took effect in part: nothing is appended before a truncate."""
        self.is_removed = False
        """Its name is gone: the descriptor cannot be had again, so it stays."""

    @property
    def path(self) -> str:
        """Relative to the data directory."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """Where the next append goes: behind all that have ended."""
        return self.end_bytes

    def set_path(self, path: str) -> None:
        """After a rename."""
        self._path = path

    def __repr__(self) -> str:
        return f"RealFile({self._path!r}, {self.end_bytes} bytes)"


class Descriptors:
    """Files by path, and which of them hold a descriptor; used by every thread."""

    def __init__(self, root: str, limit: int) -> None:
        assert limit > 0, "a table without room serves nobody"
        self._root = root
        self._limit = limit
        self._naming = threading.Lock()
        self._table = threading.Lock()
        self._files: dict[str, RealFile] = {}
        self._recent: OrderedDict[RealFile, None] = OrderedDict()
        self._unused: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._recent)

    def open(self, path: str, *, create: bool) -> RealFile:
        """Open a file, or count one more opening of it: a path has one state, as a file has."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        with self._naming:
            descriptor = os.open(os.path.join(self._root, path), flags, 0o644)
            status = os.fstat(descriptor)
            with self._changing():
                file = self._files.get(path)
                if file is not None:
                    file.open_count += 1
                    self._unused.append(descriptor)
                    return file
                file = RealFile(path, status.st_size, (status.st_dev, status.st_ino))
                file.is_dirty = create
                self._files[path] = file
                self._take(file, descriptor)
            return file

    def pin(self, file: RealFile) -> int:
        """A descriptor that stays open until `unpin`; may have to open the file again."""
        if (descriptor := self.pin_open(file)) >= 0:
            return descriptor
        with self._naming:
            if (descriptor := self.pin_open(file)) >= 0:
                return descriptor
            descriptor = self._open_again(file)
            with self._changing():
                file.pin_count += 1
                self._take(file, descriptor)
            return descriptor

    def pin_open(self, file: RealFile) -> int:
        """As `pin`, but never waits: -1 where the file would have to be opened again."""
        with self._table:
            if file.open_count == 0:
                raise TidelogError(
                    ErrorCode.CLOSED, tried=f"use {file.path}", happened="the file was closed"
                )
            if file.descriptor >= 0:
                file.pin_count += 1
                self._recent.move_to_end(file)
            return file.descriptor

    def unpin(self, file: RealFile) -> None:
        """The descriptor may be evicted again."""
        with self._table:
            assert file.pin_count > 0, f"{file.path} is not pinned"
            file.pin_count -= 1
            is_last = file.open_count == 0 and file.pin_count == 0
        if is_last:
            with self._changing():
                # Closed, and so never pinned again: it is dropped by whoever finds it so.
                self._drop(file)

    def close(self, file: RealFile) -> None:
        """One opening less; with the last one the descriptor goes."""
        with self._changing():
            assert file.open_count > 0, f"{file.path} is closed twice"
            file.open_count -= 1
            if file.open_count > 0:
                return
            if self._files.get(file.path) is file:
                del self._files[file.path]
            if file.pin_count == 0:
                self._drop(file)

    def is_named(self, file: RealFile) -> bool:
        """Whether its path leads to it, as a start would find it; or it was removed on purpose."""
        with self._naming:
            if file.is_removed or file.open_count == 0:
                return True
            try:
                status = os.stat(os.path.join(self._root, file.path))
            except OSError as error:
                if disk_io.is_of_the_path(error):
                    return False
                raise
            return (status.st_dev, status.st_ino) == file.identity

    def close_all(self) -> None:
        """Every descriptor, whatever its state."""
        with self._changing():
            for file in list(self._recent):
                file.open_count = 0
                self._drop(file)
            self._files.clear()

    def rename(self, old: str, new: str) -> None:
        """Rename on disk and in the table at once; open files that lose their name live on."""
        with self._naming:
            replaced = self._hold(new) if old != new else []
            os.replace(os.path.join(self._root, old), os.path.join(self._root, new))
            with self._table:
                self._forget(replaced)
                for path, file in _below(self._files, old):
                    del self._files[path]
                    file.set_path(new + path[len(old) :])
                    self._files[file.path] = file

    def forget(self, path: str) -> None:
        """Before a removal: open files below `path` keep a descriptor and lose their name."""
        with self._naming:
            removed = self._hold(path)
            with self._table:
                self._forget(removed)

    def _hold(self, path: str) -> list[tuple[str, RealFile]]:
        """Give every open file below `path` a descriptor, while the path still leads to it."""
        with self._table:
            held = _below(self._files, path)
        for _, file in held:
            if file.descriptor < 0:
                descriptor = self._open_again(file)
                with self._table:
                    file.descriptor = descriptor
                    self._recent[file] = None
        return held

    def _forget(self, files: list[tuple[str, RealFile]]) -> None:
        for path, file in files:
            if self._files.get(path) is file:
                del self._files[path]
            file.is_removed = True

    def _open_again(self, file: RealFile) -> int:
        descriptor = os.open(os.path.join(self._root, file.path), os.O_RDWR | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != file.identity:
            os.close(descriptor)
            raise OSError(errno.ESTALE, f"{file.path} was replaced by another program")
        return descriptor

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the table, then close what fell out: closing a removed file takes its time."""
        try:
            with self._table:
                yield
        finally:
            # Another thread may take the last one between a look and a pop.
            with contextlib.suppress(IndexError):
                while True:
                    os.close(self._unused.pop())

    def _take(self, file: RealFile, descriptor: int) -> None:
        file.descriptor = descriptor
        self._recent[file] = None
        self._evict()

    def _evict(self) -> None:
        """Drop the oldest ones over the limit; those that must stay count as just used."""
        for _ in range(min(EVICTION_SCAN_MAX, len(self._recent))):
            if len(self._recent) <= self._limit:
                return
            file = next(iter(self._recent))
            if file.pin_count or file.is_dirty or file.is_removed:
                self._recent.move_to_end(file)
            else:
                self._drop(file)

    def _drop(self, file: RealFile) -> None:
        if file.descriptor >= 0:
            self._unused.append(file.descriptor)
            file.descriptor = -1
            del self._recent[file]


def _below(files: dict[str, RealFile], path: str) -> list[tuple[str, RealFile]]:
    return [
        (found, file)
        for found, file in files.items()
        if found == path or found.startswith(path + "/")
    ]
