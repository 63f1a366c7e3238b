"""Datagrams between members as values: lost, doubled, late and overtaken, and cut links.

The messages are immutable, so nothing is encoded here; the whole stack has its own suite mode.
"""

from collections.abc import Callable
from typing import Final

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.quorum.agenda import Agenda

_NEAR_NS: Final = 1_500_000
_FAR_NS: Final = (1_000_000, 3_000_000_000)
_REORDER_NS_MAX: Final = 2_000_000_000

Deliver = Callable[[int, int, object], None]
"""Called with source, target and datagram."""


class Wires:
    """All links of a quorum, by node id."""

    def __init__(
        self, agenda: Agenda, random: SeededRandom, faults: Faults, deliver: Deliver
    ) -> None:
        self._agenda = agenda
        self._random = random
        self._faults = faults
        self._deliver = deliver
        self.cuts: dict[tuple[int, int], FaultKind] = {}
        self._age = 0

    def send(self, source: int, target: int, datagram: object) -> None:
        """Send and forget."""
        faults = self._faults
        if faults.active:
            if faults.fires(FaultKind.DATAGRAM_LOSS):
                faults.took_effect(FaultKind.DATAGRAM_LOSS, f"n{source}>n{target}")
                return
            if faults.fires(FaultKind.DATAGRAM_DUPLICATE):
                faults.took_effect(FaultKind.DATAGRAM_DUPLICATE, f"n{source}>n{target}")
                self._send_once(source, target, datagram)
        self._send_once(source, target, datagram)

    def _send_once(self, source: int, target: int, datagram: object) -> None:
        faults = self._faults
        delay_ns = int(20_000 + self._random.unit() * _NEAR_NS)
        if faults.active:
            if faults.fires(FaultKind.NETWORK_DELAY):
                delay_ns = self._random.between(*_FAR_NS)
                faults.took_effect(FaultKind.NETWORK_DELAY, f"n{source}>n{target}")
            if faults.fires(FaultKind.DATAGRAM_REORDER):
                delay_ns += self._random.below(_REORDER_NS_MAX)
                faults.took_effect(FaultKind.DATAGRAM_REORDER, f"n{source}>n{target}")
        self._agenda.after(delay_ns, self._arrive, self._age, source, target, datagram)

    def _arrive(self, age: int, source: int, target: int, datagram: object) -> None:
        if age != self._age:
            return
        if self.cuts:
            kind = self.cuts.get((source, target))
            if kind is not None:
                self._faults.took_effect(kind, f"n{source}>n{target}")
                return
        self._deliver(source, target, datagram)

    def cut(self, source: int, target: int, kind: FaultKind) -> None:
        """Let nothing through in this direction."""
        if source != target:
            self.cuts[source, target] = kind

    def heal(self) -> None:
        """All links are whole."""
        self.cuts.clear()

    def forget(self) -> None:
        """What is under way is lost: nothing late disturbs who comes after."""
        self._age += 1
