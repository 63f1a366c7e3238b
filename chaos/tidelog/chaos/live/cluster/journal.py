"""What a producer of a live run has sent, one entry a record, in a file of fixed-size entries.

Owns the file's format and the counts that a running producer tells of itself. A record is written
down when its outcome is known; what has none at the end is indeterminate.
"""

import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.checkers.history.history import Outcome

_ENTRY: Final = struct.Struct("<HIqqqB")
_OUTCOMES: Final = (Outcome.ACKNOWLEDGED, Outcome.INDETERMINATE, Outcome.FAILED)
VALUE_BYTES: Final = 100
_PADDING: Final = b" "


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record; times are monotonic nanoseconds, which all processes of a machine share."""

    partition: int
    number: int
    """Of the producer's records, over all partitions."""
    began_ns: int
    ended_ns: int
    offset: int
    """-1: not acknowledged."""
    outcome: Outcome


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A producer so far."""

    acknowledged: int = 0
    unanswered: int = 0
    held_back: int = 0
    """Records that were due and not sent: their partition had too many unanswered ones."""
    oldest_ns: int = 0
    """Every partition has acknowledged a record that was sent at this time or later."""


def value_of(writer: str, number: int) -> bytes:
    """What is stored: names its send, and is as long as every other."""
    return f"{writer}:{number}".encode().ljust(VALUE_BYTES, _PADDING)


def name_of(value: bytes) -> str:
    """The name in a stored value."""
    return value.rstrip(_PADDING).decode("utf-8", "replace")


class Journal:
    """Written by one producer; used from the thread that sends and the one that hears."""

    def __init__(self, file: Path, partition_count: int) -> None:
        self._file = file.open("wb")
        self._lock = threading.Lock()
        self._pending: list[dict[int, int]] = [{} for _ in range(partition_count)]
        self._latest = [0] * partition_count
        self._acknowledged = 0
        self._held_back = 0

    def unanswered(self, partition: int) -> int:
        """Of one partition."""
        return len(self._pending[partition])

    def begin(self, partition: int, number: int) -> None:
        """A record is about to leave."""
        with self._lock:
            self._pending[partition][number] = time.monotonic_ns()

    def hold_back(self) -> None:
        """A record was due and is not sent."""
        self._held_back += 1

    def end(self, partition: int, number: int, outcome: Outcome, offset: int = -1) -> None:
        """What became of it."""
        with self._lock:
            began_ns = self._pending[partition].pop(number)
            self._write(partition, number, began_ns, outcome, offset)
            if outcome is Outcome.ACKNOWLEDGED:
                self._acknowledged += 1
                self._latest[partition] = max(self._latest[partition], began_ns)

    def _write(
        self, partition: int, number: int, began_ns: int, outcome: Outcome, offset: int
    ) -> None:
        ended_ns = time.monotonic_ns()
        kind = _OUTCOMES.index(outcome)
        self._file.write(_ENTRY.pack(partition, number, began_ns, ended_ns, offset, kind))

    def progress(self) -> Progress:
        """So far."""
        with self._lock:
            return Progress(
                acknowledged=self._acknowledged,
                unanswered=sum(map(len, self._pending)),
                held_back=self._held_back,
                oldest_ns=min(self._latest),
            )

    def close(self) -> None:
        """What has no outcome never gets one."""
        with self._lock:
            for partition, pending in enumerate(self._pending):
                for number, began_ns in pending.items():
                    self._write(partition, number, began_ns, Outcome.INDETERMINATE, -1)
                pending.clear()
            self._file.close()


def read_journal(file: Path) -> Iterator[Entry]:
    """Every entry, in the order in which they ended."""
    for found in _ENTRY.iter_unpack(file.read_bytes()):
        partition, number, began_ns, ended_ns, offset, kind = found
        yield Entry(
            partition=partition,
            number=number,
            began_ns=began_ns,
            ended_ns=ended_ns,
            offset=offset,
            outcome=_OUTCOMES[kind],
        )
