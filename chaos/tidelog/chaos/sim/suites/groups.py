"""The suite of consumer groups: coordinators' cores alone, and whole nodes, by seed.

docs/simulation.md tells what it plays, checks and counts.
"""

from typing import Final

from tidelog.chaos.sim.suites.groups_cores import run_cores
from tidelog.chaos.sim.suites.groups_nodes import run_nodes
from tidelog.chaos.sim.suites.result import RunResult, Suite, Watch

WHOLE_EVERY: Final = 8


def run_groups(seed: int, watch: Watch | None = None) -> RunResult:
    """Every eighth seed is played by whole nodes, which cost a dozen times as much."""
    run = run_nodes if seed % WHOLE_EVERY == WHOLE_EVERY - 1 else run_cores
    return run(seed, watch)


_SIM: Final = "chaos/tidelog/chaos/sim"
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
    "worker",
    "world",
)
GROUPS: Final = Suite(
    name="groups",
    run=run_groups,
    rooms=(
        "metadata_quorum/tidelog/metadata_quorum",
        "broker/tidelog/broker",
        "broker/tidelog/server",
        "proto/tidelog",
        "ports/tidelog/ports",
        "chaos/tidelog/chaos/checkers",
        "chaos/tidelog/chaos/workloads",
        f"{_SIM}/cluster",
        f"{_SIM}/groups",
        f"{_SIM}/quorum/agenda.py",
        *(f"{_SIM}/{name}.py" for name in _WORLD),
        *(f"{_SIM}/suites/{name}.py" for name in ("groups", "groups_cores", "groups_nodes")),
    ),
)
