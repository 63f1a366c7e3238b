"""Counts what became of lines that were sent: stored, not stored, or nobody knows.

Owns what is on its way, in chunks, so that memory is bounded by what the producer has in its
buffer. Never waits by itself.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.client import SendFuture
    from tidelog.client.sync.batch_future import SendBatchFuture


class Chunk(Protocol):
    """Lines that were sent together."""

    def __len__(self) -> int:
        """How many."""
        ...

    def is_stored(self) -> bool:
        """Whether all of them are acknowledged."""
        ...

    def is_done(self) -> bool:
        """Whether there is nothing left to wait for."""
        ...

    def outcomes(self) -> Iterator[tuple[int, int, TidelogError | None]]:
        """What is done: place of the first line, how many of them, and why they are not stored."""
        ...


class SentTogether:
    """Lines of one send_batch()."""

    def __init__(self, future: "SendBatchFuture") -> None:
        self._future = future

    def __len__(self) -> int:
        return len(self._future)

    def is_stored(self) -> bool:
        """See `Chunk`."""
        return self._future.succeeded()

    def is_done(self) -> bool:
        """See `Chunk`."""
        return self._future.is_done

    def outcomes(self) -> Iterator[tuple[int, int, TidelogError | None]]:
        """See `Chunk`."""
        for part in self._future.parts():
            yield min(part.positions), len(part), part.error


class SentSingly:
    """Lines of one send() each."""

    def __init__(self, futures: "Sequence[SendFuture]") -> None:
        self._futures = futures

    def __len__(self) -> int:
        return len(self._futures)

    def is_stored(self) -> bool:
        """See `Chunk`."""
        return all(future.succeeded() for future in self._futures)

    def is_done(self) -> bool:
        """See `Chunk`."""
        return all(future.is_done for future in self._futures)

    def outcomes(self) -> Iterator[tuple[int, int, TidelogError | None]]:
        """See `Chunk`."""
        for place, future in enumerate(self._futures):
            if future.is_done:
                yield place, 1, future.exception(0)


class Tally:
    """Lines in the order in which they were sent."""

    def __init__(self) -> None:
        self._open: deque[tuple[int, Chunk]] = deque()
        self._begun = 0
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

    def begin(self, count: int) -> None:
        """So many lines are being sent now; `add` comes when they are."""
        self._begun = count

    def add(self, chunk: Chunk) -> None:
        """Lines that were just sent."""
        self._begun = 0
        if len(chunk):
            self._open.append((self.sent + 1, chunk))
            self.sent += len(chunk)

    def settle(self) -> None:
        """Count every chunk that is done, oldest first."""
        while self._open:
            first_line, chunk = self._open[0]
            if chunk.is_stored():
                self.stored += len(chunk)
            elif chunk.is_done():
                self._count(first_line, chunk)
            else:
                return
            self._open.popleft()

    def settle_all(self) -> None:
        """Count also what is done behind something that is not: nobody waits any longer. Of lines
        that were being sent nothing is known."""
        self.sent += self._begun
        self._begun = 0
        self.settle()
        while self._open:
            self._count(*self._open.popleft())

    def _count(self, first_line: int, chunk: Chunk) -> None:
        for place, count, error in chunk.outcomes():
            if error is None:
                self.stored += count
                continue
            if error.code is ErrorCode.INDETERMINATE:
                self.indeterminate += count
            else:
                self.refused += count
            line = first_line + place
            if self.first_error is None or line < self.first_failed_line:
                self.first_error = error
                self.first_failed_line = line
