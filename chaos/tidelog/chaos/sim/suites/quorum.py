"""The suite of the metadata quorum: cores over datagrams, and whole nodes, by seed.

docs/simulation.md tells what it plays, checks and counts.
"""

from typing import Final

from tidelog.chaos.sim.suites.quorum_datagrams import run_datagrams
from tidelog.chaos.sim.suites.result import RunResult, Suite, Watch


def run_quorum(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    return run_datagrams(seed, watch)


QUORUM: Final = Suite(name="quorum", run=run_quorum)
