"""The suite of the cluster: whole nodes, quorum and brokers, with clients over network and disks.

docs/simulation.md tells what it plays, checks and counts. A safety phase of several periods, each
with kinds of faults of its own; then everything heals, in-sync sets have to be full again, every
partition has to take a batch, and all of it is read from its start to its end.
"""

import asyncio
from typing import Final

from tidelog.chaos.checkers import Acks, Anomaly, Excuse, History, check_clients
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.base.loop import START_NS
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.cluster.clients import (
    start_engine,
    start_engine_reader,
    start_producer,
    start_reader,
    start_stranger,
)
from tidelog.chaos.sim.cluster.end import ClusterEnd
from tidelog.chaos.sim.cluster.node import ClusterNode
from tidelog.chaos.sim.cluster.operator import Operator
from tidelog.chaos.sim.cluster.plan import draw_plan
from tidelog.chaos.sim.cluster.taps import AnswersWatch
from tidelog.chaos.sim.cluster.troubles import ClusterTroubles
from tidelog.chaos.sim.cluster.watch import ClusterWatch
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.verdicts.playing import play
from tidelog.chaos.sim.verdicts.result import RunResult, Suite, Watch
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.sequenced_producer import SequencedProducer
from tidelog.server.storage.formatting import InitialVoter
from tidelog.wire.ids import PartitionId

REPLICATION_MAX: Final = 3
EVENTS_MIN: Final = 2_000
LEADER_CHANGES_MIN: Final = 2
ACKNOWLEDGEMENTS_MIN: Final = 50
_MS: Final = 1_000_000
_PERIODS_MIN: Final = 2
_PERIODS_MAX: Final = 14
_PERIOD_NS: Final = (1_200 * _MS, 3_000 * _MS)
_LOOK_NS: Final = 40 * _MS
_START_LOOKS_MAX: Final = 500
_WHOLE_EVENTS: Final = 1_000
_STEPS_MAX: Final = 2_500_000
_PROBABILITIES: Final = {FaultKind.WORKER_CRASH: 0.08}
"""A run is short, and its segments are few: so are the jobs of a node."""
RECOVERY_BOUND_NS: Final = 60_000 * _MS


