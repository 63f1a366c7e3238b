"""The suite of consumer groups: coordinators' cores alone, and whole nodes, by seed.

docs/simulation.md tells what it plays, checks and counts.
"""

from typing import Final

from tidelog.chaos.sim.groups.cores import run_cores
from tidelog.chaos.sim.groups.nodes import run_nodes
from tidelog.chaos.sim.verdicts.result import RunResult, Suite, Watch

WHOLE_EVERY: Final = 8


def run_groups(seed: int, watch: Watch | None = None) -> RunResult:
    """Every eighth seed is played by whole nodes, which cost a dozen times as much."""
    run = run_nodes if seed % WHOLE_EVERY == WHOLE_EVERY - 1 else run_cores
    return run(seed, watch)


GROUPS: Final = Suite(name="groups", run=run_groups)
