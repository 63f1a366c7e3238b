"""Calls between members and brokers: delayed, lost, answered too late, or processed too late.

Owns one call's way there and back, and whom each caller takes for the coordinator. The caller gives
up at its deadline and then takes no answer; what was on its way may arrive all the same.
"""

from collections.abc import Callable
from typing import Final, Protocol

from tidelog.broker.groups.state.messages import Answer, AnyRequest
from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.groups.coordinators import Broker, Coordinators
from tidelog.chaos.sim.quorum.agenda import MS, Agenda
from tidelog.wire.errors import ErrorCode, TidelogError

DEADLINE_MS: Final = 250
LATE_MS: Final = (DEADLINE_MS, 2_500)
SLOW_MS: Final = (40, 200)

RETRY_MS: Final = (20, 120)

OnAnswer = Callable[[Answer | None], None]
"""None: there was none in time."""


class Calls(Protocol):
    """How callers reach the coordinator of a group."""

    def call(self, who: str, group: str, request: AnyRequest, on_answer: OnAnswer) -> None:
        """Exactly one call of `on_answer`, at a deadline at the latest."""
        ...


class Wires:
    """The network of one run."""

    def __init__(
        self,
        agenda: Agenda,
        random: SeededRandom,
        faults: Faults,
        trace: Trace,
        coordinators: Coordinators,
        latency_ms: tuple[int, int],
    ) -> None:
        self._agenda: Final = agenda
        self._random: Final = random
        self._faults: Final = faults
        self._trace: Final = trace
        self._coordinators: Final = coordinators
        self._latency_ms: Final = latency_ms
        self._targets: Final[dict[str, Broker]] = {}

    def call(self, who: str, group: str, request: AnyRequest, on_answer: OnAnswer) -> None:
        """Exactly one call of `on_answer`, at the deadline at the latest."""
        del group
        broker = self._targets.setdefault(who, self._coordinators.brokers[0])
        request_id = self._coordinators.next_request_id()
        is_over = False

        def finish(answer: Answer | None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                if answer is None or is_elsewhere(answer):
                    self._agenda.after(self._random.between(*RETRY_MS) * MS, self._look_up, who)
                on_answer(answer)

        kind = type(request).__name__
        self._agenda.after(DEADLINE_MS * MS, finish, None)
        if self._faults.fires(FaultKind.BREAK):
            self._faults.took_effect(FaultKind.BREAK, who, name=kind)
            return
        if self._faults.fires(FaultKind.LATE_PROCESSING):
            self._agenda.after(
                self._random.between(*LATE_MS) * MS,
                self._arrive_late,
                who,
                broker,
                request,
                request_id,
            )
            return
        self._agenda.after(
            self._delay_ns(who), self._arrive, who, broker, request, request_id, finish
        )

    def _look_up(self, who: str) -> None:
        """Who leads, or led a moment ago."""
        leader = self._coordinators.leader
        if leader is not None:
            self._targets[who] = leader

    def _delay_ns(self, who: str) -> int:
        if self._faults.fires(FaultKind.NETWORK_DELAY):
            self._faults.took_effect(FaultKind.NETWORK_DELAY, who)
            return self._random.between(*SLOW_MS) * MS
        return self._random.between(*self._latency_ms) * MS

    def _arrive(
        self, who: str, broker: Broker, request: AnyRequest, request_id: int, finish: OnAnswer
    ) -> None:
        self._trace.note(f"broker {broker.number}", type(request).__name__, who)

        def reply(answer: Answer) -> None:
            if self._faults.fires(FaultKind.BREAK):
                self._faults.took_effect(FaultKind.BREAK, who, "answer")
            else:
                self._agenda.after(self._delay_ns(who), self._deliver, who, answer, finish)

        self._coordinators.ask(broker, request, request_id, reply)

    def _deliver(self, who: str, answer: Answer, finish: OnAnswer) -> None:
        self._trace.note(who, "answer", name=type(answer.result).__name__)
        finish(answer)

    def _arrive_late(self, who: str, broker: Broker, request: AnyRequest, request_id: int) -> None:
        if broker.core is not None and not broker.is_paused:
            self._faults.took_effect(FaultKind.LATE_PROCESSING, who, name=type(request).__name__)
        self._coordinators.ask(broker, request, request_id, lambda _answer: None)


def is_elsewhere(answer: Answer) -> bool:
    """The coordinator is to be looked up again."""
    return isinstance(answer.result, TidelogError) and answer.result.code in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNAVAILABLE,
    )
