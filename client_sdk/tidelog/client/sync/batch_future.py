"""What send_batch() and send_arrow() return: done when every record of the call is.

Owns waiting and callbacks for many records, and the error of a call that took some of them only. It
keeps places, not records: they are let go with their batches.
"""

import threading
import time
from collections.abc import Callable, Sequence

from tidelog.client.arguments.functions import refuse_awaitable
from tidelog.client.bulk.appending import Part
from tidelog.client.bulk.sent import (
    SentBatch,
    SentPart,
    first_error,
    sent_part,
    waiting_too_long,
)
from tidelog.client.engine.produce.batch import Batch, Outcome
from tidelog.client.shared.checked import checked
from tidelog.client.sync.future import checked_timeout, wait_done, when_done
from tidelog.wire.errors import ErrorCode, TidelogError

_NAMED = ("function", "call what was added to the future of a send_batch()")
"""How an error calls a function that returns something to await."""


class SendBatchFuture:
    """Done when all records of the call are acknowledged or have failed."""

    __slots__ = ("_batches", "_count", "_parts", "_topic")

    def __init__(self, topic: str, parts: Sequence[Part], count: int) -> None:
        self._topic = topic
        self._parts = parts
        self._count = count
        self._batches: list[Batch] = list(
            {part.batch.number: part.batch for part in parts}.values()
        )

    def __len__(self) -> int:
        """How many records it speaks of."""
        return self._count

    def __repr__(self) -> str:
        state = "pending"
        if self.is_done:
            state = "stored" if self.succeeded() else "failed"
        return f"<{type(self).__name__} {self._topic} records={self._count} {state}>"

    @property
    def is_done(self) -> bool:
        """Whether get() returns or raises at once."""
        return all(batch.outcome is not None for batch in self._batches)

    def done(self) -> bool:
        """The same as a method, as concurrent.futures has it."""
        return self.is_done

    def succeeded(self) -> bool:
        """All acknowledged."""
        return self.is_done and not self.failed()

    def failed(self) -> bool:
        """Something of it ended with an error."""
        return any(isinstance(batch.outcome, TidelogError) for batch in self._batches)

    def exception(self, timeout: float | None = 0) -> TidelogError | None:
        """The first error, or None if all is acknowledged or still on its way."""
        self._wait(timeout)
        return first_error(self._topic, self._parts, self._count)

    def get(self, timeout: float | None = None) -> SentBatch:
        """Where the records are stored; waits up to `timeout` seconds.

        Raises the first error if any record failed: `parts()` then tells of each.
        """
        if not self._wait(timeout):
            raise waiting_too_long(self._topic, timeout)
        return self._result()

    result = get

    def parts(self) -> list[SentPart]:
        """What is done of it so far, in the order of sending: stored, or failed with its error."""
        return [
            sent_part(self._topic, part) for part in self._parts if part.batch.outcome is not None
        ]

    @checked
    def add_callback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> "SendBatchFuture":
        """Call function(*args, sent_batch, **kwargs) on the I/O thread once all is stored."""

        def on_done() -> None:
            if not self.failed():
                refuse_awaitable(function(*args, self._result(), **kwargs), *_NAMED)

        self._when_done(on_done)
        return self

    @checked
    def add_errback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> "SendBatchFuture":
        """Call function(*args, error, **kwargs) on the I/O thread once all is done and not all of
        it stored."""

        def on_done() -> None:
            error = first_error(self._topic, self._parts, self._count)
            if error is not None:
                refuse_awaitable(function(*args, error, **kwargs), *_NAMED)

        self._when_done(on_done)
        return self

    def _when_done(self, on_done: Callable[[], None]) -> None:
        left = _Countdown(len(self._batches), on_done)
        if not self._batches:
            on_done()
        for batch in self._batches:
            when_done(batch, left.on_outcome)

    def _wait(self, timeout: float | None) -> bool:
        limit_s = checked_timeout(timeout)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        for batch in self._batches:
            if batch.outcome is None:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not wait_done(batch, left):
                    return False
        return True

    def _result(self) -> SentBatch:
        error = first_error(self._topic, self._parts, self._count)
        if error is not None:
            raise error
        return SentBatch(topic=self._topic, parts=tuple(self.parts()))


class PartlySentError(TidelogError):
    """A bulk call ended before it had taken all of its records.

    What it has taken is on its way: `sent` is its future, and tells which records that are.
    """

    def __init__(self, cause: TidelogError, sent: SendBatchFuture, count: int) -> None:
        super().__init__(
            cause.code,
            tried=cause.tried,
            happened=f"{cause.happened}; {len(sent)} of {count} records had been taken by then",
            hint=cause.hint or "send again what the error's `sent` does not speak of",
        )
        self.sent = sent

    def __reduce__(self) -> tuple[object, ...]:
        # A future belongs to its process.
        return (_rebuild_plain, (self.code, self.tried, self.happened, self.hint))


def _rebuild_plain(code: ErrorCode, tried: str, happened: str, hint: str) -> TidelogError:
    return TidelogError(code, tried=tried, happened=happened, hint=hint)


class _Countdown:
    """Calls once, when the last of several batches has its outcome, on whichever thread that is."""

    def __init__(self, count: int, on_done: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._left = count
        self._on_done = on_done

    def on_outcome(self, _: Outcome) -> None:
        """Of one batch."""
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._on_done()
