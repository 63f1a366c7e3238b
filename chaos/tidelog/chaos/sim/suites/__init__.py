"""What is simulated: each suite puts nodes, clients, faults and checks together for one seed.

A suite is loaded when it is asked for: one does not need the rooms of the others.
"""

import importlib
from typing import Final, cast

from tidelog.chaos.sim.suites.result import RunResult, Suite

SUITES: Final = {
    "skeleton": "tidelog.chaos.sim.suites.skeleton:SKELETON",
    "quorum": "tidelog.chaos.sim.suites.quorum:QUORUM",
    "log": "tidelog.chaos.sim.suites.log:LOG",
    "cluster": "tidelog.chaos.sim.suites.cluster:CLUSTER",
    "groups": "tidelog.chaos.sim.suites.groups:GROUPS",
    "clients": "tidelog.chaos.sim.suites.clients:CLIENTS",
}
"""Where each one is, by name."""


def load_suite(name: str) -> Suite:
    """The suite of this name."""
    module_name, _, attribute = SUITES[name].partition(":")
    return cast("Suite", getattr(importlib.import_module(module_name), attribute))


__all__ = ["SUITES", "RunResult", "Suite", "load_suite"]
