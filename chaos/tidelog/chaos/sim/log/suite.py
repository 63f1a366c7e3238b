"""The suite of the partition log: one node that is nothing but its data directories.

Clients append, read, trim, cut and roll, each partition by its own settings; retention, seals,
compaction and scrubbing go on; the process and the machine die, the disk fails in every way that it
has. There is no network and no protobuf. docs/simulation.md tells what is checked and what counts.
"""

import asyncio
from typing import Final

from tidelog.chaos.checkers.log.medium import CHECKPOINT, MARKS
from tidelog.chaos.checkers.log.model import LogModel
from tidelog.chaos.checkers.log.records import Found, Outcome
from tidelog.chaos.sim.base.faults import FaultKind, draw_kinds
from tidelog.chaos.sim.log.inspection import compare_lives, inspect, inspect_media
from tidelog.chaos.sim.log.keeper import LogKeeper
from tidelog.chaos.sim.log.node import LogNode, Wanted
from tidelog.chaos.sim.log.partition_client import PartitionClient, note_settings
from tidelog.chaos.sim.log.plan import PlannedPartition, draw_plan
from tidelog.chaos.sim.log.readers import Reader
from tidelog.chaos.sim.ports.clock import WALL_START_MS, set_done, sleep_ns
from tidelog.chaos.sim.ports.medium import Inode, Medium
from tidelog.chaos.sim.verdicts.playing import play
from tidelog.chaos.sim.verdicts.result import RunResult, Suite, Watch
from tidelog.chaos.sim.world.nemesis import Nemesis
from tidelog.chaos.sim.world.process import SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey

EVENTS_MIN: Final = 2_000
RECOVERIES_MIN: Final = 2
ACKNOWLEDGEMENTS_MIN: Final = 50
KINDS: Final = (
    FaultKind.PROCESS_CRASH,
    FaultKind.MACHINE_CRASH,
    FaultKind.PAUSE,
    FaultKind.WALL_JUMP,
    FaultKind.LOST_WRITE,
    FaultKind.TORN_WRITE,
    FaultKind.HOLE,
    FaultKind.LOST_NAME,
    FaultKind.BIT_FLIP,
    FaultKind.READ_ERROR,
    FaultKind.WRITE_ERROR,
    FaultKind.FLUSH_ERROR,
    FaultKind.NO_SPACE,
    FaultKind.READ_ONLY,
    FaultKind.SLOW_DISK,
    FaultKind.WORKER_CRASH,
)
_PROBABILITIES: Final = {FaultKind.SLOW_DISK: 0.01, FaultKind.NO_SPACE: 0.01}
_MS: Final = 1_000_000
_PERIODS_MIN: Final = 3
_PERIODS_MAX: Final = 24
_PERIOD_NS: Final = (90 * _MS, 360 * _MS)
_ACT_NS: Final = (30 * _MS, 200 * _MS)
_INSPECT_NS: Final = 220 * _MS
_PENDING_NS_MAX: Final = 300 * _MS
_AFTER_CHANGE_NS_MAX: Final = 1 * _MS
_STOP_NS_MAX: Final = 20_000 * _MS
_LIVENESS_NS: Final = 60_000 * _MS
_SCARCE_BYTES: Final = 64 * 1024
_DRAIN_READS_MAX: Final = 5_000
_DRAIN_BYTES: Final = 16_384


