"""Simulated adapters under one seed; machines here do crash."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.ports.support.abilities import Ability
from tidelog.chaos.sim import FaultKind, Process, SimulatedPorts, World
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.ports.clock import SimulatedClock
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.chaos.sim.ports.host import SimulatedHost
from tidelog.chaos.sim.ports.medium import Directory, Inode
from tidelog.chaos.sim.ports.network import SimulatedNetwork
from tidelog.chaos.sim.ports.worker import SimulatedWorker
from tidelog.ports import DeathHint, Listener

T = TypeVar("T")

SEED: Final = 20
SMALL_BYTES: Final = 256 * 1024
_CRASH_KINDS: Final = (
    FaultKind.LOST_WRITE,
    FaultKind.TORN_WRITE,
    FaultKind.HOLE,
    FaultKind.LOST_NAME,
)


class SimulatedWorld:
    """What a node of the simulator uses."""

    def __init__(self, directory: Path) -> None:
        del directory
        self._world = World(
            SEED,
            enabled=(*_CRASH_KINDS, FaultKind.FLUSH_ERROR, FaultKind.CLOSED_EARLY),
            probabilities={FaultKind.FLUSH_ERROR: 1.0, FaultKind.CLOSED_EARLY: 1.0},
        )
        self._world.faults.active = dict.fromkeys(_CRASH_KINDS)

    @property
    def abilities(self) -> frozenset[Ability]:
        """Everything."""
        return frozenset(Ability)

    @property
    def shows_every_order(self) -> bool:
        """The seed chooses."""
        return True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in virtual time."""
        try:
            return self._world.run(work)
        finally:
            self._world.close()

    def clock(self) -> SimulatedClock:
        """Of the only machine."""
        return self._process("node").ports.clock

    def random(self) -> SeededRandom:
        """Seeded."""
        return self._process("node").ports.random

    def host(self) -> SimulatedHost:
        """The only machine."""
        return self._process("node").ports.host

    def network(self, name: str) -> SimulatedNetwork:
        """A process of its own."""
        return self._process(name).ports.network

    def bind(self, name: str) -> str:
        """Every node has an address of its own."""
        return f"{name}:0"

    async def dead_peer(self, hint: DeathHint) -> str:
        """An address that refuses, one behind a proxy, or one of a machine that is off."""
        if hint is DeathHint.NONE:
            server = await self.network("silent").serve(
                Listener(name="client", bind="silent:0"), {}
            )
            self._world.machine("silent").crash()
            return server.address
        if hint is DeathHint.CLOSED_EARLY:
            self._world.faults.active[FaultKind.CLOSED_EARLY] = None
        return "nobody:9000"

    async def disk(self, *, is_flush_failing: bool = False) -> SimulatedDisk:
        """The one data directory of the node."""
        if is_flush_failing:
            self._world.faults.active[FaultKind.FLUSH_ERROR] = None
        return self._process("node").ports.open_disk()

    async def full_disk(self) -> SimulatedDisk:
        """A data directory of 256 KiB."""
        process = self._process("node")
        process.machine.medium("small").capacity_bytes = SMALL_BYTES
        return process.ports.open_disk("small")

    @contextlib.contextmanager
    def cramped(self, size_bytes: int) -> Iterator[None]:
        """A medium that holds no more."""
        medium = self._world.machine("node").medium()
        before, medium.capacity_bytes = medium.capacity_bytes, size_bytes
        try:
            yield
        finally:
            medium.capacity_bytes = before

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """On the medium."""
        place = self._world.machine("node").medium().find(path)
        assert isinstance(place, Inode)
        place.is_locked = True
        try:
            yield
        finally:
            place.is_locked = False

    def move_directory_away(self, *, is_replaced: bool) -> None:
        """The medium has one name."""
        del is_replaced
        medium = self._world.machine("node").medium()
        medium.is_away = True
        self._names = sorted(medium.root.seen)

    def move_directory_back(self) -> None:
        """At once."""
        self._world.machine("node").medium().is_away = False

    def made_in_its_place(self) -> list[str]:
        """Whatever is new on the medium."""
        return sorted(set(self._world.machine("node").medium().root.seen) - set(self._names))

    def move_behind_its_back(self, old: str, new: str) -> None:
        """On the medium."""
        medium = self._world.machine("node").medium()
        place = medium.find(old)
        parent, _, name = old.rpartition("/")
        directory = medium.find(parent)
        assert place is not None
        assert isinstance(directory, Directory)
        del directory.seen[name]
        if new:
            parent, _, name = new.rpartition("/")
            directory = medium.find(parent)
            assert isinstance(directory, Directory)
            directory.seen[name] = place

    def crash(self, *, is_machine: bool) -> None:
        """At once."""
        if is_machine:
            self._world.machine("node").crash()
        else:
            self._process("node").kill()

    def worker(self) -> SimulatedWorker:
        """Inline."""
        return self._process("node").ports.worker

    def _process(self, name: str) -> Process:
        machine = self._world.machine(name)
        process = machine.processes.get(name)
        if process is None or process.is_dead:
            process = machine.start(name, _wait_forever)
        return process


async def _wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()
