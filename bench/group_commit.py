"""A group-commit file for the bare chain: appends collect while one fdatasync is in flight.

Owns the durable side of the bare skeleton, which Tidelog's latency is compared with. It must never
tell a position flushed before the fdatasync that covers it has returned.
"""

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable


class GroupCommit:
    """One file, one flushing thread; `flushed` counts the appends that are durable."""

    def __init__(self, directory: str) -> None:
        handle, name = tempfile.mkstemp(dir=directory)
        os.unlink(name)  # gone with the process, however that ends
        self._file = handle
        self._changed = threading.Condition()
        self._pending: list[bytes] = []
        self._appended = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notify: Callable[[], None] = lambda: None
        self.flushed = 0
        threading.Thread(target=self._run, daemon=True).start()

    def on_flushed(self, loop: asyncio.AbstractEventLoop, notify: Callable[[], None]) -> None:
        self._loop, self._notify = loop, notify

    def append(self, message: bytes) -> int:
        """Its position: durable as soon as `flushed` has come so far."""
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
            os.fdatasync(self._file)
            self.flushed += len(taken)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._notify)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
