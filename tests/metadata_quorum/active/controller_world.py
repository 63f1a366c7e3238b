"""A controller over a fake quorum in a simulated world: what its tests have in common."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.metadata_quorum.active.fake_quorum import FakeQuorum
from tests.metadata_quorum.active.small_machine import SmallMachine
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import (
    ClusterConfigurationRecord,
    FormatRecord,
    encode_entry,
)
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.active.limits import ActiveLimits
from tidelog.metadata_quorum.active.writes import Written
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.ports import TaskScope

BOOTSTRAP = encode_entry((FormatRecord(cluster_id="c"),))
LIMITS = ActiveLimits()
ONE_AT_A_TIME = ActiveLimits(in_flight_entries_max=1, queued_writes_max=100)


class Scene:
    """One node: its quorum, its state machine, its controller."""

    def __init__(
        self, ports: SimulatedPorts, *, commit_ms: int | None, limits: ActiveLimits
    ) -> None:
        self.ports = ports
        self.machine = SmallMachine()
        self.quorum = FakeQuorum(self.machine, commit_ms=commit_ms, bootstrap_command=BOOTSTRAP)
        self.controller = ActiveController(
            quorum=self.quorum,
            state_machine=self.machine,
            clock=ports.clock,
            limits=limits,
        )

    async def set(self, name: str, value: str, *, timeout_ms: int = 60_000) -> Written[str]:
        """Write a setting of the cluster: what tests use for a write that cannot be refused."""
        return await self.controller.write(
            lambda _: Decision(
                records=(ClusterConfigurationRecord(changes={name: value}),), answer=value
            ),
            tried=f"set {name}",
            timeout_ms=timeout_ms,
        )

    async def read(self, name: str) -> Written[str]:
        """A write that changes nothing: its answer is what it was decided upon."""

        def decide(image: Image) -> Decision[str]:
            return Decision(answer=value_of(image, name))

        return await self.controller.write(decide, tried=f"read {name}", timeout_ms=60_000)

    async def wait_active(self) -> None:
        """Until this node decides."""
        for _ in range(1_000):
            if self.controller.active_term is not None:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the controller did not become active")


def value_of(image: Image, name: str) -> str:
    """A setting of the cluster, empty if it is not set."""
    return image.cluster_configuration.get(name, "")


def run(
    work: Callable[[Scene], Awaitable[None]],
    *,
    seed: int = 1,
    commit_ms: int | None = 1,
    limits: ActiveLimits = LIMITS,
) -> None:
    """The work beside a running controller; whatever fails in either fails the test."""
    world = World(seed)

    async def life(ports: SimulatedPorts) -> None:
        scene = Scene(ports, commit_ms=commit_ms, limits=limits)
        async with TaskScope() as scope:
            scope.start(scene.controller.run(), name="controller")
            await work(scene)
            scope.cancel()

    async def main() -> None:
        process = world.machine("n1").start("node", life)
        for _ in range(10_000):
            if process.is_dead:
                break
            await asyncio.sleep(0.05)
        assert process.is_dead, "the test's work did not end"
        if process.exit_error is not None:
            raise process.exit_error

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()