class ClusterRun:
    """One seed of the suite."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.plan = draw_plan(Seeds(seed), replication_max=REPLICATION_MAX)
        self.world = World(
            seed, enabled=self.plan.kinds, probabilities=_PROBABILITIES, steps_max=_STEPS_MAX
        )
        self.history = History()
        self.violations: list[str] = []
        self._random = self.world.seeds.purpose("play")
        uuids = self.world.seeds.purpose("uuids")
        voters = tuple(
            InitialVoter(
                node_id=each.node_id,
                address=f"n{each.node_id}:9193",
                directory_uuid=uuids.uuid(),
            )
            for each in self.plan.nodes
            if each.is_controller
        )
        self.nodes = [
            ClusterNode(self.world, self.plan, planned, voters) for planned in self.plan.nodes
        ]
        self.watch = ClusterWatch(self.nodes, self.history)
        self.answers = AnswersWatch(self.nodes, self.watch.board)
        self.watch.crashed_ns = self.answers.crashed_ns
        self.watch.wiped_ns = self.answers.wiped_ns
        self.world.fabric.taps.append(self.answers)
        self.troubles = ClusterTroubles(self.world, self.nodes, self.watch, are_copies_trimmed=True)
        self._clients: list[Process] = []
        self.operator: Operator | None = None
        self.producers: list[SequencedProducer] = []
        self._checked_at = 0

    # -- the cast ------------------------------------------------------------------------------

    def client(self, ports: SimulatedPorts, name: str) -> ClusterClient:
        """A client that knows all brokers."""
        return ClusterClient(
            ports, self.history, name=name, bootstrap=[node.address for node in self.nodes]
        )

    def _start_clients(self) -> None:
        operator = self.world.machine("operator").start("operator", self._operate)
        self._clients.append(operator)
        for number in range(self.plan.producers):
            acks = (Acks.ALL, Acks.ALL, Acks.LEADER)[number % 3]
            start = start_engine if number % 2 else start_producer
            self._clients.append(start(self, f"producer-{number}", acks))
        for number in range(self.plan.readers):
            self._clients.append(start_reader(self, f"reader-{number}"))
        self._clients.append(start_engine_reader(self, "consumer"))
        self._clients.append(start_stranger(self, "stranger"))
        self.troubles.others = [process.name for process in self._clients[1:]]

    async def _operate(self, ports: SimulatedPorts) -> None:
        operator = self.operator = Operator(
            self.client(ports, "operator"),
            self.plan,
            self.nodes,
            self.world.seeds.purpose("operator"),
            replication_max=REPLICATION_MAX,
            newest=lambda: self.watch.board.newest,
            kill=lambda node: self.troubles.kill(node, is_machine=False),
            on_trim=self.watch.board.see_trim,
        )
        await operator.run()

    def topics(self) -> tuple[str, ...]:
        """Names of those that there are."""
        return () if self.operator is None else tuple(self.operator.topics)

    def leads(self, address: str, topic: Incarnation, partition: int) -> int | None:
        """The leader epoch in which the broker at the address leads, by the newest metadata."""
        known = self.watch.board.newest.partition(topic.topic_id, PartitionId(partition))
        (node,) = (each for each in self.nodes if each.address == address)
        is_led = known is not None and known.leader_id == node.node_id
        return known.leader_epoch if known is not None and is_led else None

    def stop_clients(self) -> None:
        """Nobody sends or reads any more."""
        for client in self._clients:
            client.kill()

    # -- the play ------------------------------------------------------------------------------

    async def play(self) -> None:
        """Everything, from the first start to the last read."""
        await asyncio.sleep(0)
        self.world.faults.heal()
        self.troubles.start()
        self._start_clients()
        await self._wait_topics()
        for number in range(_PERIODS_MAX):
            is_added = number >= _PERIODS_MIN
            if self.is_over() or (is_added and not self.missing()):
                break
            self.world.faults.begin_period(wants_unfelt=is_added and self._random.chance(0.7))
            await self.go(self._random.between(*_PERIOD_NS))
        self.troubles.heal()
        self.history.heals_ns.append(self.world.loop.now_ns)
        if self.operator is not None:
            self.operator.is_stopped = True
        if not self.is_over():
            await ClusterEnd(self).play()
        self.stop_clients()
        self.watch.settle()
        self.history.settle(self.world.loop.now_ns)

    async def _wait_topics(self) -> None:
        """Without troubles until the first topics are there."""
        for _ in range(_START_LOOKS_MAX):
            if len(self.topics()) == len(self.plan.topics):
                return
            await self.go(_LOOK_NS)
        self.violations.append("not_alive: the first topics were not made in time")

    def is_over(self) -> bool:
        """Whether going on is pointless."""
        return bool(self.watch.board.violations or self.troubles.violations or self.violations)

    async def go(self, duration_ns: int) -> None:
        """Let time pass, and look."""
        loop = self.world.loop
        until_ns = loop.now_ns + duration_ns
        while loop.now_ns < until_ns and not self.is_over():
            await sleep_ns(loop, min(_LOOK_NS, until_ns - loop.now_ns))
            self.watch.look()
            if self.world.trace.events - self._checked_at >= _WHOLE_EVENTS:
                self._checked_at = self.world.trace.events
                self.watch.check_whole()

    # -- the verdict ---------------------------------------------------------------------------

    def judge(self) -> RunResult:
        """Check everything that was written down."""
        world = self.world
        violations = [*self.watch.board.violations, *self.violations, *self.troubles.violations]
        anomalies: list[Anomaly] = check_clients(self.history, recovery_bound_ns=RECOVERY_BOUND_NS)
        # Where a partition was trimmed it may have forgotten a producer: docs/log.md.
        violations += [
            text
            for producer in self.producers
            for partition, text in producer.gaps
            if partition not in self.history.excuses and partition not in self.history.trims
        ]
        violations += [str(anomaly) for anomaly in anomalies]
        violations += [f"corrupt_batch: {text}" for text in self.history.damage]
        violations += [f"bug: {text}" for text in world.findings()]
        violations += [f"unretrieved: {text}" for text in world.loop.unretrieved]
        violations += [
            f"bug: {client.name} ended with {client.exit_error!r}"
            for client in self._clients
            if client.exit_error is not None
        ]
        return RunResult(
            seed=self.seed,
            trace_hash=world.trace.hash_text(),
            events=world.trace.events,
            steps=world.loop.steps,
            virtual_ms=(world.loop.now_ns - START_NS) // _MS,
            violations=tuple(violations),
            missing=tuple(self.missing()),
            felt={kind.value: count.felt for kind, count in world.faults.counts.items()},
            figures=self._figures(),
            transitions=tuple(world.trace.transitions),
        )

    def _figures(self) -> dict[str, int]:
        return {
            "acknowledged": self.acknowledged(),
            "leader_changes": self.watch.board.leader_changes,
            "restarts": self.troubles.restarts,
            "restores": self.troubles.restores,
            "polls": len(self.history.polls),
            "inquiries": len(self.history.inquiries),
            "deleted": self._excused(Excuse.DELETED),
            "trimmed": len(self.history.trims),
            "own_trims": self.troubles.own_trims.count,
            "excused": self._excused(Excuse.LOST),
        }

    def _excused(self, excuse: Excuse) -> int:
        return sum(each is excuse for each in self.history.excuses.values())

    def acknowledged(self) -> int:
        """Batches that were promised to survive."""
        return sum(send.is_committed for send in self.history.sends)

    def missing(self) -> list[str]:
        """Why the seed does not count."""
        missing = [f"{kind.value} unfelt" for kind in self.world.faults.unfelt()]
        if self.operator is not None:
            missing += [f"{change.value} undone" for change in self.operator.changes.undone]
        if self.world.trace.events < EVENTS_MIN:
            missing.append("events")
        if self.watch.board.leader_changes < LEADER_CHANGES_MIN:
            missing.append("leader changes")
        if self.acknowledged() < ACKNOWLEDGEMENTS_MIN:
            missing.append("acknowledged")
        return missing


def run_cluster(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    return play(ClusterRun(seed), watch)


CLUSTER: Final = Suite(name="cluster", run=run_cluster)
