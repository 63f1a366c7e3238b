"""The suite of transactions: cores alone, and whole nodes, by seed.

docs/simulation.md tells what it plays, checks and counts.
"""

from typing import Final

from tidelog.chaos.sim.transactions.cores import run_cores
from tidelog.chaos.sim.transactions.nodes import run_nodes
from tidelog.chaos.sim.verdicts.result import RunResult, Suite, Watch

WHOLE_EVERY: Final = 4


def run_transactions(seed: int, watch: Watch | None = None) -> RunResult:
    """Every fourth seed is played by whole nodes, which cost a few times as much."""
    run = run_nodes if seed % WHOLE_EVERY == WHOLE_EVERY - 1 else run_cores
    return run(seed, watch)


TRANSACTIONS: Final = Suite(name="transactions", run=run_transactions)
