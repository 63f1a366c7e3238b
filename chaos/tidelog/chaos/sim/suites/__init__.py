"""What is simulated: each suite puts nodes, clients, faults and checks together for one seed."""

from tidelog.chaos.sim.suites.quorum import QUORUM
from tidelog.chaos.sim.suites.result import RunResult, Suite
from tidelog.chaos.sim.suites.skeleton import SKELETON

SUITES: dict[str, Suite] = {suite.name: suite for suite in (SKELETON, QUORUM)}

__all__ = ["QUORUM", "SKELETON", "SUITES", "RunResult", "Suite"]
