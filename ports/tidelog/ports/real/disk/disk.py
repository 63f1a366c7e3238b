"""The Disk port over files: what may block runs in threads, cached reads on the loop.

Owns a data directory from `open_disk` to `shutdown`. Stop 6 of a record's walk passes through
here. One event loop uses it, the one that opened it.
"""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar, cast

from tidelog.ports.disk import NAMES_SHOWN_MAX, Append, File, FileUnusable
from tidelog.ports.real.disk import io as disk_io
from tidelog.ports.real.disk import open_files
from tidelog.ports.real.disk.descriptors import Descriptors, RealFile
from tidelog.ports.real.disk.flush import Flusher
from tidelog.ports.real.disk.lock import LOCK_NAME, take_lock
from tidelog.ports.real.disk.root import Root
from tidelog.ports.real.disk.threads import Handover, ReaderPool, Request
from tidelog.ports.real.disk.writer import FlushRequest, Writer
from tidelog.wire.errors import ErrorCode, TidelogError

CACHED_READ_BYTES_MAX: Final = 1024 * 1024
"""Copied on the event loop at most: about the largest answer to a fetch."""

_Result = TypeVar("_Result")


class RealDisk:
    """A data directory; made by `open_disk`."""

    def __init__(
        self,
        directory: Path,
        lock: int,
        flusher: Flusher,
        *,
        root: Root,
        descriptors_max: int,
        write_all: disk_io.WriteAll,
    ) -> None:
        self._root = str(directory)
        self._lock = lock
        self._place = root
        self._loop = asyncio.get_running_loop()
        self._handover = Handover(self._loop)
        self._descriptors = Descriptors(self._root, descriptors_max)
        self._flusher = flusher
        self._cached = disk_io.CachedReader(CACHED_READ_BYTES_MAX)
        self._readers = ReaderPool(self._root, self._handover)
        self._writer = Writer(
            self._root,
            self._descriptors,
            self._flusher,
            self._handover,
            root=root,
            write_all=write_all,
        )
        self._is_shut_down = False

    @property
    def name(self) -> str:
        """For messages: where the directory is."""
        return self._root

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and appending; with `create` it must not exist yet."""
        checked = check_path(path)

        def open_() -> RealFile:
            return self._descriptors.open(checked, create=create)

        def close(file: object) -> None:
            self._descriptors.close(cast(RealFile, file))

        if create:
            return await self._change(f"create {path}", open_, close)
        return await self._look(f"open {path}", open_, close)

    async def close(self, file: File) -> None:
        """Give the descriptor back. The file's unflushed bytes stay unflushed."""
        real = _real(file)
        await self._look(f"close {file.path}", lambda: self._descriptors.close(real), by_name=False)

    async def append(self, appends: Sequence[Append]) -> None:
        """Write all of them, in order, in one turn of the writer."""
        work = [(_real(append.file), append.pieces) for append in appends]
        tried = f"append to {_names([file for file, _ in work])}"
        request = self._request(lambda: self._writer.append_all(work), tried)
        self._writer.submit(request)
        await request.future

    async def read(self, file: File, byte_position: int, length_bytes: int) -> bytes:
        """Up to `length_bytes` from `byte_position`; shorter only at the end of the file."""
        assert byte_position >= 0, f"no byte lies at {byte_position}"
        assert length_bytes >= 0, f"nobody reads {length_bytes} bytes"
        self._check_open(f"read {file.path}")
        real = _real(file)
        wanted = min(length_bytes, real.size_bytes - byte_position)
        if wanted > 0 and (descriptor := self._descriptors.pin_open(real)) >= 0:
            data = self._cached.read(descriptor, byte_position, wanted)
            self._descriptors.unpin(real)
            if data is not None:
                return data
        return await self._look(
            f"read {file.path} at {byte_position}",
            lambda: self._read(real, byte_position, length_bytes),
            by_name=False,
        )

    async def truncate(self, file: File, size_bytes: int) -> None:
        """Cut the tail off."""
        real = _real(file)
        request = self._request(
            lambda: self._writer.truncate(real, size_bytes), f"truncate {file.path}"
        )
        self._writer.submit(request)
        await request.future

    async def flush(self, files: Sequence[File], *, directories: Sequence[str] = ()) -> None:
        """Make the files' bytes, and the names in the directories, durable."""
        self._check_open("flush")
        request = FlushRequest(
            self._loop.create_future(),
            [_real(file) for file in files],
            [directory and check_path(directory) for directory in directories],
        )
        self._writer.submit(request)
        await request.future

    async def list(self, directory: str = "") -> list[str]:
        """The names in a directory, sorted; directories end with `/`. Missing: empty."""
        path = self._path(directory and check_path(directory))
        return await self._look(f"list {directory or '.'}", lambda: _list(path))

    async def make_directory(self, path: str) -> None:
        """With its parents; existing ones are fine."""
        full = self._path(check_path(path))
        await self._change(f"make {path}", lambda: os.makedirs(full, exist_ok=True))

    async def rename(self, old: str, new: str) -> None:
        """Replace atomically; durable once both parents are flushed."""
        from_, to = check_path(old), check_path(new)

        await self._change(f"rename {old} to {new}", lambda: self._descriptors.rename(from_, to))

    async def remove(self, path: str) -> None:
        """A file, or a directory with all in it; durable once the parent is flushed."""
        checked = check_path(path)

        def remove() -> None:
            full = self._path(checked)
            self._descriptors.forget(checked)
            if os.path.isdir(full) and not os.path.islink(full):
                shutil.rmtree(full)
            else:
                os.unlink(full)

        await self._change(f"remove {path}", remove)

    async def free_bytes(self) -> int:
        """Room left on the file system for unprivileged writers."""

        def free() -> int:
            status = os.statvfs(self._root)
            return status.f_bavail * status.f_frsize

        return await self._look("ask for free space", free)

    async def shutdown(self) -> None:
        """Close every file, stop the threads, let the lock go. Flushes nothing."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        # In a thread to its end, also if this task is cancelled: nothing may be closed while a
        # thread still writes to it.
        await asyncio.to_thread(self._close_all)

    def _close_all(self) -> None:
        self._writer.stop()
        self._readers.stop()
        self._descriptors.close_all()
        self._flusher.close()
        self._place.close()
        os.close(self._lock)

    def _read(self, file: RealFile, byte_position: int, length_bytes: int) -> bytes:
        descriptor = self._descriptors.pin(file)
        try:
            return disk_io.read_all(descriptor, byte_position, length_bytes)
        finally:
            self._descriptors.unpin(file)

    async def _change(
        self,
        tried: str,
        work: Callable[[], _Result],
        discard: Callable[[object], None] | None = None,
    ) -> _Result:
        """Something that alters the directory: on the writer thread, in order."""
        request = self._request(work, tried)
        request.discard = discard
        self._writer.submit(request)
        return cast(_Result, await request.future)

    async def _look(
        self,
        tried: str,
        work: Callable[[], _Result],
        discard: Callable[[object], None] | None = None,
        *,
        by_name: bool = True,
    ) -> _Result:
        """Something that alters nothing: on a reader thread. What is found by its name is found in
        the directory that is meant, or not at all."""
        self._check_open(tried)
        tried = f"{tried} in {self._root}"

        def looked() -> object:
            try:
                if by_name:
                    self._place.check(tried)
                return work()
            except OSError as error:
                failure = disk_io.storage_error(error, tried)
                if isinstance(failure, FileUnusable):
                    # A file may have been opened again for this, by its name.
                    self._place.check(tried)
                raise failure from error

        request = Request(self._loop.create_future(), looked, discard)
        self._readers.submit(request)
        return cast(_Result, await request.future)

    def _request(self, work: Callable[[], object], tried: str) -> Request:
        self._check_open(tried)
        return Request(self._loop.create_future(), self._writer.guard(work, tried))

    def _check_open(self, tried: str) -> None:
        if self._is_shut_down:
            raise TidelogError(
                ErrorCode.CLOSED, tried=f"{tried} in {self._root}", happened="it was shut down"
            )

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root


_OF_THE_DISK: Final = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT})


async def open_disk(
    directory: Path,
    *,
    descriptors_max: int | None = None,
    make_flusher: Callable[[str], Flusher] = Flusher,
    write_all: disk_io.WriteAll = disk_io.write_all,
) -> RealDisk:
    """Make the directory if it is missing, and take its lock.

    Without `descriptors_max` it keeps the share of a node of two directories.
    """
    tried = f"open the data directory {directory}"
    try:
        _make_root(directory)
        lock = take_lock(directory)
        try:
            root = Root(str(directory))
            try:
                flusher = make_flusher(str(directory))
            except OSError:
                root.close()
                raise
        except OSError:
            os.close(lock)
            raise
    except OSError as error:
        failed = disk_io.storage_error(error, tried)
        if error.errno in _OF_THE_DISK:
            raise failed from error
        # Nothing was read or written yet: it is the name, or who may use it, not the disk.
        raise TidelogError(
            failed.code,
            tried=failed.tried,
            happened=failed.happened,
            hint="Name a directory on a disk that this user may write to; it is made if it is not "
            "there.",
        ) from error
    if descriptors_max is None:
        descriptors_max = open_files.table_size()
    return RealDisk(
        directory, lock, flusher, root=root, descriptors_max=descriptors_max, write_all=write_all
    )


def _make_root(directory: Path) -> None:
    if not directory.is_dir():
        directory.mkdir(parents=True)
        disk_io.flush_directory(str(directory.parent))


def check_path(path: str) -> str:
    """Refuse what is absolute, climbs, or means the lock; the port's paths never leave."""
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts) or parts[0] == LOCK_NAME:
        raise TidelogError(
            ErrorCode.STORAGE_FAILED,
            tried=f"use the path {path!r}",
            happened="it is not a relative path of plain names",
        )
    return path


def _names(files: Sequence[RealFile]) -> str:
    """For messages: a few paths, and how many more."""
    shown = ", ".join(file.path for file in files[:NAMES_SHOWN_MAX])
    more = len(files) - NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _list(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            names = [entry.name + "/" if entry.is_dir() else entry.name for entry in entries]
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name != LOCK_NAME)


def _real(file: File) -> RealFile:
    assert isinstance(file, RealFile), "a file goes back to the disk that opened it"
    return file
