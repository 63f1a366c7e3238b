"""One seed of transactions on whole nodes, with the SDK's own producers and consumers."""

import asyncio
import gc
import warnings
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.checkers import History
from tidelog.chaos.checkers.transactions.watch import TransactionsWatch
from tidelog.chaos.sim.base.faults import FaultKind, draw_kinds
from tidelog.chaos.sim.base.loop import START_NS
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.clients.sdk import sdk_within
from tidelog.chaos.sim.cluster.node import DATA, ClusterNode
from tidelog.chaos.sim.cluster.plan import Plan as ClusterPlan
from tidelog.chaos.sim.cluster.plan import PlannedNode
from tidelog.chaos.sim.cluster.troubles import ClusterTroubles
from tidelog.chaos.sim.cluster.watch import ClusterWatch
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.quorum_nodes.cluster import LoopAgenda
from tidelog.chaos.sim.transactions.client import TransactionalClient
from tidelog.chaos.sim.transactions.committed import CommittedTransactions
from tidelog.chaos.sim.transactions.deciding import Decider
from tidelog.chaos.sim.transactions.epochs import first_epochs
from tidelog.chaos.sim.transactions.judging import judge_history
from tidelog.chaos.sim.transactions.lives import Owner, Setting
from tidelog.chaos.sim.transactions.moving import LeaderMover
from tidelog.chaos.sim.transactions.plan import draw_plan
from tidelog.chaos.sim.transactions.reading import Reader, drain
from tidelog.chaos.sim.transactions.sdk_client import SdkClient, place_of
from tidelog.chaos.sim.verdicts.playing import play
from tidelog.chaos.sim.verdicts.result import RunResult, Watch
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.chaos.workloads.transactions import PlannedProcess
from tidelog.client import NewTopic
from tidelog.client.aio import AsyncAdminClient
from tidelog.metadata.internal_topics import TRANSACTIONS_TOPIC
from tidelog.server.storage.formatting import InitialVoter
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey

MS: Final = 1_000_000
NODES: Final = 3
PROCESSES: Final = 4
TRANSACTIONS: Final = 12
KINDS: Final = (
    FaultKind.PROCESS_CRASH,
    FaultKind.MACHINE_CRASH,
    FaultKind.PAUSE,
    FaultKind.WALL_JUMP,
    FaultKind.NETWORK_DELAY,
    FaultKind.BREAK,
    FaultKind.PARTITION,
    FaultKind.PARTITION_ONE_WAY,
    FaultKind.LATE_PROCESSING,
    FaultKind.CANCEL_HANDLER,
    FaultKind.HELD_MESSAGE,
    FaultKind.LOST_WRITE,
    FaultKind.TORN_WRITE,
    FaultKind.NO_SPACE,
    FaultKind.SLOW_DISK,
)
"""Nothing committed may be lost by any of them: every topic is flushed before it is promised."""
HELD: Final = frozenset(
    {
        "InitTransactionalProducer",
        "EndTransaction",
        "PrepareTransaction",
        "DecidePrepared",
        "SendOffsets",
        "AddPartitions",
        "WriteMarkers",
        "Produce",
        "ProduceStream",
    }
)
SETTINGS: Final = {
    "flush": "sync",
    "min.insync.replicas": "2",
    "cleanup.policy": "compact",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
}
"""Each record has a key of its own, so that a compaction may take aborted ones and markers only."""
EVENTS_MIN: Final = 2_000
COMMITS_MIN: Final = 4
ABORTS_MIN: Final = 2
_PERIODS_MIN: Final = 2
_PERIODS_MAX: Final = 8
_PERIOD_NS: Final = (2_000 * MS, 4_000 * MS)
_LOOK_NS: Final = 50 * MS
_START_NS: Final = 30_000 * MS
_BOUND_NS: Final = 120_000 * MS
"""After the heal: silent connections are given up after nine seconds, and calls are tried again."""
_STEPS_MAX: Final = 6_000_000


class NodesRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        seeds = Seeds(seed)
        kinds = tuple(draw_kinds(seeds.purpose("kinds"), KINDS))
        self.plan = msgspec.structs.replace(
            draw_plan(seeds, processes=PROCESSES, transactions=TRANSACTIONS, brokers=NODES),
            kinds=kinds,
        )
        self.world = World(seed, enabled=kinds, steps_max=_STEPS_MAX)
        self.world.fabric.held_methods = HELD
        self.nodes = self._make_nodes(kinds)
        self.cluster = ClusterWatch(self.nodes, History())
        self.troubles = ClusterTroubles(
            self.world, self.nodes, self.cluster, are_copies_trimmed=False
        )
        self.watch = TransactionsWatch()
        self.committed = CommittedTransactions(self.watch, self._name_of)
        self.cluster.on_committed.append(self._see_committed)
        self.decisions = Decider(self.world)
        self.setting = Setting(
            self.world,
            self.decisions,
            self._make_client,
            zombies=self.plan.zombies,
            prepared=self.plan.prepared,
        )
        self.setting.takeovers = self.watch.takeovers_of
        self.violations = self.setting.violations
        self.owners = [Owner(self.setting, each) for each in self.plan.work.processes]
        self._random = self.world.seeds.purpose("play")
        self._agenda = LoopAgenda(self.world.loop)
        self._others: list[Process] = []
        low_ns, high_ns = self.plan.moves_ns
        self.mover = LeaderMover(
            self.world,
            lambda: self.cluster.board.newest,
            self.bootstrap,
            [each.transactional_id for each in self.plan.work.processes],
            (low_ns // MS // 2, high_ns // MS // 2),
        )
        self._is_made = False

    def _make_nodes(self, kinds: tuple[FaultKind, ...]) -> list[ClusterNode]:
        planned = tuple(
            PlannedNode(node_id=number, rack="", is_controller=True)
            for number in range(1, NODES + 1)
        )
        clocks = self.world.seeds.purpose("clocks")
        plan = ClusterPlan(
            nodes=planned,
            topics=(),
            kinds=kinds,
            changes=(),
            faulty_disk=1 + clocks.below(NODES),
            wrong_clock=1 + clocks.below(NODES),
            check_interval_ms=500,
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

    @property
    def bootstrap(self) -> list[str]:
        """Of every client."""
        return [node.address for node in self.nodes]

    def _name_of(self, key: PartitionKey) -> str:
        topic = self.cluster.board.newest.topics.get(key.topic_id)
        return "" if topic is None else topic.name

    def _see_committed(self, node: ClusterNode, log: PartitionLog) -> None:
        self.committed.see(log, node.machine.medium(DATA))

    # -- clients -------------------------------------------------------------------------------

    def _make_client(self, ports: SimulatedPorts, planned: PlannedProcess) -> TransactionalClient:
        del ports
        return self._client(
            planned.transactional_id, timeout_ms=planned.timeout_ms, planned=planned
        )

    def _client(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int = 5_000,
        planned: PlannedProcess | None = None,
    ) -> SdkClient:
        return SdkClient(
            self.world,
            self.bootstrap,
            transactional_id,
            timeout_ms=timeout_ms,
            call_ms=2 * self.plan.call_ms,
            user_ms=2 * self.plan.user_ms,
            group="" if planned is None else planned.group,
            source="" if planned is None else planned.reads[0],
        )

    def _start_clients(self) -> None:
        reader = Reader(self.world, self.setting.builder, "reader-0", list(self.plan.work.leaders))

        async def read(ports: SimulatedPorts) -> None:
            del ports
            await reader.run(self._client(None))

        async def decide(ports: SimulatedPorts) -> None:
            del ports
            await self.decisions.run(self._client(None))

        for name, live in (("reader-0", read), ("decider", decide), ("mover", self.mover.run)):
            self._others.append(self.world.machine(name).start(name, live))

    async def _make_topics(self, ports: SimulatedPorts) -> None:
        admin = AsyncAdminClient(bootstrap_servers=self.bootstrap)
        settings = {**SETTINGS, "segment.bytes": str(min(4_096, self.plan.work.segment_bytes))}
        counts: dict[str, int] = {}
        for name in self.plan.work.leaders:
            at = place_of(name)
            counts[at.topic] = max(counts.get(at.topic, 0), at.partition + 1)
        for name, count in counts.items():
            while True:
                try:
                    if name not in await admin.list_topics():
                        await admin.create_topics([NewTopic(name, count, NODES, settings)])
                except TidelogError:
                    await ports.clock.sleep(200)
                else:
                    break
        self._is_made = True
        await admin.close()

    # -- the play ------------------------------------------------------------------------------

    async def play(self) -> None:
        """Everything."""
        await asyncio.sleep(0)
        faults = self.world.faults
        faults.heal()
        self.troubles.start()
        self.world.machine("administrator").start("administrator", self._make_topics)
        await self._go_until(_START_NS, lambda: "" if self._is_made else "no topics are made")
        self._start_clients()
        self.troubles.others = [process.name for process in self._others]
        for number in range(_PERIODS_MAX):
            is_added = number >= _PERIODS_MIN
            if self._is_over() or (is_added and self._are_done() and not faults.unfelt()):
                break
            faults.begin_period(wants_unfelt=is_added and self._random.chance(0.7))
            await self._go(self._random.between(*_PERIOD_NS))
        await self._end()

    async def _end(self) -> None:
        """Everything heals: what is open ends, and all of it is read."""
        self.troubles.heal()
        self.setting.is_calm = self.decisions.is_calm = self.mover.is_over = True
        await self._go_until(_BOUND_NS, self._what_lacks)
        for process in self._others:
            process.kill()
        if self._is_over():
            return
        done: list[bool] = []

        async def judge(ports: SimulatedPorts) -> None:
            del ports
            client = self._client(None)
            partitions = list(self.plan.work.leaders)
            await drain(self.world, self.setting.builder, client, partitions)
            done.append(True)

        self.world.machine("judge").start("judge", judge)
        await self._go_until(_BOUND_NS, lambda: "" if done else "not everything could be read")

    def _are_done(self) -> bool:
        return all(owner.is_done for owner in self.owners)

    def _is_over(self) -> bool:
        return bool(self._found())

    def _found(self) -> Sequence[str]:
        return (
            *self.violations,
            *self.watch.violations,
            *self.decisions.violations,
            *self.cluster.board.violations,
            *self.troubles.violations,
        )

    async def _go(self, duration_ns: int) -> None:
        loop = self.world.loop
        until_ns = loop.now_ns + duration_ns
        while loop.now_ns < until_ns and not self._is_over():
            await sleep_ns(loop, min(_LOOK_NS, until_ns - loop.now_ns))
            self.cluster.look()
            for node in self.nodes:
                for replica in node.replicas():
                    self.committed.see_stable(node.name, node.lives, replica.log)
            if self._is_made:
                for owner in self.owners:
                    owner.keep()

    async def _go_until(self, duration_ns: int, what_lacks: Callable[[], str]) -> None:
        loop = self.world.loop
        until_ns = loop.now_ns + duration_ns
        while (lack := what_lacks()) and not self._is_over():
            if loop.now_ns >= until_ns:
                self.violations.append(f"not_alive: {lack}")
                return
            await self._go(4 * _LOOK_NS)

    def _what_lacks(self) -> str:
        """Of a healed cluster: every life has ended, and readers come to every end."""
        for owner in self.owners:
            for life in owner.lives:
                if not life.is_over:
                    return f"{life.name} does not come to its end"
        for node in self.nodes:
            if not node.is_alive or node.living is None or not node.living.is_ready:
                return f"{node.name} is not up"
        if self.decisions.waiting:
            return "something prepared is not decided"
        for key, board in self.cluster.board.partitions.items():
            name = f"{self._name_of(key)}-{key.partition}"
            leaders = [each for each in self.nodes if each.node_id == board.image.leader_id]
            replica = leaders[0].replica(key) if leaders else None
            if replica is None:
                return f"nobody leads {name}"
            log = replica.log
            if log.last_stable_offset < log.log_end_offset:
                return (
                    f"readers of {name} are held back at {log.last_stable_offset} of "
                    f"{log.log_end_offset}, by {self.watch.open_in(key)}"
                )
        return ""

    # -- the verdict ---------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Why the seed does not count."""
        missing = [f"{kind.value} unfelt" for kind in self.world.faults.unfelt()]
        if self.world.trace.events < EVENTS_MIN:
            missing.append("events")
        if self.setting.outcomes.get("committed", 0) < COMMITS_MIN:
            missing.append("commits")
        if self.setting.outcomes.get("aborted", 0) < ABORTS_MIN:
            missing.append("aborts")
        return missing

    def _moves(self) -> int:
        return sum(
            max(0, board.image.leader_epoch)
            for key, board in self.cluster.board.partitions.items()
            if self._name_of(key) == TRANSACTIONS_TOPIC
        )

    def judge(self) -> RunResult:
        """Of the seed."""
        world = self.world
        lives = [life for owner in self.owners for life in owner.lives]
        for life in lives:
            life.write_rest()
        history = self.setting.builder.build(at_ns=world.loop.now_ns)
        violations = [*self._found(), *judge_history(self.plan.work, history)]
        processes = [*self._others, *(life.process for life in lives)]
        violations += [
            f"bug: {process.name} ended with {process.exit_error!r}"
            for process in processes
            if process is not None and process.exit_error is not None
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
                "committed": self.setting.outcomes.get("committed", 0),
                "aborted": self.setting.outcomes.get("aborted", 0),
                "unknown": self.setting.outcomes.get("unknown", 0),
                "folded": self.setting.folded,
                "lives": len(lives),
                "prepared": self.decisions.decided,
                "markers": self.watch.markers,
                "moves": self._moves(),
                "moved": self.mover.moves,
            },
            transitions=tuple(world.trace.transitions),
        )


def run_nodes(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    run = NodesRun(seed)
    epochs = {each.transactional_id: each.first_epoch for each in run.plan.work.processes}
    with sdk_within(run.world), first_epochs(epochs):
        result = play(run, watch)
    del run
    with warnings.catch_warnings():
        # Clients of processes that were killed were never closed: that is what was played.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    return result
