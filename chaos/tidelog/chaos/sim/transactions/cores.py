"""One seed of transactions on cores: clients' and brokers' cores over a small simulated network."""

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.chaos.checkers.transactions.watch import TransactionsWatch
from tidelog.chaos.sim.base.loop import START_NS
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.transactions.broker import COORDINATORS, GROUPS, ModelBroker
from tidelog.chaos.sim.transactions.client import TransactionalClient
from tidelog.chaos.sim.transactions.core_client import CoreClient
from tidelog.chaos.sim.transactions.deciding import Decider
from tidelog.chaos.sim.transactions.epochs import first_epochs
from tidelog.chaos.sim.transactions.judging import judge_history
from tidelog.chaos.sim.transactions.leader import Leader
from tidelog.chaos.sim.transactions.lives import Owner, Setting
from tidelog.chaos.sim.transactions.partition import rebuilt
from tidelog.chaos.sim.transactions.plan import draw_plan
from tidelog.chaos.sim.transactions.reading import Reader, drain
from tidelog.chaos.sim.transactions.troubles import CoreTroubles
from tidelog.chaos.sim.transactions.truth import Entry, ReplicatedLog, Truth
from tidelog.chaos.sim.transactions.wire import HELD
from tidelog.chaos.sim.verdicts.playing import play
from tidelog.chaos.sim.verdicts.result import RunResult, Watch
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.chaos.workloads.transactions import PlannedProcess
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

_MS: Final = 1_000_000
BROKERS: Final = 3
PROCESSES: Final = 4
TRANSACTIONS: Final = 14
READERS: Final = 2
EVENTS_MIN: Final = 2_000
COMMITS_MIN: Final = 10
ABORTS_MIN: Final = 4
MOVES_MIN: Final = 2
_PERIODS_MIN: Final = 2
_PERIODS_MAX: Final = 12
_PERIOD_NS: Final = (800 * _MS, 2_500 * _MS)
_LOOK_NS: Final = 25 * _MS
_BOUND_NS: Final = 40_000 * _MS
"""After the heal: the longest timeout, and whatever was held."""
_STEPS_MAX: Final = 3_000_000
_TOPICS: Final = (
    (COORDINATORS, TopicId(b"\x01" * 16)),
    (GROUPS, TopicId(b"\x02" * 16)),
    ("", TopicId(b"\x03" * 16)),
)


class CoresRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.plan = draw_plan(
            Seeds(seed), processes=PROCESSES, transactions=TRANSACTIONS, brokers=BROKERS
        )
        self.world = World(seed, enabled=self.plan.kinds, steps_max=_STEPS_MAX)
        self.world.fabric.held_methods = HELD
        self.watch = TransactionsWatch()
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
        self.truth = Truth(self.world.seeds.purpose("truth"))
        self.brokers = [
            ModelBroker(
                self.world, self.truth, f"b{number}", replication_ns=self.plan.replication_ns
            )
            for number in range(1, BROKERS + 1)
        ]
        self._make_logs()
        self.truth.on_committed.append(self._see)
        self.truth.on_moved.append(self._tell)
        self.troubles = CoreTroubles(self.world, self.truth, self.brokers, self.plan)
        self.owners = [Owner(self.setting, each) for each in self.plan.work.processes]
        self._random = self.world.seeds.purpose("play")
        self._readers: list[Process] = []

    def _make_logs(self) -> None:
        (coordinators, groups, data) = (topic for _, topic in _TOPICS)
        for number in range(self.plan.coordinators):
            key = PartitionKey(coordinators, PartitionId(number))
            name = f"{COORDINATORS}-{number}"
            self.truth.add(ReplicatedLog(name, key, self.brokers[number % BROKERS].name))
        key = PartitionKey(groups, PartitionId(0))
        self.truth.add(ReplicatedLog(GROUPS, key, self.brokers[-1].name))
        for number, (name, leader) in enumerate(self.plan.work.leaders.items()):
            key = PartitionKey(data, PartitionId(number))
            self.truth.add(ReplicatedLog(name, key, self.brokers[leader].name))

    def _see(self, log: ReplicatedLog, entry: Entry) -> None:
        for record in entry.records:
            self.watch.on_record(record.key, record.value)
        if entry.is_marker:
            self.watch.on_marker(
                log.key,
                entry.producer_id,
                entry.producer_epoch,
                is_commit=entry.is_commit,
                coordinator_epoch=entry.coordinator_epoch,
                offset=entry.offset,
            )
        elif entry.producer_id >= 0:
            self.watch.on_data(log.key, entry.producer_id, entry.producer_epoch, entry.offset)

    def _tell(self, log: ReplicatedLog) -> None:
        for broker in self.brokers:
            broker.hear(log)

    # -- clients -------------------------------------------------------------------------------

    def _make_client(self, ports: SimulatedPorts, planned: PlannedProcess) -> TransactionalClient:
        """For a life."""
        return self._client(ports, planned.transactional_id, planned.timeout_ms)

    def _client(self, ports: SimulatedPorts, name: str, timeout_ms: int = 5_000) -> CoreClient:
        return CoreClient(
            self.world,
            ports,
            name,
            timeout_ms=timeout_ms,
            call_ms=self.plan.call_ms,
            user_ms=self.plan.user_ms,
            brokers=tuple(each.address for each in self.brokers),
            coordinators=self.plan.coordinators,
        )

    def _start_clients(self) -> None:
        partitions = list(self.plan.work.leaders)
        for number in range(READERS):
            name = f"reader-{number}"
            reader = Reader(self.world, self.setting.builder, name, partitions)

            async def read(ports: SimulatedPorts, reader: Reader = reader) -> None:
                await reader.run(self._client(ports, reader.name))

            self._readers.append(self.world.machine(name).start(name, read))

        async def decide(ports: SimulatedPorts) -> None:
            await self.decisions.run(self._client(ports, "decider"))

        self.world.machine("decider").start("decider", decide)

    # -- the play ------------------------------------------------------------------------------

    async def play(self) -> None:
        """Everything."""
        await asyncio.sleep(0)
        faults = self.world.faults
        faults.heal()
        for broker in self.brokers:
            broker.start()
        self._start_clients()
        self.troubles.start()
        self.troubles.clients = lambda: [
            life.process
            for owner in self.owners
            for life in owner.lives
            if life.process is not None and not life.is_over
        ]
        self.troubles.owners = self.owners
        for number in range(_PERIODS_MAX):
            is_added = number >= _PERIODS_MIN
            if self._is_over() or (is_added and self._are_done() and not self._unfelt()):
                break
            faults.begin_period(wants_unfelt=is_added and self._random.chance(0.7))
            await self._go(self._random.between(*_PERIOD_NS))
        await self._end()

    async def _end(self) -> None:
        """Everything heals: what is open ends, and all of it is read."""
        self.troubles.heal()
        self.setting.is_calm = self.decisions.is_calm = True
        await self._go_until(_BOUND_NS, self._what_lacks)
        for process in self._readers:
            process.kill()
        if self._is_over():
            return
        done: list[bool] = []

        async def judge(ports: SimulatedPorts) -> None:
            client = self._client(ports, "judge")
            await drain(self.world, self.setting.builder, client, list(self.plan.work.leaders))
            done.append(True)

        self.world.machine("judge").start("judge", judge)
        await self._go_until(_BOUND_NS, lambda: "" if done else "not everything could be read")
        self._check_rebuilt()

    def _are_done(self) -> bool:
        return all(owner.is_done for owner in self.owners)

    def _is_over(self) -> bool:
        return bool(self.violations or self.watch.violations or self.decisions.violations)

    def _unfelt(self) -> bool:
        return bool(self.world.faults.unfelt())

    async def _go(self, duration_ns: int) -> None:
        loop = self.world.loop
        until_ns = loop.now_ns + duration_ns
        while loop.now_ns < until_ns and not self._is_over():
            await sleep_ns(loop, min(_LOOK_NS, until_ns - loop.now_ns))
            for owner in self.owners:
                owner.keep()
            if self._random.chance(0.02):
                self._check_rebuilt()

    async def _go_until(self, duration_ns: int, what_lacks: Callable[[], str]) -> None:
        until_ns = self.world.loop.now_ns + duration_ns
        while (lack := what_lacks()) and not self._is_over():
            if self.world.loop.now_ns >= until_ns:
                self.violations.append(f"not_alive: {lack}")
                return
            await self._go(4 * _LOOK_NS)

    def _what_lacks(self) -> str:
        for owner in self.owners:
            for life in owner.lives:
                if not life.is_over:
                    return f"{life.name} does not come to its end"
        for log in self.truth.logs.values():
            leaders = [each for each in self._leaders() if each.log is log]
            if not leaders:
                return f"nobody leads {log.name}"
            for leader in leaders:
                end = len(leader.entries)
                if leader.high_watermark < end:
                    return f"{log.name} is committed to {leader.high_watermark} of {end}"
                if leader.stable < end:
                    return (
                        f"readers of {log.name} are held back at {leader.stable} of {end}, "
                        f"by {self.watch.open_in(log.key)}"
                    )
        if self.decisions.waiting:
            return "something prepared is not decided"
        return ""

    def _leaders(self) -> list[Leader]:
        return [
            leader
            for broker in self.brokers
            if broker.is_alive
            for leader in broker.leaders.values()
            if leader.epoch == leader.log.epoch
        ]

    def _check_rebuilt(self) -> None:
        """Of each leader: what it knows is what the log says."""
        for leader in self._leaders():
            if leader.state.told() != rebuilt(leader.entries).told():
                self.violations.append(f"rebuilt_differs: {leader.log.name}")

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
        if self._moves() < MOVES_MIN:
            missing.append("moves of coordinators")
        return missing

    def _moves(self) -> int:
        logs = self.truth.logs.values()
        return sum(log.moves for log in logs if log.name.startswith(COORDINATORS))

    def judge(self) -> RunResult:
        """Of the seed."""
        world = self.world
        for owner in self.owners:
            for life in owner.lives:
                life.write_rest()
        history = self.setting.builder.build(at_ns=world.loop.now_ns)
        violations = [*self.violations, *self.watch.violations]
        for broker in self.brokers:
            violations += broker.violations
            for leader in broker.leaders.values():
                violations += leader.violations
        violations += self.decisions.violations
        violations += [
            f"bug: {life.name} ended with {life.process.exit_error!r}"
            for owner in self.owners
            for life in owner.lives
            if life.process is not None and life.process.exit_error is not None
        ]
        violations += judge_history(self.plan.work, history)
        violations += [f"bug: {text}" for text in world.findings()]
        return RunResult(
            seed=self.seed,
            trace_hash=world.trace.hash_text(),
            events=world.trace.events,
            steps=world.loop.steps,
            virtual_ms=(world.loop.now_ns - START_NS) // _MS,
            violations=tuple(violations),
            missing=tuple(self.missing()),
            felt={kind.value: count.felt for kind, count in world.faults.counts.items()},
            figures={
                "committed": self.setting.outcomes.get("committed", 0),
                "aborted": self.setting.outcomes.get("aborted", 0),
                "unknown": self.setting.outcomes.get("unknown", 0),
                "folded": self.setting.folded,
                "lives": sum(len(owner.lives) for owner in self.owners),
                "prepared": self.decisions.decided,
                "markers": self.watch.markers,
                "moves": self._moves(),
                "moved": sum(log.moves for log in self.truth.logs.values()),
            },
            transitions=tuple(world.trace.transitions),
        )


def run_cores(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    run = CoresRun(seed)
    epochs = {each.transactional_id: each.first_epoch for each in run.plan.work.processes}
    with first_epochs(epochs):
        return play(run, watch)
