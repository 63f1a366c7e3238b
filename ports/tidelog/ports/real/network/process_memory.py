"""How much memory this process has of its own, and giving back what is free.

The figure is what has to stay bounded, costs a microsecond to read, and covers connections that
nobody has looked at yet. Where a system does not tell it, it stays 0 and never grows.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Final

_STATM: Final = "/proc/self/statm"
_LINE_BYTES: Final = 256


class ProcessMemory:
    """Of this process: resident, without what files back."""

    def __init__(self, statm: str = _STATM) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._descriptor = os.open(statm, os.O_RDONLY | os.O_CLOEXEC)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._trim: Callable[[int], int] | None = None
        with contextlib.suppress(OSError, AttributeError):
            self._trim = ctypes.CDLL(None).malloc_trim

    def now_bytes(self) -> int:
        """As of now; 0: the system does not tell."""
        if self._descriptor < 0:
            return 0
        try:
            _, resident, shared, *_ = os.pread(self._descriptor, _LINE_BYTES, 0).split()
            return (int(resident) - int(shared)) * self._page_bytes
        except (OSError, ValueError):
            return 0

    def give_back(self) -> None:
        """Let the system have what is free: glibc keeps it where memory above is still in use,
        some 100 MiB of large messages (seen). Takes tens of milliseconds, without the interpreter.
        """
        if self._trim is not None:
            self._trim(0)

    def close(self) -> None:
        """Read no more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
