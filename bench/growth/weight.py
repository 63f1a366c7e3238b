"""What a node's processes use: CPU over a span, memory at a moment, bytes on the loopback device.

Owns the reading of the kernel's counters. A node's worker processes belong to it.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from bench.processes import cpu_seconds, resident_bytes

MIB: Final = 1024 * 1024
KIB: Final = 1024
LOOPBACK: Final = "lo:"


def family(pid: int) -> list[int]:
    """A process and those that it started, as far as they are there."""
    found = [pid]
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as children:
                for child in children.read().split():
                    found += family(int(child))
    return found


def memory_bytes(pid: int) -> int:
    """What the node's processes hold in RAM, together; pages that they share count for each."""
    return sum(resident_bytes(each) for each in family(pid))


def loopback_bytes() -> int:
    """What the machine has sent to itself so far, envelopes of TCP included."""
    with open("/proc/net/dev", encoding="ascii") as devices:
        for line in devices:
            name, *fields = line.split()
            if name == LOOPBACK:
                return int(fields[8])
    return 0


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Over a span: seconds, CPU seconds of each node, bytes on loopback."""

    seconds: float
    cpu_seconds: tuple[float, ...]
    loopback_bytes: int

    @property
    def share(self) -> float:
        """Of a core, all nodes together."""
        return sum(self.cpu_seconds) / self.seconds


class Scales:
    """Weighs from construction to `read`."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._cpu = self._cpu_now()
        self._loopback = loopback_bytes()
        self._start = time.perf_counter()

    def _cpu_now(self) -> list[float]:
        return [sum(cpu_seconds(each) for each in family(pid)) for pid in self._pids]

    def read(self) -> Spent:
        seconds = time.perf_counter() - self._start
        spent = zip(self._cpu_now(), self._cpu, strict=True)
        return Spent(
            seconds=seconds,
            cpu_seconds=tuple(after - before for after, before in spent),
            loopback_bytes=loopback_bytes() - self._loopback,
        )
