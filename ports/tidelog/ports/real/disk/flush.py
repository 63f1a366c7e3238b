"""One flush round: which system calls make a set of files and directories durable.

Few files are flushed one by one, many by one syncfs of their file system. syncfs is trusted only
where it reports a failed write-back (Linux from 5.8, through a descriptor opened before the
writes) and where the file system is known to implement it; elsewhere every file has its own call.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tidelog.ports.disk import gone
from tidelog.ports.real.disk import io as disk_io
from tidelog.ports.real.disk.descriptors import Descriptors, RealFile

SYNCFS_FILES_MIN: Final = 16
"""From this many files on, one syncfs is cheaper than a call for each (docs/adr/0003-fsync.md)."""

_SYNCFS_KERNEL: Final = (5, 8)
_SYNCFS_FILE_SYSTEMS: Final = frozenset({"ext4", "xfs"})
"""Others may skip it silently (FUSE) or report another device than their files' (btrfs)."""


class Flusher:
    """The ways to flush that this directory's system offers."""

    def __init__(
        self,
        root: str,
        *,
        flush_file: Callable[[int], None] = disk_io.flush_file,
        flush_file_system: Callable[[int], None] = disk_io.flush_file_system,
        flush_directory: Callable[[int], None] = os.fsync,
        syncfs_files_min: int = SYNCFS_FILES_MIN,
    ) -> None:
        self.root = root
        self._flush_file = flush_file
        self._flush_directory = flush_directory
        self._flush_file_system = flush_file_system
        self._syncfs_files_min = syncfs_files_min
        # Opened before any write: syncfs reports only the errors that came after the opening.
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._descriptor).st_dev
        self.is_syncfs_trusted = _is_syncfs_trusted(self._device)

    def flush(self, files: dict[RealFile, int], directories: dict[str, int]) -> None:
        """Make durable, or raise what the first failing call raised."""
        at_once = [file for file in files if file.identity[0] == self._device]
        if not self.is_syncfs_trusted or len(at_once) < self._syncfs_files_min:
            at_once = []
        if at_once:
            self._flush_file_system(self._descriptor)
        covered = set(at_once)
        for file, descriptor in files.items():
            if file not in covered:
                self._flush_file(descriptor)
        for descriptor in directories.values():
            # syncfs made the names of its file system durable as well, at once.
            if not at_once or os.fstat(descriptor).st_dev != self._device:
                self._flush_directory(descriptor)

    def close(self) -> None:
        """Give the descriptor of the directory back."""
        os.close(self._descriptor)


class Round:
    """The files and directories of one round, with their descriptors held."""

    def __init__(self, descriptors: Descriptors, flusher: Flusher) -> None:
        self._descriptors = descriptors
        self._flusher = flusher
        self._files: dict[RealFile, int] = {}
        self._directories: dict[str, int] = {}

    def add(self, files: Sequence[RealFile], directories: Sequence[str]) -> None:
        """Take descriptors; one that cannot be had raises and leaves the others in the round.

        What goes by another name now would be durable where no start looks for it: FileUnusable.
        """
        missing = [file.path for file in files if not self._add_file(file)]
        missing += [each for each in directories if not self._add_directory(each)]
        if missing:
            raise gone(f"flush in {self._flusher.root}", missing)

    def _add_file(self, file: RealFile) -> bool:
        if file in self._files:
            return True
        if not self._descriptors.is_named(file):
            return False
        self._files[file] = self._descriptors.pin(file)
        return True

    def _add_directory(self, directory: str) -> bool:
        if directory in self._directories:
            return True
        try:
            self._directories[directory] = os.open(
                os.path.join(self._flusher.root, directory),
                os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
            )
        except OSError as error:
            if disk_io.is_of_the_path(error):
                return False
            raise
        return True

    def flush(self) -> None:
        """Make everything in the round durable; the files are clean after that."""
        self._flusher.flush(self._files, self._directories)
        for file in self._files:
            file.is_dirty = False

    def release(self) -> None:
        """Give the descriptors back."""
        for file in self._files:
            self._descriptors.unpin(file)
        for descriptor in self._directories.values():
            os.close(descriptor)


def _is_syncfs_trusted(device: int) -> bool:
    if sys.platform != "linux" or _kernel_version() < _SYNCFS_KERNEL:
        return False
    return _file_system(device) in _SYNCFS_FILE_SYSTEMS


def _kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)


def _file_system(device: int) -> str:
    """The type of the mounted file system with this device number; empty if it is not listed."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted and after:
            return after.split()[0]
    return ""
