"""Members of a quorum as simulated processes, and a state machine that only remembers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from tests.metadata_quorum.quorum.memory_storage import MemoryStorage
from tidelog.chaos.sim import SimulatedPorts
from tidelog.chaos.sim.world.process import Process
from tidelog.chaos.sim.world.world import World
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.runner import QuorumRunner
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    Member,
    MemberId,
    Members,
    NodeId,
    Options,
    Snapshot,
)
from tidelog.ports import Listener
from tidelog.wire.errors import TidelogError

_T = TypeVar("_T")

WAIT_S = 60.0
POLL_S = 0.01
BOOTSTRAP = b"bootstrap"


class Commands:
    """A state machine that keeps every command in order."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.restores = 0

    def apply(self, entries: Sequence[Entry]) -> None:
        self.commands += [e.data for e in entries if e.kind is EntryKind.COMMAND]

    def capture(self) -> Callable[[], Sequence[bytes]]:
        frozen = tuple(self.commands)
        return lambda: frozen

    def restore(self, snapshot: Snapshot, state: Sequence[bytes]) -> None:
        self.commands = list(state)
        self.restores += 1


def member_id(node: int, life: int = 1) -> MemberId:
    """A node with the directory of one of its lives."""
    return MemberId(NodeId(node), bytes([node, life]) * 8)


def address(node: int) -> str:
    return f"node{node}:9"


def members(*nodes: int) -> Members:
    return Members(tuple(Member(id=member_id(n), address=address(n)) for n in nodes))


class Life:
    """One node: its storage lives on, its runner dies with each process."""

    def __init__(self, quorum: "SimulatedQuorum", node: int, bootstrap: Members) -> None:
        self.quorum = quorum
        self.node = node
        self.storage = MemoryStorage(member_id(node), bootstrap)
        self.machine = Commands()
        self.runner: QuorumRunner | None = None
        self.process: Process | None = None

    async def live(self, ports: SimulatedPorts) -> None:
        self.storage.writes_under_way = 0
        self.machine = Commands()
        self.runner = QuorumRunner(
            storage=self.storage,
            state_machine=self.machine,
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            limits=self.quorum.limits,
            bootstrap_servers=[address(1), address(2), address(3)],
            bootstrap_command=BOOTSTRAP,
            raft_options=self.quorum.options,
        )
        await ports.network.serve(
            Listener(name="cluster", bind=address(self.node)), self.runner.methods()
        )
        await self.runner.run(address=address(self.node))

    def start(self) -> None:
        self.runner = None
        machine = self.quorum.world.machine(f"m{self.node}")
        self.process = machine.start(f"node{self.node}", self.live)

    def kill(self) -> None:
        assert self.process is not None, "it was started"
        self.process.kill()

    @property
    def is_alive(self) -> bool:
        return self.process is not None and not self.process.is_dead and self.runner is not None

    @property
    def up(self) -> QuorumRunner:
        assert self.runner is not None, "the node has started"
        return self.runner


class SimulatedQuorum:
    """`voters` are formatted with one list; others may `join`."""

    def __init__(
        self,
        world: World,
        *voters: int,
        limits: QuorumLimits | None = None,
        options: Options | None = None,
    ) -> None:
        self.world = world
        self.limits = limits or QuorumLimits()
        self.options = options or Options()
        self.lives = {node: Life(self, node, members(*voters)) for node in voters}

    def start(self) -> None:
        for life in self.lives.values():
            life.start()

    def join(self, node: int) -> Life:
        """A node with a new directory that knows nobody."""
        life = self.lives[node] = Life(self, node, Members())
        life.start()
        return life

    def leader_now(self) -> Life | None:
        """Of the living, who leads in the highest term."""
        leaders = [
            life
            for life in self.lives.values()
            if life.is_alive and life.up.is_running and life.up.describe().role is Role.LEADER
        ]
        return max(leaders, key=lambda life: life.up.describe().term, default=None)

    async def leader(self) -> Life:
        """As soon as there is one that has applied an entry of its own term."""

        def found() -> Life | None:
            leader = self.leader_now()
            if leader is None or BOOTSTRAP not in leader.machine.commands:
                return None
            described = leader.up.describe()
            last = leader.up.committed_entries(leader.up.applied_index, 1)
            return leader if last and last[0].term == described.term else None

        return await until(found)

    async def propose(self, data: bytes) -> None:
        """By whoever leads, again until it is taken."""

        async def attempt() -> bool:
            leader = self.leader_now()
            if leader is None:
                return False
            try:
                await leader.up.propose(data, term=leader.up.describe().term)
            except TidelogError:
                return data in leader.machine.commands
            return True

        await until_async(attempt)

    async def agree(self, *nodes: int) -> list[bytes]:
        """As soon as these have applied the same."""

        def same() -> list[bytes] | None:
            if not all(self.lives[node].is_alive for node in nodes or self.lives):
                return None
            lists = [self.lives[node].machine.commands for node in nodes or self.lives]
            indexes = [self.lives[node].up.applied_index for node in nodes or self.lives]
            is_same = all(each == lists[0] for each in lists) and len(set(indexes)) == 1
            return lists[0] if is_same and lists[0] else None

        return await until(same)


async def until(found: Callable[[], _T | None]) -> _T:
    """The first value that is there; virtual time passes."""

    async def look() -> _T | None:
        return found()

    return await until_async(look)


async def until_async(found: Callable[[], Awaitable[_T | None]]) -> _T:
    async with asyncio.timeout(WAIT_S):
        while True:
            value = await found()
            if value:
                return value
            await asyncio.sleep(POLL_S)


def options(**settings: int) -> Options:
    return msgspec.structs.replace(Options(), **settings)
