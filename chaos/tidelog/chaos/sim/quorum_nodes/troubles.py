"""What goes wrong with whole nodes by plan, and the supervisor that starts them again.

Kinds that happen at a place (a torn write, a cancelled handler) fire in the ports. It must never
harm more copies than a majority can do without.
"""

from typing import Final

from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.chaos.sim.quorum.shared_troubles import (
    CLOCK_RATES,
    CUT_NS,
    PAUSE_NS,
    RESTART_PROBABILITY,
    WATCH_NS,
    draw_partition,
)
from tidelog.chaos.sim.quorum_nodes.cluster import WholeCluster
from tidelog.chaos.sim.quorum_nodes.node import DIRECTORY, WholeNode
from tidelog.wire.errors import ErrorCode, TidelogError

_ACT_NS: Final = (100 * MS, 900 * MS)
_READ_ONLY_NS: Final = (50 * MS, 1_500 * MS)
_JUMP_MS_MAX: Final = 86_400_000
_DISK_KINDS: Final = (
    FaultKind.READ_ERROR,
    FaultKind.WRITE_ERROR,
    FaultKind.FLUSH_ERROR,
    FaultKind.READ_ONLY,
    FaultKind.BIT_FLIP,
)


class WholeTroubles:
    """Acts now and then with a kind that is active."""

    def __init__(self, cluster: WholeCluster) -> None:
        self._cluster = cluster
        self._random = cluster.seeds.purpose("nemesis")
        self._acts = {
            FaultKind.PROCESS_CRASH: self._crash_process,
            FaultKind.MACHINE_CRASH: self._crash_machine,
            FaultKind.PAUSE: self._pause,
            FaultKind.WALL_JUMP: self._jump_wall,
            FaultKind.PARTITION: self._partition,
            FaultKind.PARTITION_ONE_WAY: self._partition_one_way,
            FaultKind.READ_ONLY: self._make_read_only,
            FaultKind.BIT_FLIP: self._flip_bit,
            FaultKind.WIPE: self._wipe,
            FaultKind.CLOCK_RATE: self._change_rate,
        }
        self.is_over = False
        self.restores = 0
        self.violations: list[str] = []
        self._cut_number = 0

    def start(self) -> None:
        """Act now and then; start again whatever died."""
        self._cluster.agenda.after(self._random.between(*_ACT_NS), self._act)
        self._watch()

    def _act(self) -> None:
        if self.is_over:
            return
        self._cluster.agenda.after(self._random.between(*_ACT_NS), self._act)
        kinds = [kind for kind in self._acts if self._cluster.faults.is_active(kind)]
        alive = self._cluster.alive()
        if not kinds or not alive:
            return
        leader = self._cluster.leader()
        victim = alive[self._random.below(len(alive))]
        if leader is not None and self._random.chance(0.4):
            victim = leader
        kind = kinds[self._random.below(len(kinds))]
        self._cluster.trace.note(victim.name, f"nemesis:{kind.value}")
        self._acts[kind](victim)

    # -- the supervisor ------------------------------------------------------------------------

    def _watch(self) -> None:
        """What is dead is started some time later, as an operator would."""
        self._cluster.agenda.after(WATCH_NS, self._watch)
        for node in self._cluster.nodes.values():
            process = node.process
            if process is not None and not process.is_dead:
                continue
            if self.is_over or process is None or self._random.chance(RESTART_PROBABILITY):
                self.restart(node)

    def restart(self, node: WholeNode) -> None:
        """Judge how it ended, repair what an operator would, start it."""
        error = None if node.process is None else node.process.exit_error
        medium = node.machine.medium(DIRECTORY)
        if error is not None and not isinstance(error, TidelogError):
            self.violations.append(f"bug: {node.name} ended with {error!r}")
        elif isinstance(error, TidelogError):
            self._judge_end(node, error)
        if medium.is_failed:
            node.machine.crash()
        node.start()

    def _judge_end(self, node: WholeNode, error: TidelogError) -> None:
        felt = any(self._cluster.faults.felt(kind) for kind in _DISK_KINDS)
        if error.code is ErrorCode.STORAGE_CORRUPT:
            medium = node.machine.medium(DIRECTORY)
            if medium.unflip():
                self.restores += 1
                self._cluster.trace.note(node.name, "operator:restore")
                return
            self.violations.append(f"false_corruption: {node.name}: {error}")
        elif error.code is ErrorCode.STORAGE_FAILED:
            if not felt and "simulated fault" not in error.happened:
                self.violations.append(f"false_failure: {node.name}: {error}")
        elif error.code not in (ErrorCode.STORAGE_FULL, ErrorCode.CLOSED):
            self.violations.append(f"bug: {node.name} ended with {error}")

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.is_over = True
        self._cluster.world.heal()
        for node in self._cluster.nodes.values():
            node.machine.set_clock_rate(1.0)

    # -- acts ----------------------------------------------------------------------------------

    def _crash_process(self, victim: WholeNode) -> None:
        self._cluster.faults.took_effect(FaultKind.PROCESS_CRASH, victim.name)
        victim.kill(is_machine=False)

    def _crash_machine(self, victim: WholeNode) -> None:
        """While something is not flushed, if that comes soon."""
        medium, life = victim.machine.medium(DIRECTORY), victim.process

        def crash() -> None:
            if victim.process is life and life is not None and not life.is_dead:
                self._cluster.faults.took_effect(FaultKind.MACHINE_CRASH, victim.name)
                victim.kill(is_machine=True)

        def on_change(is_name: bool) -> None:
            del is_name
            self._cluster.agenda.after(self._random.below(2 * MS), crash)

        if self._random.chance(0.8):
            medium.watchers.append(on_change)
        else:
            crash()

    def _pause(self, victim: WholeNode) -> None:
        process = victim.process
        assert process is not None, "it is alive"
        if not process.is_paused:
            process.pause()
            self._cluster.agenda.after(self._random.between(*PAUSE_NS), process.resume)

    def _jump_wall(self, victim: WholeNode) -> None:
        victim.machine.jump_wall(self._random.between(-_JUMP_MS_MAX, _JUMP_MS_MAX))

    def _partition(self, victim: WholeNode) -> None:
        """As drawn; healed later."""
        fabric = self._cluster.world.fabric
        names = [node.name for node in self._cluster.nodes.values()]
        for source, target in draw_partition(self._random, names, victim.name):
            fabric.cut(source, target, FaultKind.PARTITION)
        self._heal_later()

    def _partition_one_way(self, victim: WholeNode) -> None:
        is_inward = self._random.chance(0.5)
        for other in self._cluster.nodes.values():
            if other is not victim and self._random.chance(0.7):
                source, target = (other, victim) if is_inward else (victim, other)
                self._cluster.world.fabric.cut(
                    source.name, target.name, FaultKind.PARTITION_ONE_WAY
                )
        self._heal_later()

    def _heal_later(self) -> None:
        self._cut_number += 1
        duration_ns = self._random.between(*CUT_NS)
        self._cluster.agenda.after(duration_ns, self._end_cut, self._cut_number)

    def _end_cut(self, number: int) -> None:
        if number == self._cut_number:
            self._cluster.world.fabric.heal()

    def _make_read_only(self, victim: WholeNode) -> None:
        medium = victim.machine.medium(DIRECTORY)
        medium.is_read_only = True
        self._cluster.agenda.after(
            self._random.between(*_READ_ONLY_NS), setattr, medium, "is_read_only", False
        )

    def _flip_bit(self, victim: WholeNode) -> None:
        """Below what was settled: damage above it cannot be told from a torn tail."""
        medium = victim.machine.medium(DIRECTORY)
        files = [
            (path, inode)
            for path, inode in medium.durable_files()
            if victim.settled.get(path, 0) and len(inode.durable) >= victim.settled[path]
        ]
        if not files or medium.flips or not self._cluster.may_impair(victim):
            return
        path, inode = files[self._random.below(len(files))]
        medium.flip_bit(path, inode, self._random, self._cluster.faults)
        if medium.flips[-1][1] >= victim.settled[path]:
            medium.unflip()
            return
        victim.flips += 1
        victim.kill(is_machine=False)

    def _wipe(self, victim: WholeNode) -> None:
        if self._cluster.may_impair(victim):
            victim.kill(is_machine=True)
            self._cluster.new_directory(victim)

    def _change_rate(self, victim: WholeNode) -> None:
        victim.machine.set_clock_rate(CLOCK_RATES[self._random.below(len(CLOCK_RATES))])
