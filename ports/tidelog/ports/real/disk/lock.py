"""The lock of a data directory: one process at a time, told by the kernel, let go at its death."""

import fcntl
import os
from pathlib import Path
from typing import Final

from tidelog.wire.errors import ErrorCode, TidelogError

LOCK_NAME: Final = ".lock"
"""Lies in the data directory and is never listed; holds the pid of its holder, for messages."""


def take_lock(directory: Path) -> int:
    """A descriptor that holds the lock; STORAGE_IN_USE names the holder where it can."""
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", errors="replace").strip()
        os.close(descriptor)
        raise TidelogError(
            ErrorCode.STORAGE_IN_USE,
            tried=f"open the data directory {directory}",
            happened=f"process {holder} has it open" if holder else "another process has it open",
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
