"""What is simulated: each suite puts nodes, clients, faults and checks together for one seed."""

from tidelog.chaos.sim.suites.result import RunResult, Suite
from tidelog.chaos.sim.suites.skeleton import SKELETON

SUITES: dict[str, Suite] = {SKELETON.name: SKELETON}

__all__ = ["SKELETON", "SUITES", "RunResult", "Suite"]
