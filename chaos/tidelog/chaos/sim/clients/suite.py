"""The suite of clients: each call of the SDK, while a node that it needs dies, pauses, is cut off.

docs/simulation.md tells what it plays, checks and counts. A seed plays one row of cells: once
without a fault, which also counts the messages of the call, then struck at some of them. The
cluster is three whole nodes; the clients are the SDK's own, drivers included.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tidelog.chaos.sim.base.loop import START_NS
from tidelog.chaos.sim.clients.cells import Row, moments_of, row_of
from tidelog.chaos.sim.clients.playing import Playing, is_over
from tidelog.chaos.sim.clients.scene import T0, TOPIC, Stage
from tidelog.chaos.sim.clients.sdk import ClientLog, sdk_within
from tidelog.chaos.sim.clients.strikes import Strike, newest
from tidelog.chaos.sim.cluster.node import ClusterNode
from tidelog.chaos.sim.cluster.plan import Plan, PlannedNode
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.verdicts.playing import play
from tidelog.chaos.sim.verdicts.result import RunResult, Suite, Watch
from tidelog.chaos.sim.world.process import SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.client import NewTopic
from tidelog.client.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer
from tidelog.server.storage.formatting import InitialVoter
from tidelog.wire.errors import TidelogError

NODES: Final = 3
FIRST_VALUES: Final = 3
_MS: Final = 1_000_000
_LOOK_NS: Final = 40 * _MS
_WHOLE_NS: Final = 60_000 * _MS
_STEPS_MAX: Final = 6_000_000
_READ_MS: Final = 1_000


class ClientsRun:
    """One seed of the suite."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.row, self.turn = row_of(seed)
        self.world = World(seed, steps_max=_STEPS_MAX)
        self.violations: list[str] = []
        self.cells = 0
        self.log: ClientLog
        self._values: list[str] = []
        self._promised: list[str] = []
        self._written = 0
        self._played = 0
        self._to_write: asyncio.Queue[str] = asyncio.Queue()
        self._wanted: asyncio.Queue[Callable[[AsyncAdminClient], Awaitable[object]]] = (
            asyncio.Queue()
        )
        self._undone = 0
        uuids = self.world.seeds.purpose("uuids")
        planned = [
            PlannedNode(node_id=number, rack="", is_controller=True)
            for number in range(1, NODES + 1)
        ]
        voters = tuple(
            InitialVoter(
                node_id=each.node_id,
                address=f"n{each.node_id}:9193",
                directory_uuid=uuids.uuid(),
            )
            for each in planned
        )
        plan = _plan(tuple(planned))
        self.nodes = [ClusterNode(self.world, plan, each, voters) for each in planned]

    # -- the play ------------------------------------------------------------------------------

    async def play(self) -> None:
        """The row: without a fault, then with it."""
        for node in self.nodes:
            node.start()
        self.world.machine("writer").start("writer", self._write)
        self.world.machine("keeper").start("keeper", self._keep)
        if not await self._settle(self._do(_make_topic)):
            return
        for _ in range(FIRST_VALUES):
            self._ask_to_write()
        calm = await self._play_once(None, 0)
        if calm is None or self.violations:
            return
        for moment in moments_of(calm.messages, self.turn):
            strike = Strike(self.world, self.nodes, self.row.fault, self.row.role, self._played + 1)
            if await self._play_once(strike, moment) is None:
                return
            self.cells += strike.at_ns is not None
        await self._read_all()

    async def _play_once(self, strike: Strike | None, moment: int) -> Playing | None:
        """One cell; None: the cluster did not become whole."""
        if not await self._settle():
            return None
        self._played += 1
        stage = Stage(
            number=self._played,
            bootstrap=[node.address for node in self.nodes],
            values=self._values,
            write=self._ask_to_write,
            sent=self._promised,
        )
        scene = self.row.scene
        prepare = scene.prepare
        if prepare is not None and not await self._settle(
            self._do(lambda admin: prepare(stage, admin))
        ):
            return None
        playing = Playing(self.world, scene, stage, is_warm=self.row.is_warm, log=self.log)
        if not await self._wait(lambda: playing.is_ready or playing.process.is_dead):
            self.violations.append(f"not_alive: {playing} was not ready in time")
            return None
        self.world.fabric.taps[:] = [playing.tap]
        playing.begin(strike, moment)
        while not is_over(playing):
            await sleep_ns(self.world.loop, _LOOK_NS)
            if strike is not None:
                strike.look()
        self.world.fabric.taps.clear()
        self.violations += playing.judge()
        playing.process.kill()
        if strike is not None:
            strike.heal()
        for node in self.nodes:
            if not node.is_alive:
                node.start()
        if scene.name in _WRITES:
            self._values += [value for value in stage.sent if value not in self._values]
        return playing

    async def _settle(self, work: Awaitable[object] | None = None) -> bool:
        """Everything is whole, everything asked for is done."""
        if work is not None:
            await work
        if await self._wait(self._is_whole):
            return True
        self.violations.append("not_alive: the cluster did not become whole in time")
        return False

    async def _wait(self, condition: Callable[[], bool]) -> bool:
        loop = self.world.loop
        until_ns = loop.now_ns + _WHOLE_NS
        while not condition():
            if loop.now_ns >= until_ns:
                return False
            await sleep_ns(loop, _LOOK_NS)
        return True

    def _is_whole(self) -> bool:
        if self._undone or not self._to_write.empty():
            return False
        images = [node.view.image for node in self.nodes]
        if len({None if image is None else image.version for image in images}) != 1:
            return False
        image = newest(self.nodes)
        if len(image.brokers) < NODES or any(each.is_fenced for each in image.brokers.values()):
            return False
        return all(
            len(partition.in_sync_replicas) == len(partition.replicas)
            for topic in image.topics.values()
            for partition in topic.partitions
        )

    # -- who writes and who prepares -----------------------------------------------------------

    def _ask_to_write(self) -> str:
        self._written += 1
        value = f"value-{self._written}"
        self._undone += 1
        self._to_write.put_nowait(value)
        return value

    async def _write(self, ports: SimulatedPorts) -> None:
        del ports
        producer = AsyncProducer(bootstrap_servers=[node.address for node in self.nodes])
        while True:
            value = await self._to_write.get()
            await producer.send_and_wait(TOPIC, value.encode())
            self._values.append(value)
            self._promised.append(value)
            self._undone -= 1

    async def _do(self, work: Callable[[AsyncAdminClient], Awaitable[object]]) -> None:
        self._undone += 1
        self._wanted.put_nowait(work)

    async def _keep(self, ports: SimulatedPorts) -> None:
        """Prepares what a scene needs, until it is there."""
        admin = AsyncAdminClient(bootstrap_servers=[node.address for node in self.nodes])
        while True:
            work = await self._wanted.get()
            while True:
                try:
                    await work(admin)
                except TidelogError:
                    await ports.clock.sleep(200)
                else:
                    break
            self._undone -= 1

    async def _read_all(self) -> None:
        """What was promised is there, once."""
        if not await self._settle():
            return
        found: list[str] = []
        ended: list[bool] = []

        async def read(ports: SimulatedPorts) -> None:
            del ports
            consumer: Any = AsyncConsumer(
                bootstrap_servers=[node.address for node in self.nodes],
                auto_offset_reset="earliest",
            )
            consumer.assign([T0])
            end = (await consumer.end_offsets([T0]))[T0]
            while await consumer.position(T0) < end:
                for records in (await consumer.getmany(timeout_ms=_READ_MS)).values():
                    found.extend(record.value.decode() for record in records)
            ended.append(True)

        self.world.machine("judge").start("judge", read)
        if not await self._wait(lambda: bool(ended)):
            self.violations.append("not_alive: the topic could not be read at the end")
        lost = [value for value in self._promised if value not in found]
        self.violations += [f"lost_write: {value} was promised" for value in lost]
        doubled = {value for value in found if found.count(value) > 1}
        self.violations += [f"duplicate: {value}" for value in sorted(doubled)]

    # -- the verdict ---------------------------------------------------------------------------

    def judge(self) -> RunResult:
        """Of the seed."""
        world = self.world
        violations = [*self.violations, *(f"bug: {text}" for text in world.findings())]
        missing = [] if self.cells else ["no cell was struck"]
        return RunResult(
            seed=self.seed,
            trace_hash=world.trace.hash_text(),
            events=world.trace.events,
            steps=world.loop.steps,
            virtual_ms=(world.loop.now_ns - START_NS) // _MS,
            violations=tuple(violations),
            missing=tuple(missing),
            felt={kind.value: count.felt for kind, count in world.faults.counts.items()},
            figures={"cells": self.cells},
            transitions=tuple(world.trace.transitions),
        )


_WRITES: Final = frozenset({"send", "send_at_work", "send_batch", "flush", "stop_producer"})


async def _make_topic(admin: AsyncAdminClient) -> None:
    """The topic, and by the first question for a coordinator that of the groups."""
    if TOPIC not in await admin.list_topics():
        await admin.create_topics([NewTopic(TOPIC, 1, NODES, {"min.insync.replicas": "2"})])
    await admin.list_group_offsets("first")


def _plan(nodes: tuple[PlannedNode, ...]) -> Plan:
    return Plan(
        nodes=nodes,
        topics=(),
        kinds=(),
        changes=(),
        faulty_disk=1,
        wrong_clock=1,
        check_interval_ms=1_500,
        producers=0,
        readers=0,
        election_timeout_ms=1_000,
        session_timeout_ms=3_000,
        flush_interval_ms=200,
        lag_ms=1_500,
    )


def run_clients(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    run = ClientsRun(seed)
    with sdk_within(run.world) as run.log:
        return play(run, watch)


CLIENTS: Final = Suite(name="clients", run=run_clients)


def row_name(seed: int) -> str:
    """Which row a seed plays."""
    row: Row = row_of(seed)[0]
    return row.name
