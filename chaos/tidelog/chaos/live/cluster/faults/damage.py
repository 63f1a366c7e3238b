"""Damage at rest under a replicated cluster: a minority is hit, nothing is lost.

Owns which bytes are turned. They lie below what the partition has committed, in replicas of one
broker only: of one that is dead and led them, or of the leader while it leads. The broker has to
name the file and the byte at which the damaged batch begins. It must never hit a second replica
before the first is whole again.
"""

import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tidelog.chaos.live.cluster.faults.processes import Trouble
from tidelog.chaos.live.cluster.nodes import TidelogCluster
from tidelog.chaos.live.cluster.reader import PAST_ERRORS
from tidelog.chaos.live.cluster.rounds import Watched
from tidelog.chaos.live.cluster.seats import Seat
from tidelog.chaos.live.quorum.flip import flip

DAMAGED_PARTITIONS: Final = 4
NOTICE_SECONDS_MAX: Final = 40.0
READ_SECONDS_MAX: Final = 120.0
POLL_SECONDS: Final = 0.2
_DIRECTORY: Final = re.compile(r"[0-9a-f]{32}-([0-9]+)")
ASIDE: Final = ".damaged-"
TOLD: Final = "replica_damaged"
_BYTE: Final = re.compile(r"damage at byte ([0-9]+)")


class Hit(NamedTuple):
    """A bit that was turned."""

    file: Path
    byte: int


class Corrupt(Trouble):
    """Bits of some logs of one broker are turned: while it is dead, or while it leads them."""

    def __init__(self, cluster: TidelogCluster) -> None:
        super().__init__(cluster.numbers)
        self._cluster = cluster
        self._hit: tuple[Hit, ...] = ()
        self._told: dict[str, str] = {}
        """Of this round, by file."""
        self._aside_before = 0
        self._log_before = 0
        self._reader: subprocess.Popen[bytes] | None = None
        self._rounds = 0

    def strike(self, victim: int, draw: Random) -> str:
        """The two ways in turn."""
        self._rounds += 1
        is_alive = self._rounds % 2 == 0
        node = self._cluster.nodes[victim]
        self._aside_before = aside(node.data_dir)
        led = [n for n, seat in enumerate(self._cluster.seats()) if seat.leader == victim]
        if not is_alive:
            node.kill()
        self._log_before = len(node.log_text())
        logs = self._logs(node.data_dir, led, draw)
        self._hit = tuple(Hit(file, flip(file, draw, upper=0.5)[0]) for file in logs)
        self._told.clear()
        if is_alive:
            # What nobody reads is noticed by the scrubber, days later.
            self._reader = subprocess.Popen(
                [*self._cluster.reader(), PAST_ERRORS],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        state = "that it leads and serves" if is_alive else "that it led, while it is dead"
        return f"a bit in {len(self._hit)} logs {state}"

    @staticmethod
    def _logs(data_dir: Path, led: Sequence[int], draw: Random) -> list[Path]:
        found = []
        for directory in sorted(data_dir.iterdir()):
            match = _DIRECTORY.fullmatch(directory.name)
            if match is not None and int(match[1]) in led:
                found += sorted(directory.glob("*.log"))[:1]
        return draw.sample(found, min(DAMAGED_PARTITIONS, len(found)))

    def heal(self, victim: int) -> None:
        """A dead one starts; then wait until it has set the damaged files aside."""
        node = self._cluster.nodes[victim]
        if not node.is_running:
            node.start()
        deadline = time.monotonic() + NOTICE_SECONDS_MAX
        wanted = self._aside_before + len(self._hit)
        while aside(node.data_dir) < wanted and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if self._reader is not None:
            self._end_reader(self._reader)
            self._reader = None

    @staticmethod
    def _end_reader(reader: subprocess.Popen[bytes]) -> None:
        # It is there to touch what is stored: how it ends says nothing.
        try:
            reader.wait(READ_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            reader.kill()
            reader.wait(READ_SECONDS_MAX)

    def felt(self, before: Sequence[Seat], during: Watched, victim: int) -> str | None:
        """Each damaged replica was named, set aside, its bytes kept, and copied anew."""
        del before, during
        node = self._cluster.nodes[victim]
        found = aside(node.data_dir) - self._aside_before
        said = node.log_text()[self._log_before :]
        named = [named_byte(said, hit) for hit in self._hit]
        for hit, byte in zip(self._hit, named, strict=True):
            where = f"{hit.file.parent.name}/{hit.file.name}"
            at = "it is not named" if byte is None else f"named as damage at byte {byte}"
            # Looked at again and again until all are: each is told when that changes.
            if self._told.get(where) != at:
                self._told[where] = at
                print(f"       {where}: a bit of byte {hit.byte} was turned, {at}", flush=True)
        if found < len(self._hit) or None in named:
            return None
        return f"{found} set aside and copied anew, file and byte of each named"


def named_byte(said: str, hit: Hit) -> int | None:
    """Where the broker's log says that this file's damage is: not behind it; None: nowhere."""
    name = f"{hit.file.parent.name}/{hit.file.name}"
    for line in said.splitlines():
        found = _BYTE.search(line)
        if TOLD in line and name in line and found and int(found[1]) <= hit.byte:
            return int(found[1])
    return None


def aside(data_dir: Path) -> int:
    """How many damaged replicas were set aside there."""
    return sum(ASIDE in each.name for each in data_dir.iterdir())
