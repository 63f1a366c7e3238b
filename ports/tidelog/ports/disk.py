"""One data directory: files that are appended to, and the only call that makes them durable.

Stop 6 of a record's walk passes through here. What the port promises, on the real and on the
simulated disk (tests/ports holds both to it):

 1. `append` and `truncate` take effect in the order in which they were called, per directory.
 2. What an `append` wrote is seen by every later `read`, before it is durable.
 3. Only `flush` makes durable: a file's bytes and length if the file is named, the names in a
    directory if the directory is named. A crash keeps everything flushed; of the rest it keeps
    any part, also torn inside one append, also later bytes without earlier ones.
 4. A `flush` covers every append and truncate that had *ended* before the call.
 5. After a `flush` that failed, every later write or flush of the directory fails with
    STORAGE_FAILED: the pages may be marked clean, so trying again would lie.
 6. Paths are relative to the directory, with `/`, and never leave it.
 7. Every failure is a TidelogError: STORAGE_FAILED (I/O error, a path that is not allowed or not
    there; `FileUnusable` where fault was found with a path and not with the disk: nothing is
    there, something else is, or it may not be touched), STORAGE_FULL (no space),
    STORAGE_IN_USE (lock), CLOSED (after shutdown or close). An append that failed may have taken
    effect in part: until the file is truncated, further appends to it fail, so that nothing is
    written behind a tear. One that failed with FileUnusable has written nothing to any of its
    files, and names those that are at fault.
 8. A `flush` of a file or a directory that is no longer found under its name, though nobody
    removed it through this port, makes nothing durable that a start would find: it raises
    FileUnusable, which names each of them. The others are flushed by a call that leaves these out.
 9. A data directory that is itself no longer found under its name (unmounted, renamed, replaced) is
    changed no more: whatever opens, lists, makes, changes or flushes anything looks first, and
    fails with DirectoryGone; after a change that failed so, every later one does. Nothing is made
    in its place.
10. What was submitted takes effect although its caller is cancelled; the pieces of an append
    belong to the disk until it has ended.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError

NAMES_SHOWN_MAX: Final = 3
"""Paths that a message names; of the others it gives the number."""


class FileUnusable(TidelogError):
    """STORAGE_FAILED, of files or directories: the disk below has not failed, and other files are
    as they were. Whoever needs these stops, and nobody else."""

    paths: tuple[str, ...] = ()
    """Relative to the data directory; empty where a call named one path only."""


class DirectoryGone(TidelogError):
    """STORAGE_FAILED, of the whole data directory: it is not where its name leads any more."""


def directory_gone(tried: str, name: str) -> DirectoryGone:
    """The error for a data directory that was moved away, unmounted or replaced."""
    return DirectoryGone(
        ErrorCode.STORAGE_FAILED,
        tried=tried,
        happened=f"the directory {name} is not there under its name any more, or another one is: "
        "it was unmounted, renamed or replaced. Nothing was made in its place",
        hint="Mount it, or put it back under its name, and start the node again: it goes on with "
        "what the directory holds. Other directories go on meanwhile.",
    )


PUT_BACK: Final = (
    "Somebody has removed, renamed or replaced it: put it back under its name, and nothing is "
    "lost. If it is gone and another broker has a replica, it is copied from there by itself; a "
    "file of an only replica comes back from a backup. Leave the data directory to the node."
)
"""What to do about a file that is not found under its name any more."""


def unusable(error: FileUnusable, tried: str, paths: Sequence[str]) -> FileUnusable:
    """The same fault, of these files."""
    shown = ", ".join(paths[:NAMES_SHOWN_MAX])
    more = f" and {len(paths) - NAMES_SHOWN_MAX} more" if len(paths) > NAMES_SHOWN_MAX else ""
    found = FileUnusable(
        error.code, tried=f"{tried}: {shown}{more}", happened=error.happened, hint=error.hint
    )
    found.paths = tuple(paths)
    return found


def gone(tried: str, paths: Sequence[str]) -> FileUnusable:
    """The error for files or directories that are not found under their names any more."""
    shown = ", ".join(paths[:NAMES_SHOWN_MAX])
    more = f" and {len(paths) - NAMES_SHOWN_MAX} more" if len(paths) > NAMES_SHOWN_MAX else ""
    error = FileUnusable(
        ErrorCode.STORAGE_FAILED,
        tried=f"{tried}: {shown}{more}",
        happened="it is not there under its name any more",
        hint=PUT_BACK,
    )
    error.paths = tuple(paths)
    return error


class File(Protocol):
    """An open file. Its length is known without asking the disk: one writer owns it."""

    @property
    def path(self) -> str:
        """Relative to the data directory."""
        ...

    @property
    def size_bytes(self) -> int:
        """Where the next append goes: behind all appends that have ended."""
        ...


class Append(msgspec.Struct, frozen=True):
    """Bytes to be written at the end of one file, as several pieces to save a copy."""

    file: File
    pieces: Sequence[bytes | bytearray | memoryview]


class Disk(Protocol):
    """A data directory. Made by an adapter's `open_disk`, which takes the lock."""

    @property
    def name(self) -> str:
        """For messages: where the directory is."""
        ...

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and appending; with `create` it must not exist yet.

        A missing file (or, with `create`, an existing one) raises FileUnusable.
        """
        ...

    async def close(self, file: File) -> None:
        """Give the descriptor back. The file's unflushed bytes stay unflushed."""
        ...

    async def append(self, appends: Sequence[Append]) -> None:
        """Write all of them, in order, in one turn of the writer."""
        ...

    async def read(self, file: File, byte_position: int, length_bytes: int) -> bytes:
        """Up to `length_bytes` from `byte_position`; shorter only at the end of the file."""
        ...

    async def truncate(self, file: File, size_bytes: int) -> None:
        """Cut the tail off."""
        ...

    async def flush(self, files: Sequence[File], *, directories: Sequence[str] = ()) -> None:
        """Make the files' bytes, and the names in the directories, durable.

        `directories` are paths relative to the data directory; "" is the data directory itself.
        """
        ...

    async def list(self, directory: str = "") -> list[str]:
        """The names in a directory, sorted; directories end with `/`. Missing: empty."""
        ...

    async def make_directory(self, path: str) -> None:
        """With its parents; existing ones are fine."""
        ...

    async def rename(self, old: str, new: str) -> None:
        """Replace atomically; durable once both parents are flushed."""
        ...

    async def remove(self, path: str) -> None:
        """A file, or a directory with all in it; durable once the parent is flushed."""
        ...

    async def free_bytes(self) -> int:
        """Room left on the file system for unprivileged writers."""
        ...

    async def shutdown(self) -> None:
        """Close every file, stop the threads, let the lock go. Flushes nothing."""
        ...
