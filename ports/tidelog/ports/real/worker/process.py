"""The worker's process: reads orders from standard input, runs the jobs, answers.

Started as `python -m tidelog.ports.real.worker.process`. It ends with its node: the end of
standard input, which the system closes with the node's process, ends it even in the middle of a
job. It must never print on the answers' pipe, so that is moved away before any job runs.
"""

import importlib
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from typing import BinaryIO, Final

import msgspec

from tidelog.ports.real.worker.files import DirectoryFiles
from tidelog.wire.errors import ErrorCode, TidelogError

LENGTH_BYTES: Final = 8
JOB_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of a job's arguments and of its result."""
NICENESS: Final = 10
"""Background work gives way to the node."""
IDLE_CREDIT_S: Final = 0.25
"""Of a rate that was not used, so much may be caught up on at once."""


class Order(msgspec.Struct, frozen=True, array_like=True):
    """What to run, on which directory."""

    job: str
    arguments: bytes
    root: str
    bytes_per_second: int


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What became of it. A `code` other than 0 is a TidelogError of the job's."""

    result: bytes = b""
    failure: str = ""
    """What else it raised; empty if it ended well."""
    code: int = 0
    tried: str = ""
    happened: str = ""
    hint: str = ""


class Pace:
    """Holds a job to its rate: sleeps until what it has moved is paid for."""

    def __init__(
        self,
        bytes_per_second: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._paid_until_s = monotonic()

    def spend(self, length_bytes: int) -> None:
        """Called after so much was read and written."""
        if not self._bytes_per_second:
            return
        now_s = self._monotonic()
        earliest_s = max(self._paid_until_s, now_s - IDLE_CREDIT_S)
        self._paid_until_s = earliest_s + length_bytes / self._bytes_per_second
        if self._paid_until_s > now_s:
            self._sleep(self._paid_until_s - now_s)


_order_decoder: Final = msgspec.msgpack.Decoder(Order)


def frame(message: Order | Outcome) -> bytes:
    """A message with its length in front."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def main() -> None:
    """Run jobs until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.nice(NICENESS)
    orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(sys.stdin.buffer, orders), daemon=True).start()
    while True:
        answers.write(frame(run_order(orders.get())))
        answers.flush()


def run_order(order: Order) -> Outcome:
    """Run the named job to its end, and keep what it raises."""
    try:
        result = _run_job(order)
    except TidelogError as error:
        return Outcome(
            code=error.code.value, tried=error.tried, happened=error.happened, hint=error.hint
        )
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return Outcome(failure=f"{type(error).__name__}: {error}")
    if not isinstance(result, bytes):
        return Outcome(failure=f"it returned {type(result).__name__}, not bytes")
    return Outcome(result)


def _run_job(order: Order) -> object:
    module, _, function = order.job.partition(":")
    job = getattr(importlib.import_module(module), function)
    files = DirectoryFiles(order.root)
    pace = Pace(order.bytes_per_second)
    try:
        steps: Generator[int, None, object] = job(files, order.arguments)
        while True:
            try:
                pace.spend(next(steps))
            except StopIteration as end:
                return end.value
    finally:
        files.close()


def raise_failure(outcome: Outcome) -> None:
    """In the node: the TidelogError that the job raised, as it was."""
    if outcome.code:
        raise TidelogError(
            ErrorCode(outcome.code),
            tried=outcome.tried,
            happened=outcome.happened,
            hint=outcome.hint,
        )


def _read_orders(pipe: BinaryIO, orders: "queue.SimpleQueue[Order]") -> None:
    while len(prefix := pipe.read(LENGTH_BYTES)) == LENGTH_BYTES:
        orders.put(_order_decoder.decode(pipe.read(int.from_bytes(prefix, "big"))))
    # The node is gone, and nobody takes the answer of a job in progress.
    os._exit(0)


if __name__ == "__main__":
    main()
