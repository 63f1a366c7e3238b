"""The active controller dies, or falls silent, again and again, under writers and readers.

Owns `leader-kill` and `leader-pause`. A round counts only if another term began: a leader that came
back in time, or was none, proves nothing.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.live.processes.server import ServerProcess
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.chaos.live.quorum.load import QuorumLoad
from tidelog.chaos.live.quorum.rounds import (
    Recovery,
    figures,
    run_under_load,
    wait_recovered,
    wait_writes,
)
from tidelog.wire.errors import ErrorCode, TidelogError

VOTERS: Final = 3
WRITES_BEFORE: Final = 10


class LeaderRound(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a leader."""

    node_id: int
    term_before: int
    term_after: int
    under_way: int
    """Writers that waited for an answer at that moment."""
    recovery: Recovery


def leader_kill(directory: Path, *, rounds: int, seed: int) -> int:
    """kill -9; the node is started again once everybody has written again."""

    def strike(node: ServerProcess) -> None:
        node.kill()

    def heal(cluster: QuorumCluster, node: ServerProcess) -> None:
        cluster.start(node.node_id)

    return _run("leader-kill", directory, rounds, seed, strike, heal)


def leader_pause(directory: Path, *, rounds: int, seed: int) -> int:
    """SIGSTOP, and SIGCONT once everybody has written again."""

    def strike(node: ServerProcess) -> None:
        node.pause()

    def heal(cluster: QuorumCluster, node: ServerProcess) -> None:
        del cluster
        node.resume()

    return _run("leader-pause", directory, rounds, seed, strike, heal)


def _run(
    name: str,
    directory: Path,
    rounds: int,
    seed: int,
    strike: Callable[[ServerProcess], None],
    heal: Callable[[QuorumCluster, ServerProcess], None],
) -> int:
    done: list[LeaderRound] = []
    with QuorumCluster(directory, nodes=VOTERS, voters=VOTERS) as cluster:

        def faults(load: QuorumLoad) -> None:
            print("round  leader  term        under way  first write ms  all writers ms")
            for number in range(1, rounds + 1):
                found = _round(cluster, load, strike, heal)
                done.append(found)
                terms = f"{found.term_before} → {found.term_after}"
                print(
                    f"{number:5}  {found.node_id:6}  {terms:10}  {found.under_way:9}  "
                    f"{found.recovery.first_ms:14.0f}  {found.recovery.all_ms:14.0f}",
                    flush=True,
                )
            print(f"{name}, {rounds} rounds, {VOTERS} voters")
            print(f"  first write: {figures([each.recovery.first_ms for each in done])}")
            print(f"  all writers: {figures([each.recovery.all_ms for each in done])}")

        return run_under_load(cluster, directory, seed, faults)


def _round(
    cluster: QuorumCluster,
    load: QuorumLoad,
    strike: Callable[[ServerProcess], None],
    heal: Callable[[QuorumCluster, ServerProcess], None],
) -> LeaderRound:
    wait_writes(cluster, load, WRITES_BEFORE)
    before = cluster.wait_settled()
    node = cluster.nodes[before.leader_id]
    under_way = len(load.under_way)
    struck_ns = time.monotonic_ns()
    strike(node)
    recovery = wait_recovered(cluster, load, struck_ns)
    after = cluster.describe()
    if after.term <= before.term or after.leader_id == before.leader_id:
        raise TidelogError(
            ErrorCode.UNKNOWN,
            tried=f"take the leadership away from node {node.node_id}",
            happened=f"it leads in term {after.term} as in {before.term}: nobody felt the fault",
        )
    heal(cluster, node)
    return LeaderRound(
        node_id=node.node_id,
        term_before=before.term,
        term_after=after.term,
        under_way=under_way,
        recovery=recovery,
    )
