"""The suite of a single node: produce, crash, recover, read.

One real node serves three clients: one that produces in single calls, one that produces over
streams, one that reads, all of them over a network and on disks that fail as the seed says; its
partitions lie in two data directories, of which each may fail alone. The node is killed again and
again and started by a keeper, as a supervisor would. At the end everything heals, each partition
has to accept a batch, and all of it is read, twice, with a crash between.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.chaos.checkers import History, Outcome, check_log
from tidelog.chaos.sim.base.faults import FaultKind, draw_kinds
from tidelog.chaos.sim.ports.clock import set_done, sleep_ns
from tidelog.chaos.sim.verdicts.durability import DurabilityWatch
from tidelog.chaos.sim.verdicts.playing import play
from tidelog.chaos.sim.verdicts.result import RunResult, Suite, Watch
from tidelog.chaos.sim.world.keeper import Keeper
from tidelog.chaos.sim.world.nemesis import Nemesis
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.chaos.workloads import LogClient, Topic
from tidelog.ports import AllowAll
from tidelog.server.node.node import Node, NodePorts
from tidelog.server.ports.node import FurtherDisk
from tidelog.server.settings.configuration import Listeners, ListenerSettings, NodeConfiguration
from tidelog.server.storage.format import is_formatted, read_identity
from tidelog.server.storage.formatting import FormatOptions, format_disks
from tidelog.server.storage.log_directories import format_log_disks
from tidelog.wire.batch import CorruptBatch
from tidelog.wire.errors import TidelogError

ADDRESS: Final = "node:9192"
CLUSTER_ADDRESS: Final = "node:9193"
CONFIGURATION: Final = NodeConfiguration(
    listeners=Listeners(
        client=ListenerSettings(bind=ADDRESS), cluster=ListenerSettings(bind=CLUSTER_ADDRESS)
    )
)
FURTHER: Final = "disk1"
FORMAT_OPTIONS: Final = FormatOptions(data_dir="", node_id=1, standalone_address=CLUSTER_ADDRESS)
TOPIC_SETTINGS: Final = {
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
}
"""Wall clocks jump: no record is from the future, none is too old."""
EVENTS_MIN: Final = 2_000
RECOVERIES_MIN: Final = 2
ACKNOWLEDGEMENTS_MIN: Final = 50

_OF_OTHERS: Final = (
    FaultKind.CLOCK_RATE,
    FaultKind.WIPE,
    FaultKind.ROLLBACK,
    FaultKind.GONE_FILE,
    FaultKind.WORKER_CRASH,
    FaultKind.HELD_MESSAGE,
)
KINDS: Final = tuple(
    kind for kind in FaultKind if not kind.value.startswith("datagram") and kind not in _OF_OTHERS
)
_MS: Final = 1_000_000
_PERIODS_MIN: Final = 2
_PERIODS_MAX: Final = 10
_PERIOD_NS: Final = (600 * _MS, 2_400 * _MS)
_ACT_NS: Final = (100 * _MS, 1_200 * _MS)
_LIVENESS_NS: Final = 120_000 * _MS
_PENDING_NS_MAX: Final = 1_500 * _MS
_AFTER_CHANGE_NS_MAX: Final = 1 * _MS


class SkeletonRun:
    """One seed of the suite."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        plan = World(seed)
        kinds = draw_kinds(plan.seeds.purpose("kinds"), KINDS)
        plan.close()
        self.world = World(seed, enabled=kinds)
        self.history = History()
        self.recoveries = 0
        self.violations: list[str] = []
        self._is_ending = False
        machine = self.world.machine("node")
        self._media = (machine.medium(), machine.medium(FURTHER))
        self._durability = DurabilityWatch(*self._media)
        self.world.fabric.taps.append(self._durability)
        self._random = self.world.seeds.purpose("skeleton")
        self._clients: list[Process] = []
        self._topics: dict[str, Topic] = {}

    # -- the cast ------------------------------------------------------------------------------

    async def _live(self, ports: SimulatedPorts) -> None:
        """The node's process."""
        self.world.trace.state = "starting"
        further = ports.open_disk(FURTHER)
        node_ports = NodePorts(
            clock=ports.clock,
            random=ports.random,
            disk=ports.open_disk(),
            quorum_disk=ports.open_disk("quorum"),
            further_disks=(FurtherDisk(path=FURTHER, disk=further),),
            worker=ports.worker,
            sealer=ports.sealer,
            network=ports.network,
            host=ports.host,
            authorizer=AllowAll(),
        )
        if not await is_formatted(node_ports.disk):
            await format_disks(
                node_ports.disk, node_ports.quorum_disk, ports.random, FORMAT_OPTIONS
            )
        if not await is_formatted(further):
            identity = await read_identity(node_ports.disk, CONFIGURATION.node_id)
            await format_log_disks([further], identity, ports.random)
        await Node(CONFIGURATION, node_ports).run(self._on_ready)

    def _on_ready(self, node: Node) -> None:
        del node
        self.recoveries += 1
        self.world.trace.state = "ready"

    def _start_client(self, name: str, partition_count: int, *, is_streaming: bool) -> None:
        async def live(ports: SimulatedPorts) -> None:
            client = LogClient(ports, self.history, name=name, address=ADDRESS)
            topic = await self._topic_of(client, f"topic-{name}", partition_count)
            while True:
                partition = ports.random.below(partition_count)
                if is_streaming:
                    count = 1 + ports.random.below(8)
                    await client.produce_stream(topic, partition, count, self._keeper.report)
                else:
                    await client.produce(
                        topic, partition, timeout_ms=2_000, on_error=self._keeper.report
                    )
                await ports.clock.sleep(ports.random.below(160))

        self._clients.append(self.world.machine(name).start(name, live))

    async def _topic_of(self, client: LogClient, name: str, partition_count: int) -> Topic:
        segment_bytes = (2_048, 8_192, 32_768)[self._random.below(3)]
        topic = await client.ensure_topic(
            name, partition_count, {"segment.bytes": str(segment_bytes), **TOPIC_SETTINGS}
        )
        self._topics[name] = topic
        return topic

    def _start_reader(self, name: str) -> None:
        async def live(ports: SimulatedPorts) -> None:
            client = LogClient(ports, self.history, name=name, address=ADDRESS)
            positions: dict[str, tuple[str, int]] = {}
            while True:
                await ports.clock.sleep(1 + ports.random.below(120))
                if self._topics:
                    await self._read_some(client, ports, positions)

        self._clients.append(self.world.machine(name).start(name, live))

    async def _read_some(
        self, client: LogClient, ports: SimulatedPorts, positions: dict[str, tuple[str, int]]
    ) -> None:
        topics = list(self._topics.values())
        topic = topics[ports.random.below(len(topics))]
        partition = ports.random.below(topic.partition_count)
        key = topic.key(partition)
        if key not in positions or ports.random.below(30) == 0:
            positions[key] = (client.session(), 0)
        reader, position = positions[key]
        try:
            if ports.random.below(3):
                position = await client.fetch(topic, partition, position, reader=reader)
            else:
                answers = 1 + ports.random.below(5)
                position = await client.fetch_stream(
                    topic, partition, position, reader=reader, answers=answers
                )
            positions[key] = (reader, position)
        except TidelogError as error:
            self._keeper.report(error)
            del positions[key]

    # -- the play ------------------------------------------------------------------------------

    async def play(self) -> None:
        """Everything, from the first start to the last read."""
        self._keeper = Keeper(self.world, self.world.machine("node"), "node", self._live)
        keeping = asyncio.create_task(self._keeper.run(), name="keeper")
        self._start_client("single", 3, is_streaming=False)
        self._start_client("streaming", 2, is_streaming=True)
        self._start_reader("reader")
        self._nemesis = Nemesis(self.world, lambda: self._clients)
        for number in range(_PERIODS_MAX):
            is_added = number >= _PERIODS_MIN
            if self._keeper.violations or (is_added and not self._missing()):
                break
            await self._period(is_added=is_added)
        self.world.heal()
        for client in self._clients:
            client.kill()
        if not self._keeper.violations:
            await self._end()
        keeping.cancel()
        self.history.settle(self.world.loop.now_ns)

    async def _period(self, *, is_added: bool) -> None:
        """Troubles for a while, and a crash at the end of it."""
        self.world.faults.begin_period(wants_unfelt=is_added and self._random.chance(0.7))
        until_ns = self.world.loop.now_ns + self._random.between(*_PERIOD_NS)
        while self.world.loop.now_ns < until_ns:
            await sleep_ns(self.world.loop, self._random.between(*_ACT_NS))
            await self._nemesis.act_once(self._keeper.process)
        await self._wait_pending()
        if self.world.faults.is_active(FaultKind.MACHINE_CRASH) and self._random.chance(0.8):
            await self._nemesis.act(FaultKind.MACHINE_CRASH, self._keeper.process)
        else:
            self._keeper.process.kill()

    async def _wait_pending(self) -> None:
        """Now and then until a crash would find something that no flush has covered."""
        faults = self.world.faults
        is_missing = FaultKind.LOST_NAME in faults.unfelt()
        is_unnamed = faults.is_active(FaultKind.LOST_NAME) and (
            is_missing or self._random.chance(0.4)
        )
        if not is_unnamed and self._random.chance(0.3):
            return
        loop = self.world.loop
        done: asyncio.Future[None] = loop.create_future()

        def on_change(is_name: bool) -> None:
            if is_unnamed and not is_name:
                self._watch(on_change)
            else:
                set_done(done)

        self._watch(on_change)
        timer = loop.call_at_ns(loop.now_ns + _PENDING_NS_MAX, set_done, done)
        await done
        timer.cancel()
        await sleep_ns(loop, self._random.below(_AFTER_CHANGE_NS_MAX))

    def _watch(self, on_change: Callable[[bool], None]) -> None:
        for medium in self._media:
            medium.watchers.append(on_change)

    async def _end(self) -> None:
        """All is whole again: it has to work, and everything acknowledged has to be there."""
        world = self.world
        undone = sum(medium.unflip() for medium in self._media)
        if undone or any(medium.is_failed for medium in self._media):
            self._keeper.restart(is_undone=bool(undone))
        process = world.machine("judge").start("judge", _wait)
        judge = LogClient(process.ports, self.history, name="judge", address=ADDRESS)
        until_ns = world.loop.now_ns + _LIVENESS_NS
        for topic in self._topics.values():
            for partition in range(topic.partition_count):
                await self._wait_alive(judge, topic, partition, until_ns)
        await self._drain(judge, is_final=False)
        self._keeper.process.kill()
        await self._drain(judge, is_final=True)

    async def _wait_alive(
        self, judge: LogClient, topic: Topic, partition: int, until_ns: int
    ) -> None:
        while self.world.loop.now_ns < until_ns and not self._keeper.violations:
            outcome = await judge.produce(
                topic, partition, timeout_ms=5_000, on_error=self._keeper.report
            )
            if outcome is Outcome.ACKNOWLEDGED:
                return
            await sleep_ns(self.world.loop, 100 * _MS)
        self.violations.append(f"not_alive: {topic.key(partition)} accepted nothing after healing")

    async def _drain(self, judge: LogClient, *, is_final: bool) -> None:
        until_ns = self.world.loop.now_ns + _LIVENESS_NS
        for topic in self._topics.values():
            for partition in range(topic.partition_count):
                reader, position = judge.session(), 0
                while self.world.loop.now_ns < until_ns and not self._keeper.violations:
                    try:
                        before = position
                        position = await judge.fetch(
                            topic, partition, position, reader=reader, is_final=is_final
                        )
                    except CorruptBatch:
                        break
                    except TidelogError as error:
                        self._keeper.report(error)
                        await sleep_ns(self.world.loop, 100 * _MS)
                        continue
                    if position == before:
                        break

    # -- the verdict ---------------------------------------------------------------------------

    def judge(self) -> RunResult:
        """Check everything that was written down."""
        world = self.world
        self.violations += [str(anomaly) for anomaly in check_log(self.history)]
        if not world.faults.felt(FaultKind.BIT_FLIP):
            self.violations += [f"corrupt_batch: {text}" for text in self.history.damage]
        self.violations += self._durability.violations[:5]
        self.violations += [f"bug: {text}" for text in world.findings()]
        self.violations += [f"unretrieved: {text}" for text in world.loop.unretrieved]
        self.violations += [
            f"bug: {client.name} ended with {client.exit_error!r}"
            for client in self._clients
            if client.exit_error is not None
        ]
        if hasattr(self, "_keeper"):
            self.violations += self._keeper.violations
        return RunResult(
            seed=self.seed,
            trace_hash=world.trace.hash_text(),
            events=world.trace.events,
            steps=world.loop.steps,
            virtual_ms=world.loop.now_ns // _MS - 1_000_000,
            violations=tuple(self.violations),
            missing=tuple(self._missing()),
            felt={kind.value: count.felt for kind, count in world.faults.counts.items()},
            figures=self._figures(),
            transitions=tuple(world.trace.transitions),
        )

    def _figures(self) -> dict[str, int]:
        return {
            "acknowledged": self._acknowledged(),
            "recoveries": self.recoveries - 1,
            "restores": self._keeper.restores,
            "caught": len(self.history.damage),
        }

    def _acknowledged(self) -> int:
        return sum(send.outcome is Outcome.ACKNOWLEDGED for send in self.history.sends)

    def _missing(self) -> list[str]:
        missing = [f"{kind.value} unfelt" for kind in self.world.faults.unfelt()]
        if self.world.trace.events < EVENTS_MIN:
            missing.append("events")
        if self.recoveries - 1 < RECOVERIES_MIN:
            missing.append("recoveries")
        if self._acknowledged() < ACKNOWLEDGEMENTS_MIN:
            missing.append("acknowledged")
        return missing


async def _wait(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


def run_skeleton(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    return play(SkeletonRun(seed), watch)


SKELETON: Final = Suite(name="skeleton", run=run_skeleton)
