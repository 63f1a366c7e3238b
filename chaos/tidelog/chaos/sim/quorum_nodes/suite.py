"""The suite of the metadata quorum: cores over datagrams, and whole nodes, by seed.

docs/simulation.md tells what it plays, checks and counts.
"""

from typing import Final

from tidelog.chaos.sim.quorum.datagrams import run_datagrams
from tidelog.chaos.sim.quorum_nodes.play import run_nodes
from tidelog.chaos.sim.verdicts.result import RunResult, Suite, Watch

WHOLE_EVERY: Final = 8


def run_quorum(seed: int, watch: Watch | None = None) -> RunResult:
    """Every eighth seed is played by whole nodes, which cost several times as much."""
    run = run_nodes if seed % WHOLE_EVERY == WHOLE_EVERY - 1 else run_datagrams
    return run(seed, watch)


QUORUM: Final = Suite(name="quorum", run=run_quorum)
