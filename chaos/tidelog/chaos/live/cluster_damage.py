"""Damage at rest and full disks under a replicated cluster: a minority is hit, nothing is lost.

Owns which bytes are turned and which disk is filled. Bytes are turned below what the partition has
committed, in replicas of one broker only: of a follower, a former leader, or the leader while it
leads. It must never hit a second replica before the first is whole again.
"""

import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from tidelog.chaos.live.cluster_faults import Trouble
from tidelog.chaos.live.cluster_nodes import TidelogCluster
from tidelog.chaos.live.cluster_reader import PAST_ERRORS
from tidelog.chaos.live.cluster_rounds import Watched
from tidelog.chaos.live.cluster_seats import Seat
from tidelog.chaos.live.quorum_flip_case import flip
from tidelog.chaos.live.quorum_full_disk import fill
from tidelog.chaos.live.server_process import ServerProcess
from tidelog.wire.errors import ErrorCode, TidelogError

DAMAGED_PARTITIONS: Final = 4
NOTICE_SECONDS_MAX: Final = 40.0
READ_SECONDS_MAX: Final = 120.0
POLL_SECONDS: Final = 0.2
FULL_SECONDS: Final = 20.0
"""Longer than a replica may lag, so that what others lead goes on without it."""
TOLD: Final = ("space_low", ErrorCode.STORAGE_FULL.name)
FILLER: Final = "filler"
_DIRECTORY: Final = re.compile(r"[0-9a-f]{32}-([0-9]+)")
ASIDE: Final = ".damaged-"


class Corrupt(Trouble):
    """Bits of some logs of one broker are turned: while it is dead, or while it leads them."""

    def __init__(self, cluster: TidelogCluster) -> None:
        super().__init__(cluster.numbers)
        self._cluster = cluster
        self._hit: tuple[Path, ...] = ()
        self._aside_before = 0
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
        self._hit = tuple(self._logs(node.data_dir, led, draw))
        for file in self._hit:
            flip(file, draw, upper=0.5)
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
        """Each damaged replica was set aside, its bytes kept, and copied anew."""
        del before, during
        found = aside(self._cluster.nodes[victim].data_dir) - self._aside_before
        return f"{found} set aside and copied anew" if found >= len(self._hit) else None


def aside(data_dir: Path) -> int:
    """How many damaged replicas were set aside there."""
    return sum(ASIDE in each.name for each in data_dir.iterdir())


class FullDisk(Trouble):
    """No room on one broker's disk for a while; partitions that it leads may stand still."""

    hold_seconds = FULL_SECONDS
    has_to_return = False

    def __init__(self, cluster: TidelogCluster, victim: int) -> None:
        super().__init__([victim])
        self._cluster = cluster
        self._told_before = 0

    def strike(self, victim: int, draw: Random) -> str:
        """Fill it to the last block."""
        del draw
        node = self._cluster.nodes[victim]
        self._told_before = told(node)
        fill(self._filler(victim))
        return "its disk is full"

    def heal(self, victim: int) -> None:
        """There is room again."""
        self._filler(victim).unlink()

    def _filler(self, victim: int) -> Path:
        return self._cluster.nodes[victim].data_dir.parent / FILLER

    def felt(self, before: Sequence[Seat], during: Watched, victim: int) -> str | None:
        """It says so, or the in-sync sets are without it."""
        del before
        count = told(self._cluster.nodes[victim]) - self._told_before
        if not count and not during.left_in_sync:
            return None
        return (
            f"told {count} times, {during.left_in_sync} in-sync sets without, "
            f"{during.leaders_moved} leaders moved"
        )


def told(node: ServerProcess) -> int:
    """How often its log says that there is no room."""
    text = node.log_text()
    return sum(text.count(word) for word in TOLD)


def check_mount(place: Path | None) -> Path:
    """The mounted disk; an error where none may be mounted."""
    if place is None:
        raise TidelogError(
            ErrorCode.UNAVAILABLE,
            tried="mount a small disk for one node",
            happened=f"user {os.geteuid()} may not",
            hint="Run the case as root, in a container of its own.",
        )
    return place
