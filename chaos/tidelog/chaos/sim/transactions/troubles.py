"""What befalls the cores' run: brokers and clients die, stand still, are cut off; leaders move."""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.chaos.sim.quorum_nodes.cluster import LoopAgenda
from tidelog.chaos.sim.transactions.broker import COORDINATORS, ModelBroker
from tidelog.chaos.sim.transactions.lives import Owner
from tidelog.chaos.sim.transactions.plan import SuitePlan
from tidelog.chaos.sim.transactions.truth import ReplicatedLog, Truth
from tidelog.chaos.sim.world.process import Process
from tidelog.chaos.sim.world.world import World

_ACT_NS: Final = (60 * MS, 600 * MS)
_DOWN_NS: Final = (50 * MS, 900 * MS)
_ELECTION_NS: Final = (10 * MS, 250 * MS)
_PAUSE_NS: Final = (20 * MS, 2_500 * MS)
_CUT_NS: Final = (100 * MS, 1_500 * MS)
_STEAL: Final = 0.06
_REBALANCE: Final = 0.1
_SAME: Final = 0.15
"""How likely the leader that is elected is the one that led."""


class CoreTroubles:
    """Of one run."""

    def __init__(
        self, world: World, truth: Truth, brokers: Sequence[ModelBroker], plan: SuitePlan
    ) -> None:
        self.clients: Callable[[], list[Process]] = list
        """Those that live."""
        self.owners: Sequence[Owner] = ()
        self._world = world
        self._truth = truth
        self._brokers = brokers
        self._plan = plan
        self._agenda = LoopAgenda(world.loop)
        self._random: SeededRandom = world.seeds.purpose("troubles")
        self._is_over = False
        self._cuts = 0

    def start(self) -> None:
        """From now on."""
        self._agenda.after(self._random.between(*_ACT_NS), self._act)
        self._agenda.after(self._random.between(*self._plan.moves_ns), self._move)

    def heal(self) -> None:
        """Everybody is up, and stays so."""
        self._is_over = True
        self._world.heal()
        for broker in self._brokers:
            if not broker.is_alive:
                self._start(broker)

    def _move(self) -> None:
        """A leader moves, a coordinator above all."""
        if self._is_over:
            return
        self._agenda.after(self._random.between(*self._plan.moves_ns), self._move)
        logs = list(self._truth.logs.values())
        if self._random.chance(0.5):
            logs = [log for log in logs if log.name.startswith(COORDINATORS)]
        self._elect(logs[self._random.below(len(logs))])

    def _elect(self, log: ReplicatedLog) -> None:
        alive = [each.name for each in self._brokers if each.is_alive]
        others = [name for name in alive if name != log.leader]
        pool = alive if self._random.chance(_SAME) or not others else others
        if pool:
            self._truth.move(log, pool[self._random.below(len(pool))])

    def _act(self) -> None:
        if self._is_over:
            return
        self._agenda.after(self._random.between(*_ACT_NS), self._act)
        faults = self._world.faults
        if self.owners and self._random.chance(_STEAL):
            self.owners[self._random.below(len(self.owners))].steal()
        if self._random.chance(_REBALANCE):
            for broker in self._brokers:
                broker.rebalance()
        kinds = [
            kind
            for kind in (FaultKind.PROCESS_CRASH, FaultKind.PAUSE, FaultKind.PARTITION)
            if faults.is_active(kind)
        ]
        if not kinds:
            return
        match kinds[self._random.below(len(kinds))]:
            case FaultKind.PROCESS_CRASH:
                self._crash()
            case FaultKind.PAUSE:
                self._pause()
            case _:
                self._cut()

    def _crash(self) -> None:
        clients = self.clients()
        if clients and self._random.chance(0.4):
            self._world.faults.took_effect(FaultKind.PROCESS_CRASH, "client")
            clients[self._random.below(len(clients))].kill()
            return
        alive = [each for each in self._brokers if each.is_alive]
        if len(alive) < len(self._brokers):
            return
        victim = alive[self._random.below(len(alive))]
        assert victim.process is not None, "it lives"
        self._world.faults.took_effect(FaultKind.PROCESS_CRASH, victim.name)
        victim.process.kill()
        for log in self._truth.logs.values():
            if log.leader == victim.name:
                self._agenda.after(
                    self._random.between(*_ELECTION_NS), self._replace, log, victim.name, log.epoch
                )
        self._agenda.after(self._random.between(*_DOWN_NS), self._start, victim)

    def _replace(self, log: ReplicatedLog, dead: str, epoch: int) -> None:
        if log.leader == dead and log.epoch == epoch:
            self._elect(log)

    def _start(self, broker: ModelBroker) -> None:
        """It leads nothing any more that it has led in its life before."""
        if broker.is_alive:
            return
        for log in self._truth.logs.values():
            if log.leader == broker.name:
                self._elect(log)
        broker.start()

    def _pause(self) -> None:
        processes = [
            *self.clients(),
            *(each.process for each in self._brokers if each.process is not None),
        ]
        victim = processes[self._random.below(len(processes))]
        if not victim.is_dead and not victim.is_paused:
            victim.pause()
            self._agenda.after(self._random.between(*_PAUSE_NS), self._resume, victim)

    def _resume(self, process: Process) -> None:
        process.resume()

    def _cut(self) -> None:
        """A broker from another one, from a client, or from all."""
        victim = self._brokers[self._random.below(len(self._brokers))]
        names = [each.name for each in self._brokers if each is not victim]
        names += [process.name for process in self.clients()]
        some = [name for name in names if self._random.chance(0.6)]
        for name in some:
            self._world.fabric.cut(name, victim.name, FaultKind.PARTITION)
            if self._random.chance(0.8):
                self._world.fabric.cut(victim.name, name, FaultKind.PARTITION)
        self._cuts += 1
        self._agenda.after(self._random.between(*_CUT_NS), self._end_cut, self._cuts)

    def _end_cut(self, number: int) -> None:
        if number == self._cuts:
            self._world.fabric.heal()
