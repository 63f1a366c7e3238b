"""Several clients at once, measured over one span of time in which all of them are at work.

Owns the counting on both sides of the process boundary: a client counts by the tenth of a second,
whoever started it sums the tenths of a span that lies behind the warm-up of the last to be ready.
Clients that are given a number of records instead are let go at once and time themselves. It must
never count what a client moved while another one was still starting.
"""

import signal
import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from bench.processes import Child, ChildFailedError
from bench.table import Throughput

READY: Final = "ready"
WARM_UP_SECONDS: Final = 1.0
BEGIN_SECONDS_MAX: Final = 60.0
END_SECONDS_MAX: Final = 30.0
ROLE_SECONDS_MAX: Final = 300.0
LET_GO: Final = signal.SIGUSR1
SLOTS_PER_SECOND: Final = 10


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What one client moved: records by the tenth of a second of the machine's monotonic clock."""

    slots: dict[int, int]
    record_bytes: int


class Meter:
    """Counts for one client; `add` may be called by any thread, one at a time."""

    def __init__(self, record_bytes: int) -> None:
        self._record_bytes = record_bytes
        self._slots: dict[int, int] = {}

    def add(self, records: int) -> None:
        slot = int(time.monotonic() * SLOTS_PER_SECOND)
        self._slots[slot] = self._slots.get(slot, 0) + records

    def counts(self) -> Counts:
        return Counts(slots=dict(self._slots), record_bytes=self._record_bytes)


class UntilTold:
    """True until this process is asked to end: its clients then finish and tell their counts."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._is_over.set())

    def __bool__(self) -> bool:
        return not self._is_over.is_set()


def say_ready() -> None:
    """The client moves records from now on."""
    print(READY, flush=True)


def wait_let_go() -> None:
    """Ready to begin; returns once all clients of the line are, as whoever started them tells."""
    is_open = threading.Event()
    signal.signal(LET_GO, lambda *_: is_open.set())
    say_ready()
    if not is_open.wait(BEGIN_SECONDS_MAX):
        raise TimeoutError(f"not let go within {BEGIN_SECONDS_MAX:.0f} s")


def timed_together(clients: Sequence[Child]) -> Throughput:
    """Clients that time themselves, let go at once: all their records in the longest time."""
    for client in clients:
        client.wait_line(READY)
    for client in clients:
        client.send(LET_GO)
    done = [client.result(Throughput, timeout_seconds=ROLE_SECONDS_MAX) for client in clients]
    return Throughput(
        records=sum(each.records for each in done),
        record_bytes=done[0].record_bytes,
        seconds=max(each.seconds for each in done),
    )


def measure(clients: Sequence[Child], seconds: float) -> Throughput:
    """What all of them moved together in a span of so many seconds."""
    assert clients, "nobody to measure"
    for client in clients:
        client.wait_line(READY)
    time.sleep(WARM_UP_SECONDS)
    first = int(time.monotonic() * SLOTS_PER_SECOND) + 1
    time.sleep(seconds + 1 / SLOTS_PER_SECOND)
    for client in clients:
        client.check_running()
        client.tell_to_end()
    counts = [client.result(Counts, timeout_seconds=END_SECONDS_MAX) for client in clients]
    return in_span(counts, first, int(seconds * SLOTS_PER_SECOND))


def in_span(counts: Sequence[Counts], first: int, slots: int) -> Throughput:
    """The sum over `slots` tenths of a second; a client that moved nothing in them has failed."""
    span = range(first, first + slots)
    moved = [sum(each.slots.get(slot, 0) for slot in span) for each in counts]
    if not all(moved):
        raise ChildFailedError(f"a client moved nothing while it was measured: {moved}")
    return Throughput(
        records=sum(moved), record_bytes=counts[0].record_bytes, seconds=slots / SLOTS_PER_SECOND
    )
