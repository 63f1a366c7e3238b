"""One seed of groups with cores alone: troubles, then a heal and a proof of life."""

from typing import Final

from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.answers import GroupState
from tidelog.broker.groups.state.messages import GroupSettings
from tidelog.chaos.checkers.groups import GroupsWatch
from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.groups.coordinators import Coordinators
from tidelog.chaos.sim.groups.crowd import Crowd
from tidelog.chaos.sim.groups.plan import draw_plan
from tidelog.chaos.sim.groups.topics import ToldTopics
from tidelog.chaos.sim.groups.troubles import Troubles
from tidelog.chaos.sim.groups.wires import Wires
from tidelog.chaos.sim.quorum.agenda import MS, START_NS, Agenda
from tidelog.chaos.sim.verdicts.playing import play_cores
from tidelog.chaos.sim.verdicts.result import RunResult, Watch
from tidelog.wire.ids import PartitionId, PartitionKey

EVENTS_MIN: Final = 2_000
REASSIGNMENTS_MIN: Final = 5
COMMITS_MIN: Final = 50
_PERIODS_MIN: Final = 3
_PERIODS_MAX: Final = 20
_PERIOD_NS: Final = (1_200 * MS, 3_000 * MS)
_LIVENESS_NS: Final = 25_000 * MS
_LOOK_NS: Final = 100 * MS
_STEPS_MAX: Final = 400_000


class GroupsCoresRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.seeds = Seeds(seed)
        self.trace = Trace()
        self.agenda = Agenda()
        self.trace.use_clock(lambda: self.agenda.now_ns)
        self.plan = draw_plan(self.seeds)
        self.faults = Faults(
            self.seeds.purpose("faults"),
            self.trace,
            enabled=self.plan.kinds,
            probabilities={FaultKind.LATE_PROCESSING: 0.08, FaultKind.BREAK: 0.04},
        )
        self.watch = GroupsWatch(self.trace)
        self.coordinators = Coordinators(
            self.agenda,
            self.seeds.purpose("coordinators"),
            self.faults,
            self.watch,
            GroupSettings(
                session_timeout_ms=self.plan.session_timeout_ms,
                session_timeout_ms_min=1,
                heartbeat_interval_ms=self.plan.heartbeat_interval_ms,
            ),
        )
        self.wires = Wires(
            self.agenda,
            self.seeds.purpose("network"),
            self.faults,
            self.trace,
            self.coordinators,
            self.plan.latency_ms,
        )
        self.topics = ToldTopics(
            self.seeds.purpose("topics"), self.trace, self.plan, self.coordinators
        )
        self.crowd = Crowd(
            self.agenda,
            self.seeds.purpose("crowd"),
            self.faults,
            self.plan,
            self.topics,
            self.wires,
            self.watch,
        )
        self.troubles = Troubles(
            self.agenda, self.seeds.purpose("troubles"), self.faults, self.coordinators, self.crowd
        )
        self._random = self.seeds.purpose("play")

    @property
    def violations(self) -> list[str]:
        """What was found so far."""
        return self.watch.violations

    def play(self) -> None:
        """Troubles, a heal, and a proof of life."""
        self.coordinators.start()
        self.topics.start()
        self.crowd.start()
        self.troubles.start()
        for number in range(_PERIODS_MAX):
            is_added = number >= _PERIODS_MIN
            if self._is_over() or (is_added and not self.missing()):
                break
            self.faults.begin_period(wants_unfelt=is_added and self._random.chance(0.7))
            self._go(self._random.between(*_PERIOD_NS))
        self.troubles.heal()
        self.crowd.calm_down()
        self._prove_life()

    def _go(self, duration_ns: int) -> None:
        self.agenda.run_until(self.agenda.now_ns + duration_ns, self._is_over)

    def _is_over(self) -> bool:
        self.watch.now_ns = self.agenda.now_ns
        assert self.agenda.steps < _STEPS_MAX, "a run ends: something spins"
        return bool(self.violations)

    def _prove_life(self) -> None:
        """Every partition of a subscribed topic is read, and read on; every group is stable."""
        until_ns = self.agenda.now_ns + _LIVENESS_NS
        while self.agenda.now_ns < until_ns and not self._is_over():
            self._go(_LOOK_NS)
            if not self._what_lacks():
                return
        if not self._is_over():
            self.violations.append(f"not_alive: {self._what_lacks()}")

    def _what_lacks(self) -> str:
        core = self._leading_core()
        if core is None:
            return "nobody leads"
        for number in range(self.plan.groups):
            name = f"g{number}"
            group = core.groups.get(name)
            if group is None or group.state is not GroupState.STABLE:
                return f"{name} is {group.state.name if group else 'not there'}"
            unread = self._unread(name)
            if unread:
                return f"{unread[0]} of {name} is not read"
        return ""

    def _leading_core(self) -> GroupCoordinatorCore | None:
        leader = self.coordinators.leader
        return leader.core if leader is not None else None

    def _unread(self, group: str) -> list[PartitionKey]:
        lives = [life for life in self.crowd.members if life.member.group == group]
        read = {
            key: None for life in lives for key, position in life.positions.items() if position >= 0
        }
        core = self._leading_core()
        assert core is not None, "somebody leads"
        return [
            key
            for life in lives
            for topic in core.resolve(life.member.subscription)
            for key in (
                PartitionKey(topic.topic_id, PartitionId(number))
                for number in range(topic.partition_count)
            )
            if key not in read
        ]

    def missing(self) -> list[str]:
        """Why the seed does not count."""
        missing = [f"{kind.value} unfelt" for kind in self.faults.unfelt()]
        if self.trace.events < EVENTS_MIN:
            missing.append("events")
        if self.watch.reassignments < REASSIGNMENTS_MIN:
            missing.append("reassignments")
        if self.watch.commits < COMMITS_MIN:
            missing.append("commits")
        return missing

    def judge(self) -> RunResult:
        """What the watch has written down."""
        return RunResult(
            seed=self.seed,
            trace_hash=self.trace.hash_text(),
            events=self.trace.events,
            steps=self.agenda.steps,
            virtual_ms=(self.agenda.now_ns - START_NS) // MS,
            violations=tuple(self.violations),
            missing=tuple(self.missing()),
            felt={kind.value: count.felt for kind, count in self.faults.counts.items()},
            figures={
                "moves": self.watch.reassignments,
                "commits": self.watch.commits,
                "appends": self.coordinators.log.commits,
                "failovers": self.coordinators.failovers,
            },
            transitions=tuple(self.trace.transitions),
        )


def run_cores(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    return play_cores(GroupsCoresRun(seed), watch)
