"""A group-commit file for the bare chain: appends collect while one write, or one fdatasync, is in
flight.

Owns the disk of the bare skeleton, which Tidelog is compared with: of a file that is only written
every byte costs what the page cache costs, as it does in a log that does not wait for its flush. It
must never tell a position stored before the write, and the fdatasync if there is one, that covers
it has returned.
"""

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable


class GroupCommit:
    """One file, one thread; `stored` counts the appends that are written, and durable if asked."""

    def __init__(self, directory: str, *, is_flushed: bool = True) -> None:
        handle, name = tempfile.mkstemp(dir=directory)
        os.unlink(name)  # gone with the process, however that ends
        self._file = handle
        self._is_flushed = is_flushed
        self._changed = threading.Condition()
        self._pending: list[bytes] = []
        self._appended = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notify: Callable[[], None] = lambda: None
        self.stored = 0
        threading.Thread(target=self._run, daemon=True).start()

    def on_stored(self, loop: asyncio.AbstractEventLoop, notify: Callable[[], None]) -> None:
        self._loop, self._notify = loop, notify

    def append(self, message: bytes) -> int:
        """Its position: stored as soon as `stored` has come so far."""
        with self._changed:
            self._pending.append(message)
            self._appended += 1
            self._changed.notify()
            return self._appended

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._pending:
                    self._changed.wait()
                taken, self._pending = self._pending, []
            self._write(b"".join(taken))
            if self._is_flushed:
                os.fdatasync(self._file)
            self.stored += len(taken)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._notify)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
