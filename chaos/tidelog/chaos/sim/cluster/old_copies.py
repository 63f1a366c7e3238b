"""Copies of data directories, made between two lives of a node and put back over a later one.

Owns what was copied and whether putting it back can be told: the broker was unfenced since, under a
later epoch. What is copied and put back under one epoch cannot be told from the original; nobody is
promised anything then (`controller.directory_epochs`).
"""

from typing import Final

import msgspec

from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.cluster.node import DATA, ClusterNode
from tidelog.chaos.sim.cluster.watch import ClusterWatch
from tidelog.chaos.sim.ports.medium import CopiedTree
from tidelog.chaos.sim.world.world import World
from tidelog.metadata.image.image import BrokerImage
from tidelog.wire.ids import BrokerId

RESTORES_MAX: Final = 4
"""Of one run: the later ones tell nothing new."""
_KEPT: Final = 0.5
"""Of the copies that could be made: an older one stays where no newer one takes its place."""


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """One copy."""

    tree: CopiedTree
    epoch: int
    """The last that the broker had."""


class OldCopies:
    """Of one run."""

    def __init__(self, world: World, watch: ClusterWatch) -> None:
        self._world = world
        self._watch = watch
        self._random = world.seeds.purpose("old copies")
        self._kept: dict[int, Copied] = {}
        self._restores = 0

    def has_copy(self, node: ClusterNode) -> bool:
        """Whether there is one, new or old."""
        return node.node_id in self._kept

    def take(self, node: ClusterNode, *, is_certain: bool = False) -> None:
        """Maybe, of a node that is dead; a directory that has rotted is none to go back to."""
        if FaultKind.ROLLBACK not in self._world.faults.enabled:
            return
        medium, broker = node.machine.medium(DATA), self._broker(node)
        if (
            broker is None
            or medium.flips
            or medium.has_lost_files
            or not (is_certain or self._random.chance(_KEPT))
        ):
            return
        self._kept[node.node_id] = Copied(tree=medium.copy(), epoch=int(broker.epoch))

    def may_restore(self, node: ClusterNode) -> bool:
        """Whether the node's copy is from before the epoch under which it serves."""
        copied, broker = self._kept.get(node.node_id), self._broker(node)
        if copied is None or broker is None or self._restores >= RESTORES_MAX:
            return False
        if not node.is_wanted or node.is_wiped:
            return False  # Nothing is there that could go back in time.
        return not broker.is_fenced and broker.epoch > copied.epoch

    def restore(self, node: ClusterNode) -> None:
        """It takes the place of what is there; the node is dead."""
        self._restores += 1
        self._watch.on_rollback(node)
        node.machine.put_back(DATA, self._kept[node.node_id].tree)

    def _broker(self, node: ClusterNode) -> BrokerImage | None:
        return self._watch.board.newest.brokers.get(BrokerId(node.node_id))
