"""Simulated machines and processes: started from a factory, killed without a word, started again.

A process owns its tasks through the context that they run in. When it dies its tasks never take
another step: no `finally`, no `except CancelledError`, as after kill -9. What it wrote to a disk
survives its own death, and of the machine's death only what was flushed. Restarting is starting the
same factory again.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.loop import PROCESS, SimulatedLoop, never_called
from tidelog.chaos.sim.base.seeds import SeededRandom, Seeds
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.ports.clock import SimulatedClock
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.chaos.sim.ports.fabric import Fabric
from tidelog.chaos.sim.ports.host import SimulatedHost
from tidelog.chaos.sim.ports.medium import CopiedTree, Medium
from tidelog.chaos.sim.ports.network import SimulatedNetwork
from tidelog.chaos.sim.ports.worker import SimulatedWorker


class Surroundings(Protocol):
    """What machines share: the world."""

    seeds: Seeds
    loop: SimulatedLoop
    trace: Trace
    faults: Faults
    fabric: Fabric


class SimulatedPorts:
    """Everything that one process may do to the world."""

    def __init__(self, world: Surroundings, process: "Process") -> None:
        machine = process.machine
        self.clock = SimulatedClock(world.loop, machine)
        self.random = SeededRandom(world.seeds.seed, f"random/{process.name}/{process.number}")
        self.network = SimulatedNetwork(
            world.fabric,
            process,
            address=f"{machine.name}:{40_000 + process.number}",
            client_id=process.name,
        )
        self.host = SimulatedHost(machine.name, machine.boot_id)
        self.worker, self.sealer = (
            SimulatedWorker(
                process,
                loop=world.loop,
                random=world.seeds.purpose(purpose),
                faults=world.faults,
                trace=world.trace,
            )
            for purpose in ("worker", "sealer")
        )
        self._world = world
        self._process = process

    def open_disk(self, name: str = "data") -> SimulatedDisk:
        """Take the lock of one of the machine's data directories."""
        disk = SimulatedDisk(
            self._process.machine.medium(name),
            loop=self._world.loop,
            random=self._world.seeds.purpose("disk"),
            faults=self._world.faults,
            trace=self._world.trace,
        )
        self._process.disks.append(disk)
        return disk


Start = Callable[[SimulatedPorts], Coroutine[Any, Any, None]]
"""The whole life of a process: it ends when the coroutine does."""


