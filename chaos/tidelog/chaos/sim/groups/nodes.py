"""One seed of groups on whole nodes: troubles, a heal, a proof of life, and a load at the end."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.broker.coordination.log import CoordinatorLog
from tidelog.broker.groups.coordinator.coordinator import marker_taker
from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.messages import GroupTopic, LoadEnded
from tidelog.broker.groups.state.topics import TopicView
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.checkers import History
from tidelog.chaos.checkers.groups import GroupsWatch
from tidelog.chaos.sim.base.faults import FaultKind, draw_kinds
from tidelog.chaos.sim.base.loop import START_NS
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.cluster.node import DATA, ClusterNode
from tidelog.chaos.sim.cluster.plan import Plan as ClusterPlan
from tidelog.chaos.sim.cluster.plan import PlannedNode
from tidelog.chaos.sim.cluster.troubles import ClusterTroubles
from tidelog.chaos.sim.cluster.watch import ClusterWatch
from tidelog.chaos.sim.groups.crowd import Crowd
from tidelog.chaos.sim.groups.node_calls import NodeCalls
from tidelog.chaos.sim.groups.node_log import CommittedGroups
from tidelog.chaos.sim.groups.node_topics import NodeTopics
from tidelog.chaos.sim.groups.plan import draw_plan
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.chaos.sim.quorum_nodes.cluster import LoopAgenda
from tidelog.chaos.sim.verdicts.playing import play
from tidelog.chaos.sim.verdicts.result import RunResult, Watch
from tidelog.chaos.sim.world.world import World
from tidelog.metadata.internal_topics import GROUPS_TOPIC
from tidelog.server.storage.formatting import InitialVoter
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey

NODES: Final = 3
KINDS: Final = (
    FaultKind.PROCESS_CRASH,
    FaultKind.MACHINE_CRASH,
    FaultKind.PAUSE,
    FaultKind.WALL_JUMP,
    FaultKind.WRONG_START_CLOCK,
    FaultKind.NETWORK_DELAY,
    FaultKind.BREAK,
    FaultKind.PARTITION,
    FaultKind.LATE_PROCESSING,
    FaultKind.CANCEL_HANDLER,
    FaultKind.LOST_WRITE,
)
"""Disks are sound but for crashes: with `__groups` on three of them nothing committed is lost."""
EVENTS_MIN: Final = 2_000
MOVES_MIN: Final = 5
COMMITS_MIN: Final = 50
_PERIODS_MIN: Final = 2
_PERIODS_MAX: Final = 10
_PERIOD_NS: Final = (2_000 * MS, 4_000 * MS)
_LOOK_NS: Final = 50 * MS
_CRASH_NS: Final = (300 * MS, 1_500 * MS)
_START_NS: Final = 20_000 * MS
_LIVENESS_NS: Final = 60_000 * MS
_STEPS_MAX: Final = 3_000_000
_LOOKS_PER_LOAD: Final = 100


class GroupsNodesRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        kinds = tuple(draw_kinds(Seeds(seed).purpose("kinds"), KINDS))
        drawn = draw_plan(Seeds(seed))
        self.plan = msgspec.structs.replace(
            drawn,
            kinds=kinds,
            session_timeout_ms=2 * drawn.session_timeout_ms,
            members_max=min(4, drawn.members_max),
        )
        self.world = World(seed, enabled=kinds, steps_max=_STEPS_MAX)
        self.violations: list[str] = []
        self._random = self.world.seeds.purpose("play")
        self.nodes = self._make_nodes(kinds)
        self.cluster = ClusterWatch(self.nodes, History())
        # A copy of the coordinators' log that lost its head would lose commits: that such copies
        # do not count is the cluster suite's.
        self.troubles = ClusterTroubles(
            self.world, self.nodes, self.cluster, are_copies_trimmed=False
        )
        self.watch = GroupsWatch(self.world.trace)
        self.committed = CommittedGroups(self.watch, lambda: self.world.loop.now_ns)
        self.cluster.on_committed.append(self._see_committed)
        self._agenda = LoopAgenda(self.world.loop)
        self.topics: NodeTopics | None = None
        self.crowd: Crowd | None = None

    def _make_nodes(self, kinds: tuple[FaultKind, ...]) -> list[ClusterNode]:
        planned = tuple(
            PlannedNode(node_id=number, rack="", is_controller=True)
            for number in range(1, NODES + 1)
        )
        plan = ClusterPlan(
            nodes=planned,
            topics=(),
            kinds=kinds,
            changes=(),
            faulty_disk=1,
            wrong_clock=1 + self.world.seeds.purpose("clocks").below(NODES),
            check_interval_ms=1_500,
            producers=0,
            readers=0,
            election_timeout_ms=1_000,
            session_timeout_ms=2_000,
            flush_interval_ms=200,
            lag_ms=1_500,
        )
        uuids = self.world.seeds.purpose("uuids")
        voters = tuple(
            InitialVoter(
                node_id=each.node_id,
                address=f"n{each.node_id}:9193",
                directory_uuid=uuids.uuid(),
            )
            for each in planned
        )
        return [ClusterNode(self.world, plan, each, voters) for each in planned]

    def _see_committed(self, node: ClusterNode, log: PartitionLog) -> None:
        topic = self.cluster.board.newest.topics.get(log.key.topic_id)
        if topic is not None and topic.name == GROUPS_TOPIC:
            self.committed.see(log, node.machine.medium(DATA))

    # -- the play ------------------------------------------------------------------------------

    async def play(self) -> None:
        """Everything."""
        await asyncio.sleep(0)
        faults = self.world.faults
        faults.heal()
        self.troubles.start()
        bootstrap = tuple(node.address for node in self.nodes)
        calls = NodeCalls(self.world, bootstrap)
        self.troubles.others = calls.names
        topics = self.topics = NodeTopics(self.world, self.plan, bootstrap)
        await self._go_until(_START_NS, lambda: "" if topics.is_started else "no topics are made")
        crowd = self.crowd = Crowd(
            self._agenda,
            self.world.seeds.purpose("crowd"),
            faults,
            self.plan,
            topics,
            calls,
            self.watch,
        )
        crowd.start()
        self._crash_members()
        for number in range(_PERIODS_MAX):
            is_added = number >= _PERIODS_MIN
            if self._is_over() or (is_added and not self.missing()):
                break
            faults.begin_period(wants_unfelt=is_added and self._random.chance(0.7))
            await self._go(self._random.between(*_PERIOD_NS))
        self.troubles.heal()
        crowd.calm_down()
        await self._go_until(_LIVENESS_NS, self._what_lacks)
        if not self._is_over():
            crowd.end_all()
            await self._check_load()

    def _crash_members(self) -> None:
        """Now and then one of them dies as well."""
        assert self.crowd is not None, "there are members"
        if self.troubles.is_over:
            return
        self._agenda.after(self._random.between(*_CRASH_NS), self._crash_members)
        if self.world.faults.is_active(FaultKind.PROCESS_CRASH):
            self.crowd.crash_one()

    def _is_over(self) -> bool:
        return bool(
            self.violations
            or self.watch.violations
            or self.cluster.board.violations
            or self.troubles.violations
        )

    async def _go(self, duration_ns: int) -> None:
        loop = self.world.loop
        until_ns = loop.now_ns + duration_ns
        while loop.now_ns < until_ns and not self._is_over():
            await sleep_ns(loop, min(_LOOK_NS, until_ns - loop.now_ns))
            self.cluster.look()

    async def _go_until(self, duration_ns: int, what_lacks: Callable[[], str]) -> None:
        loop = self.world.loop
        until_ns = loop.now_ns + duration_ns
        while what_lacks() and not self._is_over():
            if loop.now_ns >= until_ns:
                self.violations.append(f"not_alive: {what_lacks()}")
                return
            await self._go(4 * _LOOK_NS)

    def _what_lacks(self) -> str:
        """Of a healed cluster: every partition of every subscription is read by somebody."""
        assert self.crowd is not None, "there are members"
        view = TopicView(
            GroupTopic(each.topic_id, each.name, len(each.partitions))
            for each in self.cluster.board.newest.topics.values()
            if not each.is_internal
        )
        read = {
            (life.member.group, key): None
            for life in self.crowd.members
            for key, position in life.positions.items()
            if position >= 0
        }
        for life in self.crowd.members:
            if life.member.must_give_up:
                return f"{life.name} has something to give up"
            for topic in view.resolve(life.member.subscription):
                for number in range(topic.partition_count):
                    key = PartitionKey(topic.topic_id, PartitionId(number))
                    if (life.member.group, key) not in read:
                        return f"{topic.name}-{number} of {life.member.group} is not read"
        return ""

    # -- the log -------------------------------------------------------------------------------

    async def _check_load(self) -> None:
        """What a coordinator would load now is what was committed, however much of that was
        compacted meanwhile."""
        until_ns = self.world.loop.now_ns + _LIVENESS_NS
        while self.world.loop.now_ns < until_ns:
            batches, core = self.committed.batches, GroupCoordinatorCore()
            loaded = [await self._load(core, key) for key in self.committed.partitions()]
            # Members that do not beat any more are taken out meanwhile.
            if all(loaded) and self.committed.batches == batches:
                core.step(LoadEnded(now_ms=0, wall_ms=0))
                self.watch.on_loaded(core)
                return
            await sleep_ns(self.world.loop, _LOOK_NS)
            self.cluster.look()
        self.violations.append(f"not_alive: {GROUPS_TOPIC} cannot be read")

    async def _load(self, core: GroupCoordinatorCore, key: PartitionKey) -> bool:
        """One partition, as its leader has it; False: not at the moment."""
        board = self.cluster.board.partitions[key]
        leaders = [each for each in self.nodes if each.node_id == board.image.leader_id]
        replicas = leaders[0].view.replicas if leaders else None
        if replicas is None or leaders[0].process is None:
            return False
        log = CoordinatorLog(replicas, key, board.image.leader_epoch)
        ended: list[bool] = []

        async def load() -> None:
            try:
                await log.load(core.apply, marker_taker(core))
                ended.append(True)
            except TidelogError:
                ended.append(False)

        leaders[0].process.start_task(load(), "read the log")
        for _ in range(_LOOKS_PER_LOAD):
            await sleep_ns(self.world.loop, _LOOK_NS)
            self.cluster.look()
            if ended:
                return ended[0]
        return False

    # -- the verdict ---------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Why the seed does not count."""
        missing = [f"{kind.value} unfelt" for kind in self.world.faults.unfelt()]
        if self.world.trace.events < EVENTS_MIN:
            missing.append("events")
        if self.watch.reassignments < MOVES_MIN:
            missing.append("reassignments")
        if self.watch.commits < COMMITS_MIN:
            missing.append("commits")
        return missing

    def judge(self) -> RunResult:
        """What was written down."""
        world = self.world
        violations = [
            *self.violations,
            *self.watch.violations,
            *self.cluster.board.violations,
            *self.troubles.violations,
        ]
        violations += [f"bug: {text}" for text in world.findings()]
        return RunResult(
            seed=self.seed,
            trace_hash=world.trace.hash_text(),
            events=world.trace.events,
            steps=world.loop.steps,
            virtual_ms=(world.loop.now_ns - START_NS) // MS,
            violations=tuple(violations),
            missing=tuple(self.missing()),
            felt={kind.value: count.felt for kind, count in world.faults.counts.items()},
            figures={
                "moves": self.watch.reassignments,
                "commits": self.watch.commits,
                "appends": self.committed.batches,
                "failovers": self.cluster.board.leader_changes,
            },
            transitions=tuple(world.trace.transitions),
        )


def run_nodes(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    return play(GroupsNodesRun(seed), watch)
