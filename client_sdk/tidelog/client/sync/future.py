"""What send() returns: a place in a batch that will know its offset.

Owns waiting and callbacks. It is slim, because there is one per record: a batch, an index and a
timestamp; all waiting goes through the batch.
"""

import copy
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from tidelog.client.arguments.functions import refuse_awaitable
from tidelog.client.arguments.kinds import seconds
from tidelog.client.engine.produce.batch import Acknowledgement, Batch, Outcome
from tidelog.client.engine.produce.outcomes import so_far
from tidelog.client.shared import io_threads
from tidelog.client.shared.checked import checked
from tidelog.client.types.records import RecordMetadata
from tidelog.wire.errors import ErrorCode, TidelogError

_log = logging.getLogger("tidelog.client")
_NAMED = ("function", "call what was added to the future of a send()")
"""How an error calls a function that returns something to await."""
_lock = threading.Lock()
"""Taken to add a waiter or callback to a batch and to complete one; never while appending."""


class SendFuture(msgspec.Struct, eq=False, gc=False):
    """Done when the record is acknowledged or has failed."""

    _batch: Batch
    _index: int
    _timestamp_ms: int

    def __repr__(self) -> str:
        outcome = self._batch.outcome
        state = "pending"
        if outcome is not None:
            state = repr(outcome) if isinstance(outcome, TidelogError) else repr(self.get(0))
        return f"<SendFuture {state}>"

    @property
    def is_done(self) -> bool:
        """Whether get() returns or raises at once."""
        return self._batch.outcome is not None

    def done(self) -> bool:
        """The same as a method, as concurrent.futures has it."""
        return self._batch.outcome is not None

    def succeeded(self) -> bool:
        """Acknowledged."""
        return isinstance(self._batch.outcome, Acknowledgement)

    def failed(self) -> bool:
        """Ended with an error."""
        return isinstance(self._batch.outcome, TidelogError)

    def exception(self, timeout: float | None = 0) -> TidelogError | None:
        """The error, or None if the record was acknowledged or is still on its way."""
        outcome = self._wait(timeout)
        return outcome if isinstance(outcome, TidelogError) else None

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record was stored; waits up to `timeout` seconds."""
        outcome = self._wait(timeout)
        if outcome is None:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=f"wait for a record to {self._batch.topic}-{self._batch.partition}",
                happened=f"no acknowledgement within timeout={timeout} s; it may still come"
                + so_far(self._batch, time.monotonic_ns()),
            )
        return self._result(outcome)

    result = get

    @checked
    def add_callback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> "SendFuture":
        """Call function(*args, record_metadata, **kwargs) on the I/O thread once acknowledged.

        It may send(); whatever would wait there is refused (CONCURRENT_USE), and what it raises is
        logged.
        """

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Acknowledgement):
                refuse_awaitable(function(*args, self._result(outcome), **kwargs), *_NAMED)

        when_done(self._batch, on_outcome)
        return self

    @checked
    def add_errback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> "SendFuture":
        """Call function(*args, error, **kwargs) on the I/O thread once failed."""

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, TidelogError):
                refuse_awaitable(function(*args, outcome, **kwargs), *_NAMED)

        when_done(self._batch, on_outcome)
        return self

    def _wait(self, timeout: float | None) -> Outcome | None:
        if self._batch.outcome is None:
            wait_done(self._batch, checked_timeout(timeout))
        return self._batch.outcome

    def _result(self, outcome: Outcome) -> RecordMetadata:
        if isinstance(outcome, TidelogError):
            # Each caller gets an error of its own: raising one object from several threads would
            # mix their tracebacks.
            raise copy.copy(outcome)
        append_time_ms = outcome.append_time_ms
        base_offset = outcome.base_offset
        return RecordMetadata(
            topic=self._batch.topic,
            partition=self._batch.partition,
            offset=base_offset + self._index if base_offset >= 0 else -1,
            timestamp=append_time_ms if append_time_ms >= 0 else self._timestamp_ms,
            leader_epoch=outcome.leader_epoch,
        )


def checked_timeout(timeout: object) -> float | None:
    """Seconds, or None: for ever."""
    return None if timeout is None else seconds(timeout, "wait for records", "timeout")


def when_done(batch: Batch, on_outcome: Callable[[Outcome], None]) -> None:
    """Call it with the batch's outcome: on the I/O thread, or here if it has one already."""
    with _lock:
        if batch.outcome is None:
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append(on_outcome)
            return
    assert batch.outcome is not None, "a batch that was done is open again"
    _run_callback(on_outcome, batch.outcome)


def wait_done(batch: Batch, timeout: float | None) -> bool:
    """Wait until the batch is done, at most `timeout` seconds; Ctrl-C ends the wait."""
    if batch.outcome is None and timeout != 0:
        io_threads.refuse_waiting(f"wait for a record to {batch.topic}-{batch.partition}")
    with _lock:
        if batch.outcome is None and batch.waiter is None:
            batch.waiter = threading.Event()
        event: threading.Event | None = batch.waiter
    if event is None:
        return True
    deadline = None if timeout is None else time.monotonic() + timeout
    # An event survives a fork, the thread that sets it does not: outcomes are looked at in slices.
    while batch.outcome is None:
        left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
        if left <= 0:
            return False
        event.wait(left)
    return True


def complete(batch: Batch, outcome: Outcome) -> None:
    """Settle the batch; wake whoever waits, run the callbacks."""
    with _lock:
        batch.complete(outcome)
        waiter: Any = batch.waiter
        callbacks, batch.callbacks = batch.callbacks, None
    if waiter is not None:
        waiter.set()
    for callback in callbacks or ():
        _run_callback(callback, outcome)


def _run_callback(callback: Callable[[Outcome], None], outcome: Outcome) -> None:
    """What the user's code raises is logged, and harms nobody else."""
    try:
        callback(outcome)
    except Exception:  # noqa: BLE001 - a supervisor of code that is not ours
        _log.exception("a callback of send() raised")
