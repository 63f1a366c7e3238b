"""One seed of cores over datagrams: troubles, then a heal and a proof of life, then the verdict."""

from typing import Final

from tidelog.chaos.checkers.history.linearizability import Value, Verdict, check_history
from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.quorum.agenda import MS, START_NS
from tidelog.chaos.sim.quorum.clients import Client
from tidelog.chaos.sim.quorum.cluster import Cluster
from tidelog.chaos.sim.quorum.key_value import Command, encode_command
from tidelog.chaos.sim.quorum.node import QuorumNode
from tidelog.chaos.sim.quorum.operators import Operator
from tidelog.chaos.sim.quorum.plan import draw_plan
from tidelog.chaos.sim.quorum.shared_troubles import WRITES_END_NS
from tidelog.chaos.sim.quorum.troubles import Troubles
from tidelog.chaos.sim.verdicts.playing import play_cores
from tidelog.chaos.sim.verdicts.result import RunResult, Watch
from tidelog.chaos.sim.verdicts.verdict import CONFIGURATIONS_MAX, missing_figures, what_lacks

_PERIODS_MIN: Final = 2
_PERIODS_MAX: Final = 24
_PERIOD_NS: Final = (900 * MS, 2_400 * MS)
_WHOLE_EVENTS: Final = 1_000
_LIVENESS_NS: Final = 60_000 * MS
_LOOK_NS: Final = 50 * MS
_STABLE_NS: Final = 1_800 * MS
_STEPS_MAX: Final = 400_000


class DatagramRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.seeds = Seeds(seed)
        self.trace = Trace()
        self.plan = draw_plan(self.seeds)
        self.faults = Faults(
            self.seeds.purpose("faults"),
            self.trace,
            enabled=self.plan.kinds,
            probabilities={
                FaultKind.DATAGRAM_LOSS: self.plan.loss,
                FaultKind.DATAGRAM_DUPLICATE: self.plan.duplication,
                FaultKind.DATAGRAM_REORDER: self.plan.reordering,
                FaultKind.FLUSH_ERROR: 0.01,
                FaultKind.WRITE_ERROR: 0.01,
            },
        )
        self.cluster = Cluster(self.seeds, self.plan, self.trace, self.faults)
        self.operator = Operator(self.cluster)
        self.troubles = Troubles(self.cluster)
        self.violations: list[str] = []
        self.too_costly = 0
        self._random = self.seeds.purpose("play")
        self._checked_at = 0
        self.clients = [
            Client(
                f"c{number}",
                self.cluster.agenda,
                self.seeds.purpose(f"client/{number}"),
                self.plan.keys,
                self._choose,
            )
            for number in range(self.plan.clients)
        ]

    def _choose(self) -> QuorumNode | None:
        """Mostly somebody who thinks that it leads."""
        leaders = self.cluster.leaders()
        if leaders and self._random.chance(0.7):
            return leaders[self._random.below(len(leaders))]
        alive = self.cluster.alive()
        return alive[self._random.below(len(alive))] if alive else None

    # -- the play ------------------------------------------------------------------------------

    def play(self) -> None:
        """Everything."""
        for node in self.cluster.nodes.values():
            node.start()
        for client in self.clients:
            client.start()
        self.operator.start()
        self.troubles.start()
        for number in range(_PERIODS_MAX):
            is_added = number >= _PERIODS_MIN
            if self._is_over() or (is_added and not self.missing()):
                break
            self.faults.begin_period(wants_unfelt=is_added and self._random.chance(0.7))
            self._go(self._random.between(*_PERIOD_NS))
        self.troubles.heal()
        self.operator.is_repairing_only = True
        if not self._is_over():
            self._prove_life()
        for client in self.clients:
            client.settle()
        self.cluster.watch.check_whole()

    def _is_over(self) -> bool:
        return bool(self.cluster.watch.board.violations)

    def _go(self, duration_ns: int) -> None:
        self.cluster.agenda.run_until(self.cluster.agenda.now_ns + duration_ns, self._on_step)

    def _on_step(self) -> bool:
        """Whether to stop; the whole is checked now and then."""
        if self.trace.events - self._checked_at >= _WHOLE_EVENTS:
            self._checked_at = self.trace.events
            self.cluster.watch.check_whole()
        assert self.cluster.agenda.steps < _STEPS_MAX, "a run ends: something spins"
        return self._is_over()

    def _prove_life(self) -> None:
        """A leader, a write, a read at every member, everybody caught up; then nobody stirs."""
        agenda = self.cluster.agenda
        self._go(WRITES_END_NS)
        until_ns = agenda.now_ns + _LIVENESS_NS
        while agenda.now_ns < until_ns:
            self._go(_LOOK_NS)
            if self._is_over():
                return
            if not self._what_lacks():
                break
        else:
            self.violations.append(f"not_alive: {self._what_lacks()}")
            return
        for client in self.clients:
            client.is_stopped = True
        answers: list[str] = []
        self._ask_all(answers)
        wanted = 1 + len(self.cluster.nodes)
        while agenda.now_ns < until_ns and len(answers) < wanted and not self._is_over():
            self._go(_LOOK_NS)
        if answers.count("ok") < wanted and not self._is_over():
            self.violations.append(f"not_alive: {answers} of {wanted} probes")
        leader = self.cluster.leader()
        term = 0 if leader is None else leader.seen.term
        self._go(_STABLE_NS)
        highest = max(member.term for member in self.cluster.watch.board.members.values())
        if highest != term and not self._is_over():
            self.violations.append(f"restless: term {term} became {highest} without any fault")

    def _what_lacks(self) -> str:
        return what_lacks(self.cluster.leader(), self.cluster.nodes)

    def _ask_all(self, answers: list[str]) -> None:
        def on_answer(outcome: str, value: Value) -> None:
            del value
            answers.append(outcome)

        leader = self.cluster.leader()
        if leader is None:
            return
        leader.propose(encode_command(Command("write", "probe", "alive")), on_answer)
        for node in self.cluster.nodes.values():
            if node.core is not None:
                node.read("probe", on_answer)

    # -- the verdict ---------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Why the seed does not count."""
        return missing_figures(
            self.faults,
            self.trace.events,
            self.cluster.elections,
            self.cluster.watch.board.commit_index,
        )

    def judge(self) -> RunResult:
        """Check everything that was written down."""
        board = self.cluster.watch.board
        violations = [*board.violations, *self.violations]
        operations = [each for client in self.clients for each in client.operations]
        if not violations:
            for judgement in check_history(operations, configurations_max=CONFIGURATIONS_MAX):
                if judgement.verdict is Verdict.VIOLATED:
                    violations.append(f"not_linearizable: {judgement}")
                self.too_costly += judgement.verdict is Verdict.TOO_COSTLY
        missing = self.missing()
        if self.too_costly:
            missing.append("history too costly")
        return RunResult(
            seed=self.seed,
            trace_hash=self.trace.hash_text(),
            events=self.trace.events,
            steps=self.cluster.agenda.steps,
            virtual_ms=(self.cluster.agenda.now_ns - START_NS) // MS,
            violations=tuple(violations),
            missing=tuple(missing),
            felt={kind.value: count.felt for kind, count in self.faults.counts.items()},
            figures={
                "restores": 0,
                "elections": self.cluster.elections,
                "commits": board.commit_index,
                "operations": len(operations),
                "changes": self.operator.changes,
                "transfers": self.operator.transfers,
            },
            transitions=(*self.trace.transitions, *self.cluster.watch.paces),
        )


def run_datagrams(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    return play_cores(DatagramRun(seed), watch)
