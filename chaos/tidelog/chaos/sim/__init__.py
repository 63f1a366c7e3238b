"""The deterministic simulator: one seed, one history, one trace hash.

Owns an event loop with virtual time and simulated adapters for every port. It must never read a
real clock, open a socket or a file, or let the order of a hash table decide anything, because a
failing seed has to fail again. docs/simulation.md tells how to use it.
"""

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.guard import SimulationBreach
from tidelog.chaos.sim.base.loop import Deadlock, Runaway, SimulatedLoop
from tidelog.chaos.sim.base.seeds import SeededRandom, Seeds
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.world.process import Machine, Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World

__all__ = [
    "Deadlock",
    "FaultKind",
    "Faults",
    "Machine",
    "Process",
    "Runaway",
    "SeededRandom",
    "Seeds",
    "SimulatedLoop",
    "SimulatedPorts",
    "SimulationBreach",
    "Trace",
    "World",
]
