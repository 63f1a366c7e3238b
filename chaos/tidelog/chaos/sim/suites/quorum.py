"""The suite of the metadata quorum: cores over datagrams, and whole nodes, by seed.

docs/simulation.md tells what it plays, checks and counts.
"""

from typing import Final

from tidelog.chaos.sim.suites.quorum_datagrams import run_datagrams
from tidelog.chaos.sim.suites.quorum_nodes import run_nodes
from tidelog.chaos.sim.suites.result import RunResult, Suite, Watch

WHOLE_EVERY: Final = 8


def run_quorum(seed: int, watch: Watch | None = None) -> RunResult:
    """Every eighth seed is played by whole nodes, which cost several times as much."""
    run = run_nodes if seed % WHOLE_EVERY == WHOLE_EVERY - 1 else run_datagrams
    return run(seed, watch)


_CHECKERS: Final = (
    "history",
    "linearizability",
    "raft_board",
    "raft_content",
    "raft_invariants",
    "raft_sent",
    "raft_steps",
    "raft_stored",
    "raft_whole",
)
_WORLD: Final = (
    "clock",
    "disk",
    "disk_turns",
    "exchange",
    "fabric",
    "faults",
    "loop",
    "medium",
    "network",
    "pipes",
    "places",
    "process",
    "seeds",
    "trace",
    "world",
)
_PLAYS: Final = ("quorum", "quorum_datagrams", "quorum_nodes", "verdict")
_SIM: Final = "chaos/tidelog/chaos/sim"
_QUORUM: Final = "metadata_quorum/tidelog/metadata_quorum"

QUORUM: Final = Suite(
    name="quorum",
    run=run_quorum,
    rooms=(
        f"{_QUORUM}/raft",
        f"{_QUORUM}/quorum",
        f"{_QUORUM}/storage",
        f"{_QUORUM}/rpc/quorum_convert.py",
        f"{_QUORUM}/rpc/quorum_joining.py",
        f"{_QUORUM}/rpc/quorum_route.py",
        f"{_QUORUM}/rpc/quorum_service.py",
        "proto/tidelog/v1/quorum.proto",
        "proto/tidelog/wire",
        "ports/tidelog/ports",
        *(f"chaos/tidelog/chaos/checkers/{name}.py" for name in _CHECKERS),
        f"{_SIM}/quorum",
        *(f"{_SIM}/{name}.py" for name in _WORLD),
        *(f"{_SIM}/suites/{name}.py" for name in _PLAYS),
    ),
)
