"""One bit of a voter's journal is another than was written: repaired from the peers, nothing lost.

Owns `bit-flip`, three ways in turn: a follower that was dead, the leader just before it is killed,
and a voter while all of them are down. `tidelog storage info` has to see the damage before the
start, and the node has to vote in a majority that needs it afterwards.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.chaos.live.processes.server import ServerProcess, run_command
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.chaos.live.quorum.load import QuorumLoad
from tidelog.chaos.live.quorum.rounds import run_under_load, wait_recovered, wait_writes
from tidelog.wire.errors import ErrorCode, TidelogError

VOTERS: Final = 3
WRITES_BEFORE: Final = 50
EXIT_DAMAGED: Final = 1
_Draw = random.Random


def bit_flip(directory: Path, *, rounds: int, seed: int) -> int:
    """Each way in turn."""
    draw = random.Random(seed)
    with QuorumCluster(directory, nodes=VOTERS, voters=VOTERS) as cluster:

        def faults(load: QuorumLoad) -> None:
            print("round  what           node       byte  of bytes  sound ms  first write ms")
            for number in range(1, rounds + 1):
                name, way = _WAYS[(number - 1) % len(_WAYS)]
                wait_writes(cluster, load, WRITES_BEFORE)
                cluster.wait_settled()
                took = _round(cluster, load, way, draw)
                print(f"{number:5}  {name:13}  {took}", flush=True)

        return run_under_load(cluster, directory, seed, faults)


def flip(file: Path, draw: _Draw, *, upper: float = 1.0) -> tuple[int, int]:
    """One bit, somewhere in that part of the file; which byte, and of how many."""
    size = file.stat().st_size
    place = draw.randrange(max(1, int(size * upper)))
    with file.open("r+b") as content:
        content.seek(place)
        byte = content.read(1)[0] ^ (1 << draw.randrange(8))
        content.seek(place)
        content.write(bytes([byte]))
    return place, size


def _follower(cluster: QuorumCluster, draw: _Draw) -> tuple[ServerProcess, int, int]:
    node = cluster.follower()
    node.kill()
    place, size = flip(node.journal(), draw)
    _check_seen(node)
    cluster.start(node.node_id)
    return node, place, size


def _leader(cluster: QuorumCluster, draw: _Draw) -> tuple[ServerProcess, int, int]:
    node = cluster.leader()
    place, size = flip(node.journal(), draw)
    node.kill()
    _check_seen(node)
    cluster.start(node.node_id)
    return node, place, size


def _all_down(cluster: QuorumCluster, draw: _Draw) -> tuple[ServerProcess, int, int]:
    node = cluster.nodes[draw.randrange(VOTERS) + 1]
    numbers = [each.node_id for each in cluster.running()]
    for number in numbers:
        cluster.nodes[number].kill()
    place, size = flip(node.journal(), draw)
    _check_seen(node)
    cluster.start(*numbers)
    return node, place, size


_Way = Callable[[QuorumCluster, _Draw], tuple[ServerProcess, int, int]]
_WAYS: Final[tuple[tuple[str, _Way], ...]] = (
    ("dead follower", _follower),
    ("killed leader", _leader),
    ("all are down", _all_down),
)


def _check_seen(node: ServerProcess) -> None:
    ended = run_command(["storage", "info", str(node.data_dir)])
    if ended.code != EXIT_DAMAGED:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried=f"see the damage of node {node.node_id}",
            happened=f"storage info ended with {ended.code}: {ended.output}{ended.errors}",
        )


def _round(cluster: QuorumCluster, load: QuorumLoad, way: _Way, draw: _Draw) -> str:
    """Damage, repair, and another voter's death, after which the majority needs the node."""
    began = time.monotonic()
    node, place, size = way(cluster, draw)
    cluster.wait_settled()
    sound_ms = (time.monotonic() - began) * 1_000
    other = next(each for each in cluster.nodes.values() if each.node_id != node.node_id)
    struck_ns = time.monotonic_ns()
    other.kill()
    recovery = wait_recovered(cluster, load, struck_ns)
    cluster.start(other.node_id)
    return f"{node.node_id:4}  {place:9}  {size:8}  {sound_ms:8.0f}  {recovery.first_ms:14.0f}"
