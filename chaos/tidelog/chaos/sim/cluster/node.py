"""One machine of the cluster with the whole node that lives on it again and again.

Owns the lives of its process. It must never reach behind the ports of a node but to look.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.replicas.replicas import Replica
from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.cluster.plan import DISK_KINDS, Change, Plan, PlannedNode
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.metadata.image.image import PartitionImage
from tidelog.ports import AllowAll
from tidelog.server.node.node import Node
from tidelog.server.node.view import NodeView
from tidelog.server.ports.node import NodePorts
from tidelog.server.settings.configuration import (
    FlushSettings,
    Listeners,
    ListenerSettings,
    NodeConfiguration,
    QuorumSettings,
)
from tidelog.server.storage.format import is_formatted
from tidelog.server.storage.formatting import FormatOptions, InitialVoter, format_disks
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey

CLUSTER_ID: Final = "simulated"
QUORUM: Final = "quorum"
DATA: Final = "data"


class SpareDisks(Faults):
    """The switches of a run as a machine with sound disks sees them."""

    def __init__(self, faults: Faults) -> None:
        self.of_all = faults
        self.counts = faults.counts

    def is_active(self, kind: FaultKind) -> bool:
        """As for all, but for disks."""
        return kind not in DISK_KINDS and self.of_all.is_active(kind)

    def fires(self, kind: FaultKind) -> bool:
        """As for all, but for disks."""
        return kind not in DISK_KINDS and self.of_all.fires(kind)

    def took_effect(
        self, kind: FaultKind, subject: str, detail: str = "", *, name: str = ""
    ) -> None:
        """As for all."""
        self.of_all.took_effect(kind, subject, detail, name=name)


class ClusterNode:
    """A machine of the plan."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        planned: PlannedNode,
        voters: tuple[InitialVoter, ...],
    ) -> None:
        self.world = world
        self.plan = plan
        self.planned = planned
        self.node_id = planned.node_id
        self.name = f"n{planned.node_id}"
        self.machine = world.machine(self.name)
        self.process: Process | None = None
        self.node: Node | None = None
        self.lives = 0
        is_late = Change.ADD_BROKER in plan.changes and planned is plan.nodes[-1]
        self.is_member = not is_late
        """Whether it is part of the cluster: not yet, or not any more."""
        self.is_wanted = self.is_member
        """Whether somebody starts it when it is dead."""
        self.is_wiped = False
        """Whether its disk was replaced by an empty one."""
        self._voters = voters

    @property
    def address(self) -> str:
        """Of its client listener."""
        return f"{self.name}:9192"

    @property
    def cluster_address(self) -> str:
        """Of its cluster listener."""
        return f"{self.name}:9193"

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and not self.process.is_dead

    @property
    def is_paused(self) -> bool:
        """Whether its process stands still."""
        return self.process is not None and self.process.is_paused

    @property
    def living(self) -> Node | None:
        """Its node, if the process runs and got so far."""
        return self.node if self.is_alive else None

    def start(self) -> None:
        """Another life."""
        self.node = None
        self.lives += 1
        self.process = self.machine.start(self.name, self._live)

    def kill(self, *, is_machine: bool) -> None:
        """Of the process, or of the machine."""
        if self.process is None or self.process.is_dead:
            return
        if is_machine:
            self.machine.crash()
        else:
            self.process.kill()

    def request_stop(self) -> None:
        """As `tidelog server` does on SIGTERM."""
        if self.living is not None and self.process is not None:
            node = self.living
            self.process.start_task(_stop(node), "stop")

    async def _live(self, ports: SimulatedPorts) -> None:
        disk = self._spared(ports.open_disk(DATA))
        quorum_disk = self._spared(ports.open_disk(QUORUM)) if self.planned.is_controller else None
        if not await is_formatted(disk):
            await format_disks(disk, quorum_disk, ports.random, self._format_options())
        node_ports = NodePorts(
            clock=ports.clock,
            random=ports.random,
            disk=disk,
            quorum_disk=quorum_disk,
            worker=ports.worker,
            sealer=ports.sealer,
            network=ports.network,
            host=ports.host,
            authorizer=AllowAll(),
        )
        self.node = Node(self.configuration(), node_ports)
        await self.node.run(self._on_ready)

    def _on_ready(self, node: Node) -> None:
        del node
        self.world.trace.note(self.name, "node:ready")

    def _spared(self, disk: SimulatedDisk) -> SimulatedDisk:
        if self.node_id != self.plan.faulty_disk:
            disk.faults = SpareDisks(self.world.faults)
        return disk

    def _format_options(self) -> FormatOptions:
        return FormatOptions(
            data_dir="",
            node_id=self.node_id,
            cluster_id=CLUSTER_ID,
            is_controller=self.planned.is_controller,
            voters=self._voters if self.planned.is_controller else (),
            broker_count=len(self.plan.nodes),
        )

    def configuration(self) -> NodeConfiguration:
        """What its file says."""
        roles: tuple[str, ...] = ("broker",)
        if self.planned.is_controller:
            roles = ("broker", "controller")
        return NodeConfiguration(
            roles=roles,  # type: ignore[arg-type]
            node_id=self.node_id,
            rack=self.planned.rack,
            auto_create_topics=False,
            listeners=Listeners(
                client=ListenerSettings(bind=self.address),
                cluster=ListenerSettings(bind=self.cluster_address),
            ),
            quorum=QuorumSettings(
                bootstrap_servers=tuple(each.address for each in self._voters),
                election_timeout_ms=self.plan.election_timeout_ms,
                session_timeout_ms=self.plan.session_timeout_ms,
            ),
            flush=FlushSettings(replicated_interval_ms=self.plan.flush_interval_ms),
            # A run is short: retention has to come by more than once.
            housekeeping=HousekeepingLimits(check_interval_ms=self.plan.check_interval_ms),
        )

    # -- looking -------------------------------------------------------------------------------

    @property
    def view(self) -> NodeView:
        """Of its present life; empty while there is none."""
        return _NOTHING if self.living is None else self.living.view()

    def replicas(self) -> Iterator[Replica]:
        """What it holds open now."""
        view = self.view
        if view.replicas is not None and view.is_recovered:
            yield from view.replicas

    def replica(self, key: PartitionKey) -> Replica | None:
        """What it holds open of the partition."""
        view = self.view
        if view.replicas is None or not view.is_recovered:
            return None
        return view.replicas.get(key.topic_id, key.partition)

    def partition(self, key: PartitionKey) -> PartitionImage | None:
        """As the metadata say that it acts on: others may know newer ones."""
        replicas = self.view.replicas
        return None if replicas is None else replicas.applied.partition(key.topic_id, key.partition)

    def stopped_directories(self) -> list[TidelogError]:
        """Why directories of it have stopped: an operator restarts it."""
        return [each.failure for each in self.view.directories if each.failure is not None]

    def stopped_replicas(self) -> list[tuple[PartitionKey, TidelogError]]:
        """Why partitions of it have stopped by themselves: the node comes back to them."""
        return [
            (replica.log.key, replica.log.failure)
            for replica in self.replicas()
            if replica.log.failure is not None and replica.directory.failure is None
        ]


_NOTHING: Final = NodeView(directories=(), replicas=None, is_recovered=False, image=None)


async def _stop(node: Node) -> None:
    node.request_stop()
