"""One seed of whole nodes: runner, converters, streams and storage over simulated ports.

The same clients, operator, invariants and proof of life as with cores alone.
"""

import asyncio
from typing import Final

from tidelog.chaos.checkers.history.linearizability import Value, Verdict, check_history
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.quorum.agenda import MS, START_NS
from tidelog.chaos.sim.quorum.clients import Client
from tidelog.chaos.sim.quorum.key_value import Command, encode_command
from tidelog.chaos.sim.quorum.operators import Operator
from tidelog.chaos.sim.quorum.plan import Plan, draw_plan
from tidelog.chaos.sim.quorum.shared_troubles import LATE_ENDS_NS
from tidelog.chaos.sim.quorum_nodes.cluster import WholeCluster
from tidelog.chaos.sim.quorum_nodes.node import WholeNode
from tidelog.chaos.sim.quorum_nodes.troubles import WholeTroubles
from tidelog.chaos.sim.verdicts.playing import play
from tidelog.chaos.sim.verdicts.result import RunResult, Watch
from tidelog.chaos.sim.verdicts.verdict import CONFIGURATIONS_MAX, missing_figures, what_lacks
from tidelog.chaos.sim.world.world import World

KINDS: Final = tuple(
    kind
    for kind in FaultKind
    if not kind.value.startswith("datagram")
    and kind not in (FaultKind.WORKER_CRASH, FaultKind.ROLLBACK, FaultKind.GONE_FILE)
)
_PERIODS_MIN: Final = 2
_PERIODS_MAX: Final = 16
_PERIOD_NS: Final = (1_500 * MS, 3_500 * MS)
_WHOLE_EVENTS: Final = 1_000
_LIVENESS_NS: Final = 90_000 * MS
_LATE: Final = (FaultKind.NETWORK_DELAY, FaultKind.LATE_PROCESSING)
_LOOK_NS: Final = 100 * MS
_STABLE_NS: Final = 1_800 * MS
_STEPS_MAX: Final = 1_500_000


class NodesRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.plan: Plan = draw_plan(Seeds(seed), KINDS)
        self.world = World(seed, enabled=self.plan.kinds, steps_max=_STEPS_MAX)
        self.cluster = WholeCluster(self.world, self.plan)
        self.operator = Operator(self.cluster)
        self.troubles = WholeTroubles(self.cluster)
        self.violations: list[str] = []
        self.too_costly = 0
        self._random = self.world.seeds.purpose("play")
        self._checked_at = 0
        self.clients = [
            Client(
                f"c{number}",
                self.cluster.agenda,
                self.world.seeds.purpose(f"client/{number}"),
                self.plan.keys,
                self._choose,
            )
            for number in range(self.plan.clients)
        ]

    def _choose(self) -> WholeNode | None:
        """Mostly somebody who thinks that it leads."""
        leaders = self.cluster.leaders()
        if leaders and self._random.chance(0.7):
            return leaders[self._random.below(len(leaders))]
        alive = self.cluster.alive()
        return alive[self._random.below(len(alive))] if alive else None

    # -- the play ------------------------------------------------------------------------------

    async def play(self) -> None:
        """Everything."""
        await asyncio.sleep(0)
        for client in self.clients:
            client.start()
        self.operator.start()
        self.troubles.start()
        for number in range(_PERIODS_MAX):
            is_added = number >= _PERIODS_MIN
            if self._is_over() or (is_added and not self.missing()):
                break
            self.world.faults.begin_period(wants_unfelt=is_added and self._random.chance(0.7))
            await self._go(self._random.between(*_PERIOD_NS))
        self.troubles.heal()
        self.operator.is_repairing_only = True
        if not self._is_over():
            await self._prove_life()
        for client in self.clients:
            client.settle()
        self.cluster.watch.check_whole()

    def _is_over(self) -> bool:
        return bool(self.cluster.watch.board.violations or self.troubles.violations)

    async def _go(self, duration_ns: int) -> None:
        until_ns = self.world.loop.now_ns + duration_ns
        while self.world.loop.now_ns < until_ns and not self._is_over():
            await sleep_ns(self.world.loop, min(_LOOK_NS, until_ns - self.world.loop.now_ns))
            if self.world.trace.events - self._checked_at >= _WHOLE_EVENTS:
                self._checked_at = self.world.trace.events
                self.cluster.watch.check_whole()

    async def _prove_life(self) -> None:
        """A leader, a write, a read at every member, everybody caught up; then nobody stirs."""
        loop, cluster = self.world.loop, self.cluster
        if any(kind in self.plan.kinds for kind in _LATE):
            await self._go(LATE_ENDS_NS)
        until_ns = loop.now_ns + _LIVENESS_NS
        while what_lacks(cluster.leader(), cluster.nodes):
            if loop.now_ns >= until_ns:
                lack = what_lacks(cluster.leader(), cluster.nodes)
                self.violations.append(f"not_alive: {lack}")
                return
            await self._go(_LOOK_NS)
            if self._is_over():
                return
        for client in self.clients:
            client.is_stopped = True
        answers: list[str] = []
        self._ask_all(answers)
        wanted = 1 + len(cluster.nodes)
        while loop.now_ns < until_ns and len(answers) < wanted and not self._is_over():
            await self._go(_LOOK_NS)
        if answers.count("ok") < wanted and not self._is_over():
            self.violations.append(f"not_alive: {answers} of {wanted} probes")
        term = max(member.term for member in cluster.watch.board.members.values())
        await self._go(_STABLE_NS)
        highest = max(member.term for member in cluster.watch.board.members.values())
        if highest != term and not self._is_over():
            self.violations.append(f"restless: term {term} became {highest} without any fault")

    def _ask_all(self, answers: list[str]) -> None:
        def on_answer(outcome: str, value: Value) -> None:
            del value
            answers.append(outcome)

        leader = self.cluster.leader()
        if leader is not None:
            leader.propose(encode_command(Command("write", "probe", "alive")), on_answer)
        for node in self.cluster.alive():
            node.read("probe", on_answer)

    # -- the verdict ---------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Why the seed does not count."""
        return missing_figures(
            self.world.faults,
            self.world.trace.events,
            self.cluster.elections,
            self.cluster.watch.board.commit_index,
        )

    def judge(self) -> RunResult:
        """Check everything that was written down."""
        board, world = self.cluster.watch.board, self.world
        violations = [*board.violations, *self.violations, *self.troubles.violations]
        violations += [f"bug: {text}" for text in world.findings()]
        violations += [f"unretrieved: {text}" for text in world.loop.unretrieved]
        operations = [each for client in self.clients for each in client.operations]
        if not violations:
            for judgement in check_history(operations, configurations_max=CONFIGURATIONS_MAX):
                if judgement.verdict is Verdict.VIOLATED:
                    violations.append(f"not_linearizable: {judgement}")
                self.too_costly += judgement.verdict is Verdict.TOO_COSTLY
        missing = self.missing() + ["history too costly"] * bool(self.too_costly)
        return RunResult(
            seed=self.seed,
            trace_hash=world.trace.hash_text(),
            events=world.trace.events,
            steps=world.loop.steps,
            virtual_ms=(world.loop.now_ns - START_NS) // MS,
            violations=tuple(violations),
            missing=tuple(missing),
            felt={kind.value: count.felt for kind, count in world.faults.counts.items()},
            figures={
                "elections": self.cluster.elections,
                "commits": board.commit_index,
                "operations": len(operations),
                "changes": self.operator.changes,
                "transfers": self.operator.transfers,
                "restores": self.troubles.restores,
            },
            transitions=(*world.trace.transitions, *self.cluster.watch.paces),
        )


def run_nodes(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    return play(NodesRun(seed), watch)
