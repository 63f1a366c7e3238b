"""What goes wrong, at times that the seed draws: crashes, pauses, a leader that is cut off."""

from typing import Final

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.groups.coordinators import Broker, Coordinators
from tidelog.chaos.sim.groups.crowd import Crowd
from tidelog.chaos.sim.quorum.agenda import MS, Agenda

GAP_MS: Final = (80, 700)
DOWN_MS: Final = (100, 1_500)
STARTED: Final = (
    FaultKind.PROCESS_CRASH,
    FaultKind.MACHINE_CRASH,
    FaultKind.PAUSE,
    FaultKind.PARTITION,
    FaultKind.LOST_WRITE,
)
"""Kinds that somebody has to begin; a lost end of a log shows when its leader changes."""


class Troubles:
    """Of one run."""

    def __init__(
        self,
        agenda: Agenda,
        random: SeededRandom,
        faults: Faults,
        coordinators: Coordinators,
        crowd: Crowd,
    ) -> None:
        self._agenda: Final = agenda
        self._random: Final = random
        self._faults: Final = faults
        self._coordinators: Final = coordinators
        self._crowd: Final = crowd
        self._is_healed = False

    def start(self) -> None:
        """From now on."""
        self._agenda.after(self._random.between(*GAP_MS) * MS, self._act)

    def heal(self) -> None:
        """Everybody is up and stays so."""
        self._is_healed = True
        self._faults.heal()
        for broker in self._coordinators.brokers:
            self._bring_back(broker)

    def _act(self) -> None:
        if self._is_healed:
            return
        self._agenda.after(self._random.between(*GAP_MS) * MS, self._act)
        kinds = [kind for kind in STARTED if self._faults.is_active(kind)]
        if not kinds:
            return
        match kinds[self._random.below(len(kinds))]:
            case FaultKind.PROCESS_CRASH:
                self._crowd.crash_one()
            case FaultKind.MACHINE_CRASH:
                self._crash_a_broker()
            case FaultKind.PAUSE:
                self._pause()
            case _:
                self._cut_off()

    def _leader(self) -> Broker | None:
        leader = self._coordinators.leader
        return leader if leader is not None and leader.core is not None else None

    def _crash_a_broker(self) -> None:
        broker = self._leader()
        if broker is not None:
            self._faults.took_effect(FaultKind.MACHINE_CRASH, f"broker {broker.number}")
            self._coordinators.crash(broker)
            self._agenda.after(
                self._random.between(*DOWN_MS) * MS, self._coordinators.restart, broker
            )

    def _pause(self) -> None:
        """A member, or the leader: short, or so long that another one is elected."""
        broker = self._leader()
        if broker is None or broker.is_paused or self._random.chance(0.6):
            self._crowd.pause_one()
            return
        self._faults.took_effect(FaultKind.PAUSE, f"broker {broker.number}")
        self._coordinators.pause(broker)
        span_ms = self._random.between(*DOWN_MS)
        self._agenda.after(span_ms * MS, self._coordinators.resume, broker)
        if self._random.chance(0.5):
            self._coordinators.depose()

    def _cut_off(self) -> None:
        """It goes on as if it led, and nothing of that is replicated."""
        broker = self._leader()
        if broker is not None:
            kind = FaultKind.PARTITION
            if self._faults.is_active(kind):
                self._faults.took_effect(kind, f"broker {broker.number}")
            self._coordinators.depose()

    def _bring_back(self, broker: Broker) -> None:
        if broker.is_dead:
            self._coordinators.restart(broker)
        if broker.is_paused:
            self._coordinators.resume(broker)
