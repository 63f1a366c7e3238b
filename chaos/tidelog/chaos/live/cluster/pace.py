"""The pace of a producer of a live run: so many records a second, over all partitions in turn.

Owns when a record is due. It must never make up for lost time: a burst would measure itself. A
partition is given what is due to it in `TURN_SECONDS` at once, so that batches hold more than one
record, and the next one follows. A partition that does not answer is left out once it has too many
unanswered records, so that the others are written to all the same.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.chaos.live.cluster.journal import Journal, value_of

TICK_SECONDS: Final = 0.05
TURN_SECONDS: Final = 0.2
"""In which each partition has its turn: also how far apart its acknowledgements are at rest."""
TELL_SECONDS: Final = 0.1
UNANSWERED_MAX: Final = 3_000
"""Of one partition."""
BEHIND_SECONDS_MAX: Final = 0.25
Send = Callable[[int, int, bytes], None]
"""Partition, number, value."""


def run_until_told(
    send: Send,
    journal: Journal,
    *,
    name: str,
    partition_count: int,
    rate: float,
    on_tick: Callable[[], object] = lambda: None,
) -> None:
    """Send until standard input ends; tell on standard output how far it is."""
    stop = threading.Event()
    threading.Thread(target=wait_end, args=(stop,), daemon=True).start()
    run = run_length(rate, partition_count)
    number, told, due_from = 0, 0.0, time.monotonic()
    while not stop.is_set():
        now = time.monotonic()
        due_from = max(due_from, now - BEHIND_SECONDS_MAX)
        for _ in range(int((now - due_from) * rate)):
            due_from += 1 / rate
            partition = number // run % partition_count
            if journal.unanswered(partition) >= UNANSWERED_MAX:
                journal.hold_back()
            else:
                journal.begin(partition, number)
                send(partition, number, value_of(name, number))
            number += 1
        on_tick()
        if now - told >= TELL_SECONDS:
            told = now
            tell(journal)
        stop.wait(TICK_SECONDS)


def run_length(rate: float, partition_count: int) -> int:
    """How many records one behind the other go to one partition."""
    return max(1, round(rate * TURN_SECONDS / partition_count))


def tell(journal: Journal) -> None:
    """One line of progress."""
    print(msgspec.json.encode(journal.progress()).decode(), flush=True)


def wait_end(stop: threading.Event) -> None:
    """Whoever has started this producer closes the pipe, or is gone."""
    sys.stdin.read()
    stop.set()
