"""One simulated world: a seed's loop, network, machines, faults and trace, put together."""

from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.loop import STEPS_MAX, SimulatedLoop
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.ports.datagrams import Datagrams
from tidelog.chaos.sim.ports.fabric import Fabric
from tidelog.chaos.sim.world.process import Machine

_T = TypeVar("_T")

_IN_ORDER_PROBABILITY: Final = 0.15
_STEP_COSTS_NS: Final = (0, 1_000, 20_000)


class World:
    """Made for one run; `run` may be called several times, `close` ends it."""

    def __init__(
        self,
        seed: int,
        *,
        enabled: Iterable[FaultKind] = (),
        probabilities: dict[FaultKind, float] | None = None,
        steps_max: int = STEPS_MAX,
    ) -> None:
        self.seeds = Seeds(seed)
        self.trace = Trace()
        order = self.seeds.purpose("order")
        is_in_order = order.chance(_IN_ORDER_PROBABILITY)
        self.loop = SimulatedLoop(
            self.trace,
            order=None if is_in_order else order,
            step_cost_ns=_STEP_COSTS_NS[order.below(len(_STEP_COSTS_NS))],
            steps_max=steps_max,
        )
        self.faults = Faults(
            self.seeds.purpose("faults"),
            self.trace,
            enabled=enabled,
            probabilities=probabilities,
        )
        self.fabric = Fabric(self.loop, self.seeds.purpose("network"), self.faults, self.trace)
        self.datagrams = Datagrams(self.fabric)
        self.machines: dict[str, Machine] = {}

    def machine(self, name: str) -> Machine:
        """A machine by name, made when it is first asked for."""
        if name not in self.machines:
            self.machines[name] = Machine(self, name)
        return self.machines[name]

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Let the world go until `work` ends."""
        return self.loop.run(work)

    def heal(self) -> None:
        """No fault from here on: links are whole, disks are writable, paused processes go on."""
        self.faults.heal()
        self.fabric.heal()
        for machine in self.machines.values():
            for medium in machine.media.values():
                medium.is_read_only = False
            for process in machine.processes.values():
                process.resume()

    def findings(self) -> list[str]:
        """What went wrong inside, whatever a suite checks besides."""
        return self.loop.unhandled + self.fabric.bugs

    def close(self) -> None:
        """End what is left, without letting it do anything."""
        self.loop.bury()
