"""Counts what became of lines that were sent: stored, not stored, or nobody knows.

Owns the futures of lines on their way, in chunks, so that memory is bounded by what the producer
has in its buffer. Never waits by itself.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.client import SendFuture


class Tally:
    """Lines in the order in which they were sent."""

    def __init__(self, is_stored: "Callable[[SendFuture], bool]") -> None:
        self._is_stored = is_stored
        self._open: deque[tuple[int, Sequence[SendFuture]]] = deque()
        self._begun: Sequence[SendFuture] = ()
        self.sent = 0
        self.stored = 0
        self.indeterminate = 0
        self.refused = 0
        self.first_failed_line = 0
        self.first_error: TidelogError | None = None

    @property
    def on_their_way(self) -> int:
        """Lines whose outcome is not known yet."""
        return self.sent - self.stored - self.indeterminate - self.refused

    def begin(self, futures: "Sequence[SendFuture]") -> None:
        """Lines that are being sent now; `add` comes when the last of them is."""
        self._begun = futures

    def add(self, futures: "Sequence[SendFuture]") -> None:
        """Lines that were just sent."""
        self._begun = ()
        if futures:
            self._open.append((self.sent + 1, futures))
            self.sent += len(futures)

    def settle(self) -> None:
        """Count every chunk that is done, oldest first."""
        while self._open:
            first_line, futures = self._open[0]
            if all(map(self._is_stored, futures)):
                self.stored += len(futures)
            elif all(future.is_done for future in futures):
                self._count(first_line, futures)
            else:
                return
            self._open.popleft()

    def settle_all(self) -> None:
        """Count also what is done behind something that is not: nobody waits any longer."""
        self.add(self._begun)
        self.settle()
        while self._open:
            first_line, futures = self._open.popleft()
            self._count(first_line, [future for future in futures if future.is_done])

    def _count(self, first_line: int, futures: "Sequence[SendFuture]") -> None:
        for line, future in enumerate(futures, first_line):
            error = future.exception(0)
            if error is None:
                self.stored += 1
                continue
            if error.code is ErrorCode.INDETERMINATE:
                self.indeterminate += 1
            else:
                self.refused += 1
            if self.first_error is None:
                self.first_error = error
                self.first_failed_line = line
