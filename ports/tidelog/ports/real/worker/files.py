"""Files of one data directory in the worker's process: what a job reads, makes and flushes.

Owns the descriptors of one job, from its start to its end. It must never follow a symbolic link,
write to a file that the job has not created, or flush a file again whose flush has failed.

What a failed flush means. The kernel counts write-back errors per file and per file system, and
tells each descriptor once. So that no error is missed, a created file keeps its one descriptor from
creation to its last flush. The node's own files have counters of their own: a job's failure hides
none of theirs from the node's `fdatasync`. A `syncfs` of the node does hear of the job's file,
since it cannot tell whose page was lost, and stops the directory: wrong about the node's files, on
the safe side. The job itself fails with STORAGE_FAILED before its file gets the name under which
anybody would look for it, and a later job makes a new file in its place. Hence the directory stays
true to what it promised; whether a medium that loses writes is used on is for its owner to decide.
"""

import os
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.ports.real.disk import io as disk_io
from tidelog.ports.real.disk.disk import check_path
from tidelog.wire.errors import ErrorCode, TidelogError

READERS_MAX: Final = 16
"""Files that a job reads at the same time without opening them again."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CAN_LEAVE_CACHE: Final = hasattr(os, "posix_fadvise") and hasattr(os, "RWF_NOWAIT")


class _Created:
    """A file of this job."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.end_bytes = 0
        self.is_failed = False
        """A write or flush failed: what lies on the medium is unknown for good."""


class DirectoryFiles:
    """The JobFiles of one job, below `root`."""

    def __init__(
        self, root: str, *, flush_file: Callable[[int], None] = disk_io.flush_file
    ) -> None:
        self._name = root
        self._flush_file = flush_file
        self._created: dict[str, _Created] = {}
        self._readers: dict[str, int] = {}
        try:
            self._root = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
        except OSError as error:
            raise disk_io.storage_error(error, f"open the data directory {root}") from error

    def size_bytes(self, path: str) -> int:
        """Its length; -1: there is no such file."""
        if path in self._created:
            return self._created[path].end_bytes
        try:
            parent, name = self._open_parent(path)
            try:
                return os.stat(name, dir_fd=parent, follow_symlinks=False).st_size
            finally:
                os.close(parent)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise self._error(error, "look at", path) from error

    def read(self, path: str, byte_position: int, length_bytes: int) -> bytes:
        """Up to `length_bytes` from `byte_position`; shorter only at the end of the file."""
        assert byte_position >= 0, f"no byte lies at {byte_position}"
        assert length_bytes >= 0, f"nobody reads {length_bytes} bytes"
        try:
            if path in self._created:
                descriptor = self._created[path].descriptor
                return disk_io.read_all(descriptor, byte_position, length_bytes)
            return _read_aside(self._reader(path), byte_position, length_bytes)
        except OSError as error:
            raise self._error(error, "read", path) from error

    def create(self, path: str) -> None:
        """An empty file with a new inode, also in place of one that an earlier job left behind."""
        try:
            self._forget(path)
            parent, name = self._open_parent(path)
            try:
                _unlink(name, parent)
                self._created[path] = _Created(os.open(name, _CREATE, 0o644, dir_fd=parent))
            finally:
                os.close(parent)
        except OSError as error:
            raise self._error(error, "create", path) from error

    def append(self, path: str, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write at the end of a file that this job has created."""
        file = self._own(path, "append to")
        file.is_failed = True
        try:
            file.end_bytes = disk_io.write_all(file.descriptor, pieces, file.end_bytes)
        except OSError as error:
            raise self._error(error, "append to", path) from error
        file.is_failed = False

    def flush(self, path: str) -> None:
        """Make a file that this job has created durable, but for its name."""
        file = self._own(path, "flush")
        file.is_failed = True
        try:
            self._flush_file(file.descriptor)
        except OSError as error:
            happened = disk_io.storage_error(error, "").happened
            raise _failed(f"flush {path} in {self._name}", happened) from error
        file.is_failed = False

    def remove(self, path: str) -> None:
        """Drop a file that this job has created."""
        assert path in self._created, f"a job removes only what it has created, not {path}"
        try:
            self._forget(path)
            parent, name = self._open_parent(path)
            try:
                _unlink(name, parent)
            finally:
                os.close(parent)
        except OSError as error:
            raise self._error(error, "remove", path) from error

    def close(self) -> None:
        """Give every descriptor back; flushes nothing."""
        for path in [*self._created]:
            self._forget(path)
        for descriptor in self._readers.values():
            os.close(descriptor)
        self._readers.clear()
        os.close(self._root)

    def _own(self, path: str, tried: str) -> _Created:
        assert path in self._created, f"a job changes only what it has created, not {path}"
        file = self._created[path]
        if file.is_failed:
            raise _failed(
                f"{tried} {path} in {self._name}",
                "an earlier write or flush of it failed; only a new file can take its place",
            )
        return file

    def _forget(self, path: str) -> None:
        if path in self._created:
            os.close(self._created.pop(path).descriptor)
        if path in self._readers:
            os.close(self._readers.pop(path))

    def _reader(self, path: str) -> int:
        if path not in self._readers:
            if len(self._readers) >= READERS_MAX:
                self._forget(next(iter(self._readers)))
            parent, name = self._open_parent(path)
            try:
                self._readers[path] = os.open(name, _READ, dir_fd=parent)
            finally:
                os.close(parent)
            if _CAN_LEAVE_CACHE:
                # No read-ahead: pages that nobody has asked for would look like someone's.
                os.posix_fadvise(self._readers[path], 0, 0, os.POSIX_FADV_RANDOM)
        return self._readers[path]

    def _open_parent(self, path: str) -> tuple[int, str]:
        """The directory that holds the last name, reached without following a link."""
        *parents, name = check_path(path).split("/")
        descriptor = os.dup(self._root)
        for part in parents:
            try:
                below = os.open(part, _DIRECTORY, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor, name

    def _error(self, error: OSError, tried: str, path: str) -> TidelogError:
        return disk_io.storage_error(error, f"{tried} {path} in {self._name}")


def _failed(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.STORAGE_FAILED, tried=tried, happened=happened)


def _unlink(name: str, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return


def _read_aside(descriptor: int, byte_position: int, length_bytes: int) -> bytes:
    """Read without changing what the page cache holds: a scrub must not evict the hot tail."""
    if not _CAN_LEAVE_CACHE or not length_bytes:
        return disk_io.read_all(descriptor, byte_position, length_bytes)
    buffer = bytearray(length_bytes)
    try:
        count = os.preadv(descriptor, [buffer], byte_position, os.RWF_NOWAIT)
    except OSError:
        # Not cached, or not supported: the plain read meets any true error again.
        count = 0
    if count == length_bytes:
        return bytes(buffer)
    rest = disk_io.read_all(descriptor, byte_position + count, length_bytes - count)
    os.posix_fadvise(descriptor, byte_position + count, len(rest), os.POSIX_FADV_DONTNEED)
    return bytes(memoryview(buffer)[:count]) + rest
