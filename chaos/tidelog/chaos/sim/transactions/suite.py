"""The suite of transactions: cores alone, and whole nodes, by seed.

docs/simulation.md tells what it plays, checks and counts.
"""

from typing import Final

from tidelog.chaos.sim.transactions.cores import run_cores
from tidelog.chaos.sim.verdicts.result import RunResult, Suite, Watch


def run_transactions(seed: int, watch: Watch | None = None) -> RunResult:
    """One seed."""
    return run_cores(seed, watch)


TRANSACTIONS: Final = Suite(name="transactions", run=run_transactions)
