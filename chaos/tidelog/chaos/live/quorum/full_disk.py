"""A voter's disk without room: the others go on, it says so, and it comes back when there is room.

Owns a small file system of its own (needs the right to mount one) and the filler on it.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.chaos.live.quorum.load import QuorumLoad
from tidelog.chaos.live.quorum.rounds import wait_writes
from tidelog.wire.errors import ErrorCode, TidelogError

SMALL_BYTES: Final = 64 * 1024 * 1024
FILL_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A disk with more room than that is nobody's small one."""
MOUNT_SECONDS_MAX: Final = 10.0
TELL_SECONDS_MAX: Final = 40.0
WRITES_MEANWHILE: Final = 100
FILLER: Final = "filler"
_CHUNK: Final = bytes(4_096)


@contextmanager
def small_disk(place: Path, size_bytes: int = SMALL_BYTES) -> Iterator[Path | None]:
    """Mounted there while it is used; None: not allowed."""
    place.mkdir()
    options = f"size={size_bytes}"
    if os.geteuid() != 0 or _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)) != 0:
        yield None
        return
    try:
        yield place
    finally:
        _run("umount", str(place))


def _run(*command: str) -> int:
    try:
        done = subprocess.run(command, capture_output=True, timeout=MOUNT_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 1
    return done.returncode


def without_room(cluster: QuorumCluster, load: QuorumLoad, disk: Path, number: int) -> None:
    """Fill the disk under a follower, then under the leader; each time the others go on."""
    for leads in (False, True):
        who = "leader" if leads else "follower"
        _take_role(cluster, number, leads=leads)
        said_before = cluster.nodes[number].log_text().count(ErrorCode.STORAGE_FULL.name)
        filler = disk / FILLER
        fill(filler)
        try:
            wait_writes(cluster, load, WRITES_MEANWHILE)
            said = _wait_told(cluster, number, said_before)
        finally:
            filler.unlink()
        print(f"full disk of a {who}: {WRITES_MEANWHILE} writes meanwhile; it says:\n  {said}")
        cluster.wait_settled()
        wait_writes(cluster, load, WRITES_MEANWHILE)


def _take_role(cluster: QuorumCluster, number: int, *, leads: bool) -> None:
    seen = cluster.wait_settled()
    if (seen.leader_id == number) == leads:
        return
    to = number if leads else next(e.node_id for e in seen.voters if e.node_id != number)
    address = cluster.nodes[seen.leader_id].place.client_address
    cluster.client.ask(cluster.client.transfer(address, to, 5_000))


def fill(file: Path) -> None:
    """Until there is no room for another block on the file system that it is on."""
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for _ in range(FILL_BYTES_MAX // len(_CHUNK)):
            os.write(descriptor, _CHUNK)
    except OSError:
        return
    finally:
        os.close(descriptor)
    raise TidelogError(ErrorCode.UNKNOWN, tried=f"fill {file}", happened="there is room still")


def _wait_told(cluster: QuorumCluster, number: int, before: int) -> str:
    node = cluster.nodes[number]

    def has_told() -> str | None:
        text = node.log_text()
        is_new = text.count(ErrorCode.STORAGE_FULL.name) > before
        return None if is_new else f"it runs: {node.is_running}; its log ends: {text[-500:]}"

    cluster.wait(has_told, TELL_SECONDS_MAX, tried="be told that the disk is full")
    lines = node.log_text().splitlines()
    return [line for line in lines if ErrorCode.STORAGE_FULL.name in line][-1]
