"""Does to machines, processes and links what the plan of a suite says, by seed.

Faults that happen at a place (a torn write, a cancelled handler) fire there; those that somebody
has to start (a crash, a partition, a pause) start here. It acts only with kinds that are active.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.ports.clock import WRONG_STARTS_MS, sleep_ns
from tidelog.chaos.sim.ports.medium import CopiedTree
from tidelog.chaos.sim.world.process import Machine, Process
from tidelog.chaos.sim.world.world import World

_MS: Final = 1_000_000
_PAUSE_NS: Final = (50 * _MS, 3_000 * _MS)
_CUT_NS: Final = (100 * _MS, 14_000 * _MS)
_READ_ONLY_NS: Final = (50 * _MS, 2_000 * _MS)
_CLOCK_RATES: Final = (0.5, 0.8, 1.25, 2.0)
_JUMP_MS_MAX: Final = 86_400_000

Act = Callable[[Process], Coroutine[Any, Any, None]]


class Nemesis:
    """Troubles one process: its life, its machine, and its links to the others."""

    def __init__(self, world: World, peers: Callable[[], list[Process]]) -> None:
        self._world = world
        self._random: SeededRandom = world.seeds.purpose("nemesis")
        self._peers = peers
        """Living processes whose links to the victim may be cut."""
        self._acts: dict[FaultKind, Act] = {
            FaultKind.PROCESS_CRASH: self._crash_process,
            FaultKind.MACHINE_CRASH: self._crash_machine,
            FaultKind.PAUSE: self._pause,
            FaultKind.WALL_JUMP: self._jump_wall,
            FaultKind.WRONG_START_CLOCK: self._set_wrong_clock,
            FaultKind.PARTITION: self._partition,
            FaultKind.PARTITION_ONE_WAY: self._partition_one_way,
            FaultKind.READ_ONLY: self._make_read_only,
            FaultKind.BIT_FLIP: self._flip_bit,
            FaultKind.CLOCK_RATE: self._change_clock_rate,
            FaultKind.WIPE: self._wipe,
            FaultKind.ROLLBACK: self._roll_back,
        }
        self._copies: dict[str, dict[str, CopiedTree]] = {}
        """By machine, of each of its data directories."""

    def kinds(self) -> list[FaultKind]:
        """What it could do now."""
        return [kind for kind in self._acts if self._world.faults.is_active(kind)]

    async def act_once(self, victim: Process) -> None:
        """Draw a kind, do it, wait until it is over."""
        kinds = self.kinds()
        if kinds:
            await self.act(kinds[self._random.below(len(kinds))], victim)

    async def act(self, kind: FaultKind, victim: Process) -> None:
        """Do one thing, and wait until it is over."""
        self._world.trace.note(victim.name, f"nemesis:{kind.value}")
        await self._acts[kind](victim)

    async def _crash_process(self, victim: Process) -> None:
        if not victim.is_dead:
            self._world.faults.took_effect(FaultKind.PROCESS_CRASH, victim.name)
            victim.kill()

    async def _crash_machine(self, victim: Process) -> None:
        if not victim.machine.is_down:
            self._world.faults.took_effect(FaultKind.MACHINE_CRASH, victim.machine.name)
            victim.machine.crash()

    async def _pause(self, victim: Process) -> None:
        if victim.is_dead or victim.is_paused:
            return
        victim.pause()
        await self._sleep(_PAUSE_NS)
        victim.resume()

    async def _jump_wall(self, victim: Process) -> None:
        victim.machine.jump_wall(self._random.between(-_JUMP_MS_MAX, _JUMP_MS_MAX))

    async def _set_wrong_clock(self, victim: Process) -> None:
        """Whoever starts the process again finds it."""
        offset_ms = WRONG_STARTS_MS[self._random.below(len(WRONG_STARTS_MS))]
        victim.machine.set_wrong_clock(offset_ms)

    async def _partition(self, victim: Process) -> None:
        for peer in self._chosen_peers():
            self._world.fabric.cut(victim.name, peer.name, FaultKind.PARTITION)
            self._world.fabric.cut(peer.name, victim.name, FaultKind.PARTITION)
        await self._sleep(_CUT_NS)
        self._world.fabric.heal()

    async def _partition_one_way(self, victim: Process) -> None:
        is_inward = self._random.chance(0.5)
        for peer in self._chosen_peers():
            source, target = (peer, victim) if is_inward else (victim, peer)
            self._world.fabric.cut(source.name, target.name, FaultKind.PARTITION_ONE_WAY)
        await self._sleep(_CUT_NS)
        self._world.fabric.heal()

    async def _make_read_only(self, victim: Process) -> None:
        for medium in victim.machine.media.values():
            medium.is_read_only = True
        await self._sleep(_READ_ONLY_NS)
        for medium in victim.machine.media.values():
            medium.is_read_only = False

    async def _flip_bit(self, victim: Process) -> None:
        flip_some_bit(self._world, victim.machine, self._random)

    async def _change_clock_rate(self, victim: Process) -> None:
        victim.machine.set_clock_rate(_CLOCK_RATES[self._random.below(len(_CLOCK_RATES))])

    async def _wipe(self, victim: Process) -> None:
        """The machine loses its disks; whoever starts it again finds them empty."""
        if not victim.machine.is_down:
            victim.machine.crash()
        for name in list(victim.machine.media):
            victim.machine.wipe(name)

    async def _roll_back(self, victim: Process) -> None:
        """The first time its directories are copied, the next time the copies take their place."""
        machine = victim.machine
        if not victim.is_dead:
            victim.kill()
        copies = self._copies.pop(machine.name, None)
        if copies is None:
            self._copies[machine.name] = {
                name: medium.copy() for name, medium in machine.media.items()
            }
            return
        for name, copied in copies.items():
            machine.put_back(name, copied)

    def _chosen_peers(self) -> list[Process]:
        peers = self._peers()
        chosen = [peer for peer in peers if self._random.chance(0.7)]
        return chosen or peers[:1]

    async def _sleep(self, range_ns: tuple[int, int]) -> None:
        await sleep_ns(self._world.loop, self._random.between(*range_ns))


def flip_some_bit(world: World, machine: Machine, random: SeededRandom) -> str | None:
    """Damage one durable byte of a file that is not the newest of its directory, once a run.

    The end of the newest file cannot be told from a write that a crash tore, and with one copy a
    second damaged file may be the one that would have told of the first. Returns the file.
    """
    for medium in machine.media.values():
        files = [
            (path, inode)
            for path, inode in medium.durable_files()
            if inode.durable and medium.has_later_sibling(path)
        ]
        if files and not world.faults.felt(FaultKind.BIT_FLIP):
            path, inode = files[random.below(len(files))]
            medium.flip_bit(path, inode, random, world.faults)
            return path
    return None
