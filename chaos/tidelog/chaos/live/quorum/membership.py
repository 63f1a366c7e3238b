"""The quorum grows from one voter to five and shrinks to one again, while it is written to.

Owns `membership`. Each second removal takes the leader itself; the node that remains at the end is
not the one of the beginning.
"""

import time
from pathlib import Path
from typing import Final

from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.chaos.live.quorum.load import QuorumLoad
from tidelog.chaos.live.quorum.members import promote, remove, wait_learner
from tidelog.chaos.live.quorum.rounds import longest_gap_ms, run_under_load, wait_writes

NODES: Final = 5
WRITES_BETWEEN: Final = 20


def membership(directory: Path, *, rounds: int, seed: int) -> int:
    """1 → 3 → 5 → 3 → 1, once; further rounds each in a cluster of its own."""
    worst = 0
    for number in range(1, rounds + 1):
        place = directory / f"round{number}"
        place.mkdir()
        with QuorumCluster(place, nodes=NODES, voters=1) as cluster:
            faults = _Steps(cluster).run
            worst = max(worst, run_under_load(cluster, place, seed + number, faults))
    return worst


class _Steps:
    def __init__(self, cluster: QuorumCluster) -> None:
        self._cluster = cluster

    def run(self, load: QuorumLoad) -> None:
        """Grow, shrink, print."""
        print("step               voters  change ms  longest time without a write ms")
        for number in range(2, NODES + 1):
            self._grow(load, number)
        for count in range(NODES, 1, -1):
            self._shrink(load, is_leader=count % 2 == 1)

    def _grow(self, load: QuorumLoad, number: int) -> None:
        began_ns = time.monotonic_ns()
        self._cluster.join(number)
        wait_learner(self._cluster, number)
        took = promote(self._cluster, number)
        self._report(load, f"add node {number}", took, began_ns)

    def _shrink(self, load: QuorumLoad, *, is_leader: bool) -> None:
        seen = self._cluster.wait_settled()
        number = next(
            each.node_id for each in seen.voters if (each.node_id == seen.leader_id) == is_leader
        )
        began_ns = time.monotonic_ns()
        took = remove(self._cluster, number)
        self._report(load, f"remove {'leader' if is_leader else 'node'} {number}", took, began_ns)

    def _report(self, load: QuorumLoad, what: str, took: float, began_ns: int) -> None:
        wait_writes(self._cluster, load, WRITES_BETWEEN)
        gap_ms = longest_gap_ms(load.own_writes, began_ns, time.monotonic_ns())
        voters = len(self._cluster.describe().voters)
        print(f"{what:17}  {voters:6}  {took * 1_000:9.0f}  {gap_ms:31.0f}", flush=True)
