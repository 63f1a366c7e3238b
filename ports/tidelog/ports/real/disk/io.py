"""System calls of the disk, whole or failed: short writes, partial reads, errors made ours.

Runs on any thread; owns no state. It must never retry a failed flush: the kernel may have marked
the pages clean, so that a second try would report success for bytes that are gone.
"""

import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.ports.disk import FileUnusable, gone, unusable
from tidelog.wire.errors import ErrorCode, TidelogError

IOVEC_MAX: Final = 1_024
"""IOV_MAX of Linux and macOS."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_OF_THE_PATH: Final = frozenset(
    {
        errno.ENOENT,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ESTALE,
        errno.ETXTBSY,
        errno.EFBIG,
    }
)
"""What a look at a path may meet on a disk in order: somebody has moved, replaced or locked a file,
or none may be as long. EIO, EROFS and all else say that the disk has failed."""
_GONE: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ESTALE}
)
_LOCKED: Final = (
    "Somebody has locked it, or this user may not use it: look at owner, mode and attributes of "
    "the file and its directory (`ls -l`, `lsattr`). Once they are right it is opened by itself."
)
_HINTS: Final = {
    errno.EACCES: _LOCKED,
    errno.EPERM: _LOCKED,
    errno.ETXTBSY: _LOCKED,
    errno.EFBIG: "The disk is sound: a limit of the process, or its file system, admits no longer "
    "files. Raise the limit (`ulimit -f`, LimitFSIZE= of a systemd unit), start the node again.",
    errno.EMFILE: "The disk is sound: this process may open no more files. Raise the limit "
    "(`ulimit -n`, LimitNOFILE= of a systemd unit), start the node again.",
    errno.ENFILE: "The disk is sound: the machine may open no more files. Raise fs.file-max, start "
    "the node again.",
    errno.EDQUOT: "The disk has room: the quota of the user or project that the node runs as is "
    "used up. Raise the quota, or let retention delete more.",
}
"""Where the reader of an error has something else to look at than the disk."""

Piece = bytes | bytearray | memoryview
WriteAll = Callable[[int, Sequence[Piece], int], int]
"""As `write_all`."""


def is_of_the_path(error: OSError) -> bool:
    """Whether it says something of one path, and nothing of the disk."""
    return error.errno in _OF_THE_PATH


def is_gone(error: OSError) -> bool:
    """Whether something else, or nothing, is found under the path."""
    return error.errno in _GONE


def storage_error(error: OSError, tried: str) -> TidelogError:
    """An operating system's error as one of the storage errors."""
    name = errno.errorcode.get(error.errno or 0, "")
    happened = f"{name} {error.strerror or error}".strip()
    hint = _HINTS.get(error.errno or 0, "")
    if is_of_the_path(error):
        return FileUnusable(ErrorCode.STORAGE_FAILED, tried=tried, happened=happened, hint=hint)
    code = ErrorCode.STORAGE_FULL if error.errno in _FULL else ErrorCode.STORAGE_FAILED
    return TidelogError(code, tried=tried, happened=happened, hint=hint)


def files_error(tried: str, errors: Mapping[str, OSError]) -> FileUnusable:
    """For files that are at fault, and no disk: one error that names them all."""
    paths = list(errors)
    locked = [path for path in paths if not is_gone(errors[path])]
    if not locked:
        return gone(tried, paths)
    told = storage_error(errors[locked[0]], tried)
    assert isinstance(told, FileUnusable), "only errors of paths are told together"
    return unusable(told, tried, [*locked, *(path for path in paths if path not in locked)])


def write_all(descriptor: int, pieces: Sequence[Piece], byte_position: int) -> int:
    """Write every piece from `byte_position` on; returns the position behind the last byte."""
    if len(pieces) <= IOVEC_MAX:
        length_bytes = sum(map(len, pieces))
        written = os.pwritev(descriptor, pieces, byte_position)
        if written == length_bytes:
            return byte_position + written
        return _write_rest(descriptor, pieces, byte_position, written)
    for start in range(0, len(pieces), IOVEC_MAX):
        byte_position = write_all(descriptor, pieces[start : start + IOVEC_MAX], byte_position)
    return byte_position


def _write_rest(descriptor: int, pieces: Sequence[Piece], byte_position: int, written: int) -> int:
    """A signal, a quota or a full disk cut the write short: the next call goes on or says why."""
    rest = memoryview(b"".join(pieces))[written:]
    byte_position += written
    while rest:
        written = os.pwrite(descriptor, rest, byte_position)
        if written == 0:
            raise OSError(errno.EIO, "the system wrote nothing and gave no reason")
        rest = rest[written:]
        byte_position += written
    return byte_position


def read_all(descriptor: int, byte_position: int, length_bytes: int) -> bytes:
    """Read until `length_bytes` are there or the file ends; may wait for the disk."""
    data = os.pread(descriptor, length_bytes, byte_position)
    if len(data) == length_bytes or not data:
        return data
    pieces = [data]
    missing = length_bytes - len(data)
    while missing and data:
        data = os.pread(descriptor, missing, byte_position + length_bytes - missing)
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)


class CachedReader:
    """Reads what the page cache holds, without ever waiting for the disk; one thread only."""

    def __init__(self, length_bytes_max: int, preadv: Callable[..., int] | None = None) -> None:
        self._buffer = memoryview(bytearray(length_bytes_max))
        self._preadv = preadv or os.preadv
        self._is_supported = hasattr(os, "RWF_NOWAIT")

    def read(self, descriptor: int, byte_position: int, length_bytes: int) -> bytes | None:
        """All of the bytes, or None where the disk would have to be asked."""
        if not self._is_supported or length_bytes > len(self._buffer):
            return None
        view = self._buffer[:length_bytes]
        try:
            count = self._preadv(descriptor, [view], byte_position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                return None  # The pool meets the same error and reports it.
            self._is_supported = False
            return None
        return bytes(view) if count == length_bytes else None


def flush_file(descriptor: int) -> None:
    """Bytes and length of one file onto the medium."""
    if sys.platform == "darwin":
        # fsync of macOS stops at the drive's volatile cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def flush_directory(path: str) -> None:
    """The names in one directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_file_system(descriptor: int) -> None:
    """Everything dirty on the file system of `descriptor`, which was opened before the writes."""
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_libc: Final = ctypes.CDLL(None, use_errno=True)
