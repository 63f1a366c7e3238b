"""What is simulated: each suite puts nodes, clients, faults and checks together for one seed.

A suite is loaded when it is asked for: one does not need the rooms of the others.
"""

import importlib
from typing import Final, cast

from tidelog.chaos.sim.verdicts.result import RunResult, Suite

SUITES: Final = {
    "skeleton": "tidelog.chaos.sim.skeleton.suite:SKELETON",
    "quorum": "tidelog.chaos.sim.quorum_nodes.suite:QUORUM",
    "log": "tidelog.chaos.sim.log.suite:LOG",
    "cluster": "tidelog.chaos.sim.cluster.suite:CLUSTER",
    "groups": "tidelog.chaos.sim.groups.suite:GROUPS",
    "clients": "tidelog.chaos.sim.clients.suite:CLIENTS",
    "transactions": "tidelog.chaos.sim.transactions.suite:TRANSACTIONS",
}
"""Where each one is, by name."""


def load_suite(name: str) -> Suite:
    """The suite of this name."""
    module_name, _, attribute = SUITES[name].partition(":")
    return cast("Suite", getattr(importlib.import_module(module_name), attribute))


__all__ = ["SUITES", "RunResult", "Suite", "load_suite"]
