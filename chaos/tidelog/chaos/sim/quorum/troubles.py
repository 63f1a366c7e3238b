"""What goes wrong with simulated nodes by plan: crashes, pauses, cuts, rot, wiped disks, clocks.

Kinds that happen at a place (a lost datagram, a failed flush) fire there. It must never harm more
copies than a majority can do without.
"""

from typing import TYPE_CHECKING, Final

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
from tidelog.metadata_quorum.raft.inputs import CorruptEntry
from tidelog.wire.ids import LogIndex

if TYPE_CHECKING:
    from tidelog.chaos.sim.quorum.cluster import Cluster
    from tidelog.chaos.sim.quorum.node import QuorumNode

_ACT_NS: Final = (80 * MS, 700 * MS)


class Troubles:
    """Acts now and then with a kind that is active."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._random = cluster.seeds.purpose("nemesis")
        self._acts = {
            FaultKind.PROCESS_CRASH: self._crash_process,
            FaultKind.MACHINE_CRASH: self._crash_machine,
            FaultKind.PAUSE: self._pause,
            FaultKind.PARTITION: self._partition,
            FaultKind.PARTITION_ONE_WAY: self._partition_one_way,
            FaultKind.BREAK: self._hint_falsely,
            FaultKind.BIT_FLIP: self._flip_bit,
            FaultKind.WIPE: self._wipe,
            FaultKind.CLOCK_RATE: self._change_rate,
        }
        self.is_over = False
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

    def _watch(self) -> None:
        """A supervisor: what is dead is started some time later."""
        self._cluster.agenda.after(WATCH_NS, self._watch)
        for node in self._cluster.nodes.values():
            if node.core is None and (self.is_over or self._random.chance(RESTART_PROBABILITY)):
                node.start()

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        cluster = self._cluster
        self.is_over = True
        cluster.faults.heal()
        cluster.wires.heal()
        cluster.wires.forget()
        for node in cluster.nodes.values():
            node.resume()
            node.set_rate(1.0)
            # A crash that waits for the next write would fall into the proof of life.
            node.is_crashing_at_write = False

    # -- acts ----------------------------------------------------------------------------------

    def _crash_process(self, victim: "QuorumNode") -> None:
        self._cluster.faults.took_effect(FaultKind.PROCESS_CRASH, victim.name)
        victim.kill(is_machine=False)

    def _crash_machine(self, victim: "QuorumNode") -> None:
        faults = self._cluster.faults
        is_write_wanted = faults.is_active(FaultKind.LOST_WRITE) or faults.is_active(
            FaultKind.TORN_WRITE
        )
        if is_write_wanted and not victim.disk.pending:
            victim.is_crashing_at_write = True
            return
        faults.took_effect(FaultKind.MACHINE_CRASH, victim.name)
        victim.kill(is_machine=True)
        if self._random.chance(0.2):
            for node in self._cluster.alive():
                node.kill(is_machine=True)

    def _pause(self, victim: "QuorumNode") -> None:
        victim.is_paused = True
        life = victim.life
        self._cluster.agenda.after(self._random.between(*PAUSE_NS), self._end_pause, victim, life)

    def _end_pause(self, victim: "QuorumNode", life: int) -> None:
        if victim.life == life:
            victim.resume()

    def _partition(self, victim: "QuorumNode") -> None:
        """As drawn; healed later."""
        wires, ids = self._cluster.wires, list(self._cluster.nodes)
        for source, target in draw_partition(self._random, ids, victim.node_id):
            wires.cut(source, target, FaultKind.PARTITION)
        self._heal_later()

    def _partition_one_way(self, victim: "QuorumNode") -> None:
        wires, random = self._cluster.wires, self._random
        is_inward = random.chance(0.5)
        for other in self._cluster.nodes:
            if random.chance(0.7):
                source, target = (other, victim.node_id) if is_inward else (victim.node_id, other)
                wires.cut(source, target, FaultKind.PARTITION_ONE_WAY)
        self._heal_later()

    def _heal_later(self) -> None:
        self._cut_number += 1
        duration_ns = self._random.between(*CUT_NS)
        self._cluster.agenda.after(duration_ns, self._end_cut, self._cut_number)

    def _end_cut(self, number: int) -> None:
        if number == self._cut_number:
            self._cluster.wires.heal()

    def _hint_falsely(self, victim: "QuorumNode") -> None:
        """A connection breaks, and the peer is taken for dead."""
        others = [node for node in self._cluster.alive() if node is not victim]
        if others:
            other = others[self._random.below(len(others))]
            self._cluster.faults.took_effect(FaultKind.BREAK, f"{victim.name}>{other.name}")
            other.later(0, self._cluster.hint, other, victim.node_id)

    def _flip_bit(self, victim: "QuorumNode") -> None:
        flushed = victim.seen.flushed
        if not flushed.entries or not self._cluster.may_impair(victim) or victim.is_paused:
            return
        index = flushed.entries[self._random.below(len(flushed.entries))].index
        victim.disk.damaged[index] = None
        self._cluster.faults.took_effect(FaultKind.BIT_FLIP, victim.name, str(index))
        if self._random.chance(0.5):
            victim.give(CorruptEntry(index=LogIndex(index)))
        else:
            victim.kill(is_machine=False)

    def _wipe(self, victim: "QuorumNode") -> None:
        if not self._cluster.may_impair(victim) or self._random.chance(0.5):
            return
        victim.kill(is_machine=True)
        self._cluster.new_directory(victim)
        self._cluster.faults.took_effect(FaultKind.WIPE, victim.name)

    def _change_rate(self, victim: "QuorumNode") -> None:
        rate = CLOCK_RATES[self._random.below(len(CLOCK_RATES))]
        self._cluster.faults.took_effect(FaultKind.CLOCK_RATE, victim.name, str(rate))
        victim.set_rate(rate)