class Process:
    """One life of a process; a restart makes a new one."""

    def __init__(self, world: Surroundings, machine: "Machine", name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.machine = machine
        self.is_dead = False
        self.is_paused = False
        self.parked: list[asyncio.Handle] = []
        self.disks: list[SimulatedDisk] = []
        self.exit_error: BaseException | None = None
        """What ended its main coroutine, if it was not killed."""
        self._world = world
        self._context = contextvars.Context()
        self._context.run(PROCESS.set, self)
        self.ports = SimulatedPorts(world, self)

    @property
    def is_machine_down(self) -> bool:
        """Whether even the operating system is silent."""
        return self.machine.is_down

    @property
    def media(self) -> dict[str, Medium]:
        """The data directories of its machine."""
        return self.machine.media

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine as part of the process."""
        return self._world.loop.create_task(work, name=name, context=self._context.copy())

    def begin(self, start: Start) -> None:
        """Start its main coroutine."""
        self.start_task(self._live(start), "main")

    def kill(self) -> None:
        """Dead from now on; the page cache and what it sent may survive it."""
        if not self.is_dead:
            self._end(is_machine=False)

    def pause(self) -> None:
        """Stop scheduling it, as SIGSTOP does."""
        assert not self.is_dead, "only a living process can be paused"
        self.is_paused = True
        self._world.trace.note(self.name, "process:pause")

    def resume(self) -> None:
        """Go on, with everything that fell due meanwhile."""
        if self.is_paused and not self.is_dead:
            self.is_paused = False
            if self.parked:
                self._world.faults.took_effect(FaultKind.PAUSE, self.name)
            self._world.loop.resume(self)

    def end_with_machine(self) -> None:
        """The power is off."""
        if not self.is_dead:
            self._end(is_machine=True)

    async def _live(self, start: Start) -> None:
        try:
            await start(self.ports)
        except Exception as error:  # noqa: BLE001 - a process ends by whatever its main raises
            self.exit_error = error
            self._world.trace.note(self.name, "process:failed", name=type(error).__name__)
        else:
            self._world.trace.note(self.name, "process:exit")
        self._world.loop.call_soon(self.kill, context=self._world.loop.world_context)

    def _end(self, *, is_machine: bool) -> None:
        self.is_dead = True
        for handle in self.parked:
            never_called(handle)
        self.parked.clear()
        for disk in self.disks:
            disk.die(is_machine=is_machine)
        self._world.fabric.on_death(self)
        self._world.trace.note(self.name, "process:dead")


class Machine:
    """Disks, a wall clock, a boot id, and processes by name."""

    def __init__(self, world: Surroundings, name: str) -> None:
        self.name = name
        self.is_down = False
        self.wall_offset_ms = 0
        self.clock_rate = 1.0
        self.clock_base_ns = self.clock_set_ns = world.loop.now_ns
        self.processes: dict[str, Process] = {}
        self.media: dict[str, Medium] = {}
        self._world = world
        self.crashes = 0
        self._started = 0
        self._is_clock_wrong = False
        """Since nothing ran here: nobody has seen it yet."""

    @property
    def boot_id(self) -> str:
        """Changes when the machine starts again."""
        return f"{self.name}-boot-{self.crashes + 1}"

    def medium(self, name: str = "data") -> Medium:
        """A data directory of this machine."""
        if name not in self.media:
            self.media[name] = Medium(f"{self.name}:{name}")
        return self.media[name]

    def start(self, name: str, start: Start) -> Process:
        """Start a process; one of the same name must be dead."""
        before = self.processes.get(name)
        assert before is None or before.is_dead, f"{name} is running"
        self.is_down = False
        self._started += 1
        process = Process(self._world, self, name, self._started)
        self.processes[name] = process
        self._world.trace.note(name, "process:start")
        if self._is_clock_wrong:
            self._is_clock_wrong = False
            offset = f"{self.wall_offset_ms} ms"
            self._world.faults.took_effect(FaultKind.WRONG_START_CLOCK, self.name, offset)
        process.begin(start)
        return process

    def crash(self) -> None:
        """The machine dies: no process says goodbye, unflushed bytes are lost or torn."""
        self.is_down = True
        for process in self.processes.values():
            process.end_with_machine()
        random = self._world.seeds.purpose("crash")
        for medium in self.media.values():
            medium.crash(random, self._world.faults)
        self.crashes += 1
        self._world.trace.note(self.name, "machine:crash")

    def wipe(self, name: str) -> None:
        """A data directory is empty, as after its disk was replaced; nothing may run on it."""
        assert all(process.is_dead for process in self.processes.values()), "nothing runs"
        self.media.pop(name, None)
        self._world.faults.took_effect(FaultKind.WIPE, self.name, name)

    def put_back(self, name: str, copied: CopiedTree) -> None:
        """A data directory goes back in time: an earlier copy takes its place."""
        assert all(process.is_dead for process in self.processes.values()), "nothing runs"
        self.media[name].put_back(copied)
        self._world.faults.took_effect(FaultKind.ROLLBACK, self.name, name)

    def set_clock_rate(self, rate: float) -> None:
        """Let ticks pass faster or slower from now on; they never go back."""
        now_ns = self._world.loop.now_ns
        self.clock_base_ns += int((now_ns - self.clock_set_ns) * self.clock_rate)
        self.clock_set_ns = now_ns
        self.clock_rate = rate
        if rate != 1.0:
            self._world.faults.took_effect(FaultKind.CLOCK_RATE, self.name, f"{rate:.2f}")

    def set_wrong_clock(self, offset_ms: int) -> None:
        """Let the next process that starts find a wall clock that is so far ahead."""
        self.wall_offset_ms = offset_ms
        self._is_clock_wrong = True

    def put_clock_right(self) -> None:
        """Somebody has set it."""
        self.wall_offset_ms = 0
        self._is_clock_wrong = False

    def jump_wall(self, offset_ms: int) -> None:
        """Move the wall clock; ticks go on as they were."""
        self.wall_offset_ms += offset_ms
        self._world.faults.took_effect(FaultKind.WALL_JUMP, self.name, f"{offset_ms} ms")
