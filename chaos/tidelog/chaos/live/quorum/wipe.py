"""A voter loses its directory: back as a learner, the old member removed, the new one promoted.

Owns `wipe`. The old identity must not come back to life, and the new one counts only if the quorum
goes on with it when the leader dies right after.
"""

import time
from pathlib import Path
from typing import Final

from tidelog.chaos.live.processes.server import BOTH_ROLES
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.chaos.live.quorum.load import QuorumLoad
from tidelog.chaos.live.quorum.members import by_command, wait_learner
from tidelog.chaos.live.quorum.rounds import run_under_load, wait_recovered, wait_writes
from tidelog.wire.errors import ErrorCode, TidelogError

VOTERS: Final = 3
WRITES_BEFORE: Final = 20


def wipe(directory: Path, *, rounds: int, seed: int) -> int:
    """A follower each round."""
    with QuorumCluster(directory, nodes=VOTERS, voters=VOTERS, roles=BOTH_ROLES) as cluster:

        def faults(load: QuorumLoad) -> None:
            print("round  node  learner ms  promoted ms  first write after the leader's death ms")
            for number in range(1, rounds + 1):
                _round(cluster, load, number)

        return run_under_load(cluster, directory, seed, faults)


def _round(cluster: QuorumCluster, load: QuorumLoad, number: int) -> None:
    wait_writes(cluster, load, WRITES_BEFORE)
    cluster.wait_settled()
    node = cluster.follower()
    old_uuid = node.directory_uuid
    node.kill()
    node.wipe()
    began = time.monotonic()
    cluster.join(node.node_id)
    wait_learner(cluster, node.node_id)
    learner_ms = (time.monotonic() - began) * 1_000
    by_command(cluster, "remove-voter", node.node_id, old_uuid)
    by_command(cluster, "add-voter", node.node_id, node.directory_uuid)
    promoted_ms = (time.monotonic() - began) * 1_000
    _check_members(cluster, node.node_id, old_uuid)
    cluster.wait_settled()
    leader = cluster.leader()
    struck_ns = time.monotonic_ns()
    leader.kill()
    recovery = wait_recovered(cluster, load, struck_ns)
    cluster.start(leader.node_id)
    print(
        f"{number:5}  {node.node_id:4}  {learner_ms:10.0f}  {promoted_ms:11.0f}  "
        f"{recovery.first_ms:39.0f}",
        flush=True,
    )


def _check_members(cluster: QuorumCluster, number: int, old_uuid: bytes) -> None:
    seen = cluster.describe()
    uuids = [each.directory_uuid for each in seen.voters]
    if old_uuid in uuids or cluster.nodes[number].directory_uuid not in uuids:
        raise TidelogError(
            ErrorCode.UNKNOWN,
            tried=f"replace node {number}",
            happened=f"the voters' directories are {[uuid.hex() for uuid in uuids]}",
        )
