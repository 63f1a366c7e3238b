"""Members on simulated disks, with crashes, breaks and delays: what was acknowledged stays."""

import asyncio

import pytest

from tests.metadata_quorum.quorum.quorum_world import (
    BOOTSTRAP,
    POLL_S,
    Commands,
    address,
    member_id,
    members,
    options,
)
from tidelog.chaos.sim import SimulatedPorts
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.world.process import Process
from tidelog.chaos.sim.world.world import World
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.runner import QuorumRunner
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.storage.identity import format_storage
from tidelog.metadata_quorum.storage.quorum_storage import open_storage
from tidelog.ports import Listener
from tidelog.wire.errors import TidelogError

NODES = (1, 2, 3)
PERIODS = 6
PERIOD_S = 4.0
CALM_S = 60.0
LIMITS = QuorumLimits(snapshot_after_entries=30, snapshot_piece_bytes=300)
KINDS = (
    FaultKind.BREAK,
    FaultKind.NETWORK_DELAY,
    FaultKind.LATE_PROCESSING,
    FaultKind.CANCEL_HANDLER,
    FaultKind.CLOSED_EARLY,
    FaultKind.LOST_WRITE,
    FaultKind.TORN_WRITE,
    FaultKind.NO_SPACE,
    FaultKind.SLOW_DISK,
)


class DiskLife:
    """One node on its machine's disk."""

    def __init__(self, world: World, node: int) -> None:
        self.world = world
        self.node = node
        self.machine = Commands()
        self.runner: QuorumRunner | None = None
        self.process: Process | None = None
        self.is_formatted = False

    def start(self) -> None:
        self.runner = None
        machine = self.world.machine(f"m{self.node}")
        self.process = machine.start(f"node{self.node}", self._live)

    async def _live(self, ports: SimulatedPorts) -> None:
        disk = ports.open_disk("quorum")
        if not self.is_formatted:
            await format_storage(
                disk,
                cluster_id="faults",
                node_id=self.node,
                directory_uuid=member_id(self.node).directory_uuid,
                bootstrap=members(*NODES),
                bootstrap_command=BOOTSTRAP,
            )
            self.is_formatted = True
        storage = await open_storage(disk)
        self.machine = Commands()
        self.runner = QuorumRunner(
            storage=storage,
            state_machine=self.machine,
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            limits=LIMITS,
            bootstrap_command=storage.bootstrap_command,
            raft_options=options(entries_kept=10),
        )
        listener = Listener(name="cluster", bind=address(self.node))
        await ports.network.serve(listener, self.runner.methods())
        await self.runner.run(address=address(self.node))

    @property
    def is_alive(self) -> bool:
        return self.process is not None and not self.process.is_dead


class Storm:
    """Writers that note what was acknowledged, and a hand that breaks things by seed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lives = [DiskLife(world, node) for node in NODES]
        self.acknowledged: list[bytes] = []
        self.written = 0
        self.is_over = False

    async def run(self) -> None:
        for life in self.lives:
            life.start()
        writers = [asyncio.ensure_future(self._write(number)) for number in range(3)]
        random = self.world.seeds.purpose("storm")
        for _ in range(PERIODS):
            await asyncio.sleep(PERIOD_S)
            life = self.lives[random.below(len(self.lives))]
            if life.is_alive:
                machine = self.world.machine(f"m{life.node}")
                assert life.process is not None
                machine.crash() if random.chance(0.5) else life.process.kill()
            await asyncio.sleep(random.below(2_000) / 1_000)
            self._raise_the_dead()
        self.world.heal()
        self._raise_the_dead()
        await self._wait_progress()
        self.is_over = True
        for writer in writers:
            await writer
        await self._wait_agreement()

    def _raise_the_dead(self) -> None:
        for life in self.lives:
            if not life.is_alive:
                life.start()

    async def _write(self, number: int) -> None:
        while not self.is_over:
            await asyncio.sleep(POLL_S)
            for life in self.lives:
                runner = life.runner
                if not life.is_alive or runner is None or not runner.is_running:
                    continue
                if runner.describe().role is Role.LEADER:
                    await self._attempt(life, runner, number)

    async def _attempt(self, life: DiskLife, runner: QuorumRunner, number: int) -> None:
        self.written += 1
        data = b"%d:%d" % (number, self.written)
        try:
            async with asyncio.timeout(3.0):
                await runner.propose(data, term=runner.describe().term)
        except (TidelogError, TimeoutError):
            return
        self.acknowledged.append(data)

    async def _wait_progress(self) -> None:
        """After the heal writes go on."""
        before = len(self.acknowledged)
        async with asyncio.timeout(CALM_S):
            while len(self.acknowledged) < before + 20:
                self._raise_the_dead()
                await asyncio.sleep(POLL_S)

    async def _wait_agreement(self) -> None:
        """Everybody has the same in the end."""
        async with asyncio.timeout(CALM_S):
            while not self._is_agreed():
                self._raise_the_dead()
                await asyncio.sleep(POLL_S)

    def _is_agreed(self) -> bool:
        lists = [life.machine.commands for life in self.lives]
        return all(each == lists[0] for each in lists) and bool(lists[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_nothing_acknowledged_is_lost_or_applied_twice(seed: int) -> None:
    world = World(seed, enabled=KINDS)
    storm = Storm(world)
    try:
        world.run(storm.run())
        assert world.findings() == []
    finally:
        world.close()
    commands = storm.lives[0].machine.commands
    assert len(set(commands)) == len(commands)
    assert commands[0] == BOOTSTRAP
    assert [each for each in storm.acknowledged if each not in commands] == []
    assert len(storm.acknowledged) > 50
