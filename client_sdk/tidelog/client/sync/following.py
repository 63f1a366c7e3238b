"""What a table on threads does otherwise than one on asyncio: a thread follows, beside the readers.

Owns the thread and the lock. The text of both tables is `tidelog.client.aio.table`;
`tidelog.client.aio.following` is this for asyncio.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from tidelog.client.shared import io_threads
from tidelog.client.shared.table_parts import TableReads, TableSnapshot
from tidelog.client.sync.consumer import Consumer
from tidelog.wire.errors import TidelogError

CLOSE_S: Final = 5.0
LOOK_S: Final = 1.0
"""A wait looks up this often, whatever it is told."""


class Following(TableReads):
    """Reads under a lock: a snapshot never sees half of a poll."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._changed = threading.Condition()
        """Held while records are applied."""
        self._follower: threading.Thread | None = None

    def snapshot(self) -> TableSnapshot:
        """All entries of one moment, and the offsets that they stand for; costs a copy of the
        references."""
        with self._changed:
            return super().snapshot()

    def _wait_until(self, look: Callable[[], bool], timeout_s: float, tried: str) -> bool:
        """Whether it came true in time; looks after each change."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not look():
                io_threads.refuse_waiting(tried)
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, LOOK_S))
        return True

    def _begin_to_follow(self, work: Callable[[], None]) -> None:
        self._follower = threading.Thread(target=work, name="tidelog-table", daemon=True)
        self._follower.start()

    def _end_following(self, consumer: Consumer) -> None:
        """The thread has ended when it returns, or does not answer."""
        if self._follower is not None and self._follower.is_alive():
            with contextlib.suppress(TidelogError):
                consumer.wakeup()
            self._follower.join(CLOSE_S)