class LogRun:
    """One seed of the suite; also the stage of its clients."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        plan_world = World(seed)
        kinds = draw_kinds(plan_world.seeds.purpose("kinds"), KINDS)
        plan_world.close()
        self.world = World(seed, enabled=kinds, probabilities=_PROBABILITIES)
        self.loop = self.world.loop
        self.node: LogNode | None = None
        self.violations: list[str] = []
        self.recoveries = 0
        self.checkpoints = 0
        self._random = self.world.seeds.purpose("log")
        self._machine = self.world.machine("node")
        self._plan = draw_plan(self.world.seeds.purpose("plan"))
        self._wanted = {
            each.key: Wanted(
                key=each.key,
                directory=each.directory,
                settings=each.settings,
                leader_epoch=LeaderEpoch(0),
            )
            for each in self._plan.partitions
        }
        self._clients = [self._make_client(each) for each in self._plan.partitions]
        self._readers: list[Reader] = []
        self._last: LogNode | None = None
        """The last node that served, as its memory was when it died."""
        self._starting: LogNode | None = None
        self._offsets_ms = (0, 0)
        self._told = (0, 0)
        for name in self._plan.directories:
            medium = self._machine.medium(name)
            if self._plan.is_scarce:
                medium.capacity_bytes = _SCARCE_BYTES

    def _make_client(self, planned: PlannedPartition) -> PartitionClient:
        model = LogModel(str(planned.key.partition), planned.policy)
        random = self.world.seeds.purpose(f"client {planned.key.partition}")
        client = PartitionClient(self, planned, model, random)
        note_settings(model, client)
        return client

    # -- the stage -----------------------------------------------------------------------------

    def report(self, error: TidelogError) -> None:
        """A client was told of trouble."""
        self._keeper.report(error)

    def note(self, key: PartitionKey, kind: str, detail: str) -> None:
        """An event of the run: what a client was told."""
        self.world.trace.note(f"partition {key.partition}", kind, detail)

    def medium_of(self, planned: PlannedPartition) -> Medium:
        """Where the partition lies."""
        return self._machine.medium(planned.directory)

    def wall_ms(self) -> int:
        """What the node's machine shows."""
        return WALL_START_MS + self.loop.now_ns // _MS + self._machine.wall_offset_ms

    def tell_time(self) -> None:
        """The models know how early and how late it may be for the node."""
        now_ms = WALL_START_MS + self.loop.now_ns // _MS
        if (now_ms, self._machine.wall_offset_ms) == self._told:
            return
        self._told = (now_ms, self._machine.wall_offset_ms)
        low, high = self._offsets_ms
        offset_ms = self._machine.wall_offset_ms
        self._offsets_ms = (min(low, offset_ms), max(high, offset_ms))
        for client in self._clients:
            client.model.wall_low_ms = now_ms + self._offsets_ms[0]
            client.model.wall_high_ms = now_ms + self._offsets_ms[1]

    # -- the node ------------------------------------------------------------------------------

    async def _live(self, ports: SimulatedPorts) -> None:
        """The node's process."""
        self.world.trace.state = "starting"
        self.tell_time()
        process = self._machine.processes["node"]
        self._starting = node = LogNode(
            process,
            self._wanted,
            self._plan.directories,
            self._plan.limits,
            lambda kind, detail: self.world.trace.note("node", kind, detail),
        )
        await node.live(ports, self._on_ready)

    def _on_ready(self, node: LogNode) -> None:
        """It serves: what it has found is held against what its clients may rely on."""
        self.recoveries += 1
        self.world.trace.state = "ready"
        self.tell_time()
        for client in self._clients:
            log = node.log_of(client.key)
            if log.failure is None:
                client.model.start(node.bounds_of(client.key))
            else:
                self.report(log.failure)
        if self._last is not None and not self._has_rotten():
            self.violations += compare_lives(self._last, node, self._clients)
        if not self._has_rotten():
            self.violations += inspect(
                node, self._clients, self._random, was_damaged=self._was_damaged()
            )
        self._last = self.node = node

    def _on_dead(self) -> None:
        """Called before a node is started again: the one before is gone."""
        if self.node is not None or self._starting is not None:
            for client in self._clients:
                client.abandon()
        for node in (self.node, self._starting):
            if node is not None:
                node.abandon()
        self.node = self._starting = None

    def _has_rotten(self) -> bool:
        return any(medium.flips for medium in self._machine.media.values())

    def _was_damaged(self) -> bool:
        return bool(self.world.trace.kinds.get("housekeeping:producers_forgotten"))

    # -- the play ------------------------------------------------------------------------------

    async def play(self) -> None:
        """Everything, from the first start to the last read."""
        self._keeper = LogKeeper(self.world, self._machine, "node", self._live, self._on_dead)
        self._nemesis = Nemesis(self.world, list)
        tasks = [asyncio.create_task(self._keeper.run(), name="keeper")]
        tasks.append(asyncio.create_task(self._watch(), name="inspector"))
        for number in range(2):
            reader = Reader(self, self._clients, self.world.seeds.purpose(f"reader {number}"))
            self._readers.append(reader)
            tasks.append(asyncio.create_task(reader.run(), name=f"reader {number}"))
        clients = [
            asyncio.create_task(client.run(), name=f"client {number}")
            for number, client in enumerate(self._clients)
        ]
        for number in range(_PERIODS_MAX):
            is_added = number >= _PERIODS_MIN
            if self._is_broken() or (is_added and not self._missing()):
                break
            await self._period(is_added=is_added)
        self.world.heal()
        for task in [*clients, *tasks[1:]]:
            task.cancel()
        if not self._is_broken():
            await self._end()
        tasks[0].cancel()

    def _is_broken(self) -> bool:
        return bool(
            self.violations
            or self._keeper.violations
            or any(client.model.violations for client in self._clients)
        )

    async def _watch(self) -> None:
        """Inspect again and again."""
        while not self._is_broken():
            await sleep_ns(self.loop, _INSPECT_NS)
            self._inspect()

    def _inspect(self) -> None:
        self.tell_time()
        if self._has_rotten():
            return
        self.violations += inspect_media(list(self._machine.media.values()))
        node = self.node
        if node is not None and not self._keeper.process.is_dead:
            self.violations += inspect(
                node, self._clients, self._random, was_damaged=self._was_damaged()
            )

    async def _period(self, *, is_added: bool) -> None:
        """Troubles for a while, and an end of the node."""
        self.world.faults.begin_period(wants_unfelt=is_added and self._random.chance(0.7))
        until_ns = self.loop.now_ns + self._random.between(*_PERIOD_NS)
        while self.loop.now_ns < until_ns:
            await sleep_ns(self.loop, self._random.between(*_ACT_NS))
            await self._act_once()
        if self._random.chance(0.2):
            await self._stop_cleanly()
            return
        await self._wait_pending()
        self._inspect()
        if self.world.faults.is_active(FaultKind.MACHINE_CRASH) and self._random.chance(0.8):
            await self._nemesis.act(FaultKind.MACHINE_CRASH, self._keeper.process)
        else:
            self._keeper.process.kill()

    async def _act_once(self) -> None:
        kinds = self._nemesis.kinds()
        if not kinds:
            return
        kind = kinds[self._random.below(len(kinds))]
        if kind is FaultKind.BIT_FLIP:
            self._flip_bit()
        else:
            await self._nemesis.act(kind, self._keeper.process)
        self.tell_time()

    def _flip_bit(self) -> None:
        """Damage a durable byte, once a run, where damage cannot be taken for a torn write.

        That is everywhere but in the last segment of a partition and in the marks: with one copy,
        damage to the newest bytes looks like a write that a crash has torn.
        """
        if self.world.faults.felt(FaultKind.BIT_FLIP):
            return
        files: list[tuple[Medium, str, Inode]] = []
        for medium in self._machine.media.values():
            durable = medium.durable_files()
            last = {path.rpartition("/")[0]: path for path, _ in durable if path.endswith(".log")}
            files += [
                (medium, path, inode)
                for path, inode in durable
                if inode.durable and path not in (*last.values(), MARKS)
            ]
        if files:
            medium, path, inode = files[self._random.below(len(files))]
            medium.flip_bit(path, inode, self._random, self.world.faults)
            self._keeper.note_rot(path)

    async def _stop_cleanly(self) -> None:
        """The node is told to stop, and does; with a failed disk it may just die."""
        node = self.node
        if node is None:
            return
        self.world.trace.note("node", "node:stop")
        node.stop()
        until_ns = self.loop.now_ns + _STOP_NS_MAX
        while self.node is node and self.loop.now_ns < until_ns:
            if self._keeper.process.is_dead:
                self.checkpoints += any(
                    CHECKPOINT in medium.root.durable for medium in self._machine.media.values()
                )
                if self.world.faults.is_active(FaultKind.MACHINE_CRASH):
                    await self._nemesis.act(FaultKind.MACHINE_CRASH, self._keeper.process)
                return
            await sleep_ns(self.loop, 5 * _MS)
        if self.node is node:
            self.violations.append("not_alive: the node does not stop")

    async def _wait_pending(self) -> None:
        """Now and then until a crash would find something that no flush has covered."""
        faults = self.world.faults
        is_missing = FaultKind.LOST_NAME in faults.unfelt()
        is_unnamed = faults.is_active(FaultKind.LOST_NAME) and (
            is_missing or self._random.chance(0.4)
        )
        if not is_unnamed and self._random.chance(0.3):
            return
        done: asyncio.Future[None] = self.loop.create_future()
        media = [self._machine.medium(name) for name in self._plan.directories]

        def on_change(is_name: bool) -> None:
            if is_unnamed and not is_name:
                for medium in media:
                    if on_change not in medium.watchers:
                        medium.watchers.append(on_change)
            else:
                set_done(done)

        for medium in media:
            medium.watchers.append(on_change)
        timer = self.loop.call_at_ns(self.loop.now_ns + _PENDING_NS_MAX, set_done, done)
        await done
        timer.cancel()
        for medium in media:
            medium.watchers.clear()
        await sleep_ns(self.loop, self._random.below(_AFTER_CHANGE_NS_MAX))

    # -- the end -------------------------------------------------------------------------------

    async def _end(self) -> None:
        """All is whole again: it has to work, and everything acknowledged has to be there."""
        for medium in self._machine.media.values():
            medium.capacity_bytes = 1 << 40
        is_repaired = self._keeper.repair()
        if is_repaired or any(medium.is_failed for medium in self._machine.media.values()):
            self._keeper.restart()
        judge = Reader(self, self._clients, self.world.seeds.purpose("judge"))
        await self._wait_alive()
        if self._is_broken():
            return
        self._inspect()
        await self._drain(judge)
        self._keeper.process.kill()
        self._keeper.restart()
        await self._wait_alive()
        if not self._is_broken():
            await self._drain(judge)

    async def _wait_alive(self) -> None:
        until_ns = self.loop.now_ns + _LIVENESS_NS
        for client in self._clients:
            while not self._is_broken():
                if self.loop.now_ns >= until_ns:
                    client.model.violate("not_alive", "nothing is accepted after healing")
                    break
                sent = client.append(is_flush_awaited=True)
                if sent is not None:
                    await client.settle()
                    if sent.outcome is Outcome.ACKNOWLEDGED:
                        break
                await sleep_ns(self.loop, 50 * _MS)

    async def _drain(self, judge: Reader) -> None:
        """Read every log from its start to its end."""
        for client in self._clients:
            until_ns = self.loop.now_ns + _LIVENESS_NS
            while not self._is_broken() and not await self._drain_one(judge, client):
                if self.loop.now_ns >= until_ns:
                    client.model.violate("not_alive", "it cannot be read to its end")
                await sleep_ns(self.loop, 50 * _MS)

    async def _drain_one(self, judge: Reader, client: PartitionClient) -> bool:
        """False: the node was restarted, or retention has overtaken the reader."""
        node = self.node
        if node is None or self._keeper.process.is_dead:
            return False
        self.tell_time()
        found: list[Found] = []
        position = node.bounds_of(client.key).log_start
        for _ in range(_DRAIN_READS_MAX):
            following = await judge.read(client, position, _DRAIN_BYTES, found)
            if following is None:
                return False
            if following == position:
                client.model.drained(found, node.bounds_of(client.key))
                return True
            position = following
        return False

    # -- the verdict ---------------------------------------------------------------------------

    def judge(self) -> RunResult:
        """Everything that was seen."""
        world = self.world
        for client in self._clients:
            self.violations += client.model.violations
        self.violations += [f"bug: {text}" for text in world.findings()]
        self.violations += [f"unretrieved: {text}" for text in world.loop.unretrieved]
        if hasattr(self, "_keeper"):
            self.violations += self._keeper.violations
        return RunResult(
            seed=self.seed,
            trace_hash=world.trace.hash_text(),
            events=world.trace.events,
            steps=world.loop.steps,
            virtual_ms=self.loop.now_ns // _MS - 1_000_000,
            violations=tuple(self.violations),
            missing=tuple(self._missing()),
            felt={kind.value: count.felt for kind, count in world.faults.counts.items()},
            figures=self._figures(),
            transitions=tuple(world.trace.transitions),
        )

    def _figures(self) -> dict[str, int]:
        kinds = self.world.trace.kinds
        return {
            "acknowledged": self._acknowledged(),
            "recoveries": self.recoveries - 1,
            "checkpoints": self.checkpoints,
            "reads": sum(reader.reads for reader in self._readers),
            "trims": sum(client.trims for client in self._clients),
            "cuts": sum(client.truncations for client in self._clients),
            "jobs": kinds.get("worker:start", 0),
            "restores": self._keeper.restores if hasattr(self, "_keeper") else 0,
        }

    def _acknowledged(self) -> int:
        return sum(client.model.acknowledged for client in self._clients)

    def _missing(self) -> list[str]:
        missing = [f"{kind.value} unfelt" for kind in self.world.faults.unfelt()]
        if self.world.trace.events < EVENTS_MIN:
            missing.append("events")
        if self.recoveries - 1 < RECOVERIES_MIN:
            missing.append("recoveries")
        if self._acknowledged() < ACKNOWLEDGEMENTS_MIN:
            missing.append("acknowledged")
        return missing


def run_log(seed: int, watch: Watch | None = None) -> RunResult:
    """Play one seed and judge it."""
    return play(LogRun(seed), watch)


LOG: Final = Suite(name="log", run=run_log)
