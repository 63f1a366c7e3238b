"""Voters with everything that the active controller consists of, as simulated processes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.metadata_quorum.quorum.memory_storage import MemoryStorage
from tests.metadata_quorum.quorum.quorum_world import address, member_id, members, until
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.world.process import Process
from tidelog.metadata.features import bootstrap_records
from tidelog.metadata.records.entries import encode_entry
from tidelog.metadata_quorum.active.broker_sessions import SessionTimes
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.quorum.runner import QuorumRunner
from tidelog.metadata_quorum.quorum.state_machine import MetadataStateMachine
from tidelog.metadata_quorum.raft.types import Members
from tidelog.metadata_quorum.services.methods import ControllerParts
from tidelog.ports import Listener, RequestContext, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError

_T = TypeVar("_T")
CLUSTER_ID = "c"
AGAIN = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INDETERMINATE,
    ErrorCode.DEADLINE_EXCEEDED,
    ErrorCode.UNAVAILABLE,
)
BOOTSTRAP = encode_entry(
    bootstrap_records(
        CLUSTER_ID,
        default_replication_factor=1,
        internal_replication_factor=1,
        internal_partition_counts={"__offsets": 16},
    )
)


class Denying:
    """Allows everything but one principal's operation."""

    denied: tuple[str, str, str] | None = None

    def is_allowed(self, context: RequestContext, resource: str, operation: str) -> bool:
        return (context.principal, resource, operation) != self.denied


class Voter:
    """One node: its storage lives on, the rest dies with each process."""

    def __init__(self, world: World, node: int, bootstrap: Members, times: SessionTimes) -> None:
        self.world = world
        self.node = node
        self.storage = MemoryStorage(member_id(node), bootstrap, CLUSTER_ID)
        self.times = times
        self.process: Process | None = None
        self.parts: ControllerParts | None = None
        self.machine = MetadataStateMachine()
        self.authorizer = Denying()

    async def live(self, ports: SimulatedPorts) -> None:
        self.storage.writes_under_way = 0
        self.machine = MetadataStateMachine()
        runner = QuorumRunner(
            storage=self.storage,
            state_machine=self.machine,
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            bootstrap_command=BOOTSTRAP,
        )
        parts = ControllerParts(
            ActiveController(quorum=runner, state_machine=self.machine, clock=ports.clock),
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            authorizer=self.authorizer,
            observers=tuple,
            cluster_id=CLUSTER_ID,
            times=self.times,
        )
        listener = Listener(name="cluster", bind=address(self.node))
        await ports.network.serve(listener, {**runner.methods(), **parts.methods()})
        self.parts = parts
        async with TaskScope() as scope:
            scope.start(runner.run(address=address(self.node)), name="quorum")
            scope.start(parts.run(), name="controller")

    def start(self) -> None:
        self.parts = None
        machine = self.world.machine(f"m{self.node}")
        self.process = machine.start(f"node{self.node}", self.live)

    def kill(self) -> None:
        assert self.process is not None, "it was started"
        self.process.kill()

    @property
    def controller(self) -> ActiveController | None:
        is_alive = self.process is not None and not self.process.is_dead
        return self.parts.controller if is_alive and self.parts is not None else None


class Voters:
    """All of them, formatted with one list."""

    def __init__(self, world: World, count: int, times: SessionTimes | None = None) -> None:
        nodes = range(1, count + 1)
        self.world = world
        self.all = {
            node: Voter(world, node, members(*nodes), times or SessionTimes()) for node in nodes
        }
        for voter in self.all.values():
            voter.start()

    def active_now(self) -> Voter | None:
        """Of those who decide, who does so in the highest term."""
        found = [
            (voter.controller.active_term, voter.node)
            for voter in self.all.values()
            if voter.controller is not None and voter.controller.active_term is not None
        ]
        return self.all[max(found)[1]] if found else None

    async def active(self) -> Voter:
        """As soon as somebody decides."""
        return await until(self.active_now)

    async def at_leader(
        self, work: Callable[[ActiveController], Awaitable[_T]], *, attempts: int = 2_000
    ) -> _T:
        """Whoever leads, again until it is done; what is done may be done twice."""
        for _ in range(attempts):
            voter = self.active_now()
            if voter is not None and voter.controller is not None:
                try:
                    async with asyncio.timeout(5):
                        return await work(voter.controller)
                except TimeoutError:
                    continue
                except TidelogError as error:
                    if error.code not in AGAIN:
                        raise
            await asyncio.sleep(0.02)
        raise AssertionError("nobody led for long enough")


def simulate(work: Callable[[World], Awaitable[None]], *, seed: int = 1) -> None:
    """Run the work in a world; whatever goes wrong inside fails the test."""
    world = World(seed)

    async def main() -> None:
        await work(world)

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()
