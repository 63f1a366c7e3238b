"""What happens to a node while a client calls: whom it strikes, how, and when it is over.

Owns the fault of one playing, and the answer to when the cluster could serve its client again:
from that moment on the client's time is counted.
"""

import enum
from collections.abc import Sequence
from typing import Final

from tidelog.broker.coordination.places import partition_of
from tidelog.broker.groups.state.places import GROUPS
from tidelog.broker.transactions.state.places import TRANSACTIONS
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.clients.scene import TOPIC, group_of, transactional_id_of
from tidelog.chaos.sim.cluster.node import ClusterNode
from tidelog.chaos.sim.world.world import World
from tidelog.metadata.image.image import Image

STRUCK_NS: Final = 20_000_000_000
"""Pauses and cuts: longer than a session, than a silent connection is kept, and than anybody may
wait without telling the log; shorter than any call's own deadline."""


class Role(enum.Enum):
    """Whom it strikes."""

    LEADER = "leader"
    COORDINATOR = "coordinator"
    """Of the playing's group."""
    TRANSACTION_COORDINATOR = "transaction coordinator"
    """Of its transactional id."""
    CONTROLLER = "controller"
    BOOTSTRAP = "bootstrap"
    """The first address that the client was given."""


class Fault(enum.Enum):
    """What happens there."""

    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    """Off from everybody."""
    CUT_CLIENT = "cut_client"
    """Off from the client only: nobody else knows."""


class Strike:
    """One fault at one node, once."""

    def __init__(
        self, world: World, nodes: Sequence[ClusterNode], fault: Fault, role: Role, playing: int
    ) -> None:
        self.fault = fault
        self.role = role
        self.at_ns: int | None = None
        self.served_ns: int | None = None
        """Since when all that the client may need is there again, at nodes that it can reach."""
        self._world = world
        self._nodes = nodes
        self._coordinated: Final = {
            Role.COORDINATOR: (GROUPS, group_of(playing)),
            Role.TRANSACTION_COORDINATOR: (TRANSACTIONS, transactional_id_of(playing)),
        }
        self._victim: ClusterNode | None = None
        self._client = ""

    def begin(self, client: str) -> None:
        """Now."""
        victim = self._who()
        if victim is None or victim.process is None or self.at_ns is not None:
            return
        self._victim, self._client = victim, client
        self.at_ns = self._world.loop.now_ns
        self._world.trace.note(victim.name, f"strike:{self.fault.value}", self.role.value)
        if self.fault is Fault.KILL:
            self._world.faults.took_effect(FaultKind.PROCESS_CRASH, victim.name)
            victim.kill(is_machine=False)
            return
        if self.fault is Fault.PAUSE:
            victim.process.pause()
        else:
            others = [client]
            if self.fault is Fault.CUT:
                others += [node.name for node in self._nodes if node is not victim]
            for other in others:
                self._world.fabric.cut(other, victim.name, FaultKind.PARTITION)
                self._world.fabric.cut(victim.name, other, FaultKind.PARTITION)
        loop = self._world.loop
        loop.call_at_ns(loop.now_ns + STRUCK_NS, self.heal, context=loop.world_context)

    def heal(self) -> None:
        """A pause or a cut is over; what was killed stays dead until the playing is."""
        victim = self._victim
        if victim is None or self.fault is Fault.KILL:
            return
        if victim.process is not None and victim.is_paused:
            victim.process.resume()
        self._world.fabric.heal()

    def look(self) -> None:
        """Whether the client could be served by now."""
        if self.at_ns is None or not self._can_serve():
            self.served_ns = None
        elif self.served_ns is None:
            self.served_ns = self._world.loop.now_ns

    def _who(self) -> ClusterNode | None:
        if self.role is Role.BOOTSTRAP:
            return self._nodes[0]
        image = newest(self._nodes)
        if self.role is Role.CONTROLLER:
            return self._node(_controller_of(self._nodes))
        return self._node(self._leader(image, self.role))

    def _leader(self, image: Image, role: Role) -> int | None:
        """Of the topic's partition, or of the one that its group or transactional id belongs to."""
        if role not in self._coordinated:
            named = image.topic_named(TOPIC)
            return None if named is None else named.partitions[0].leader_id
        kind, name = self._coordinated[role]
        topic = kind.topic_in(image)
        return None if topic is None else partition_of(name, topic).leader_id

    def _node(self, node_id: int | None) -> ClusterNode | None:
        found = [node for node in self._nodes if node.node_id == node_id and node.is_alive]
        return found[0] if found else None

    def _can_serve(self) -> bool:
        reached = [node for node in self._nodes if self._is_reached(node)]
        image = newest(reached)
        ids = {node.node_id for node in reached}
        wanted = [self._leader(image, Role.LEADER), self._leader(image, Role.COORDINATOR)]
        if TRANSACTIONS.topic_in(image) is not None:
            wanted.append(self._leader(image, Role.TRANSACTION_COORDINATOR))
        wanted.append(_controller_of(reached))
        return all(each in ids for each in wanted)

    def _is_reached(self, node: ClusterNode) -> bool:
        cuts = self._world.fabric.cuts
        is_cut = (self._client, node.name) in cuts
        return node.is_alive and not node.is_paused and not is_cut


def newest(nodes: Sequence[ClusterNode]) -> Image:
    """Of the metadata that they show."""
    images = [image for node in nodes if (image := node.view.image) is not None]
    return max(images, key=lambda image: image.version, default=Image())


def _controller_of(nodes: Sequence[ClusterNode]) -> int | None:
    """As most of them say."""
    said = [node.view.controller_id for node in nodes if node.view.controller_id is not None]
    return max(set(said), key=said.count) if said else None
