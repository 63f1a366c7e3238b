"""A small file of a data directory that another program takes away, while the node is dead.

Owns which, and what goes with it: without `marks` nobody can tell a log that has lost its end from
a whole one, so the newest files of the partitions are cut as well, now and then. It must never take
from a node what no other copy holds: nobody is promised anything then. Nor may it cut a copy of
which another one was trimmed by its own node (`own_trims`): one that ends below such a start keeps
what it has until an operator decides.
"""

from typing import Final

from tidelog.broker.log.names import parse_directory_name
from tidelog.chaos.checkers.cluster.board import PartitionBoard
from tidelog.chaos.sim.cluster.node import DATA, ClusterNode
from tidelog.chaos.sim.cluster.watch import ClusterWatch
from tidelog.chaos.sim.ports.medium import Inode, Medium
from tidelog.chaos.sim.world.world import World
from tidelog.wire.ids import BrokerId

MARKS: Final = "marks"
OTHERS: Final = (
    "starts",
    "broker_epoch.json",
    "clock.json",
    "log_checkpoint",
    "clean_shutdown.json",
)
_TELLS_OF_ALL: Final = (MARKS, "broker_epoch.json")
"""Without these a directory counts as one that went back in time."""
_IS_MARKS: Final = 0.7
_IS_EMPTIED: Final = 0.3
"""The name stays, and no byte of it."""
_IS_CUT: Final = 0.8
TAKEN_MAX: Final = 2


class SmallFiles:
    """Of one run."""

    def __init__(self, world: World, watch: ClusterWatch) -> None:
        self._world = world
        self._watch = watch
        self._random = world.seeds.purpose("small files taken")
        self._taken = 0

    def may_take(self, victim: ClusterNode) -> bool:
        """Whether the node has served under an epoch that the controller knows, and another copy
        holds whatever it holds."""
        broker = self._watch.board.newest.brokers.get(BrokerId(victim.node_id))
        if self._taken >= TAKEN_MAX or broker is None or broker.is_fenced or not victim.is_wanted:
            return False
        medium = victim.machine.medium(DATA)
        is_as_it_was = not medium.flips and not medium.has_lost_files
        boards = self._watch.board.partitions.values()
        keeps_a_head = any(may_keep_a_head(each, victim.node_id) for each in boards)
        return is_as_it_was and not keeps_a_head and self._watch.is_spare(victim)

    def take(self, victim: ClusterNode) -> None:
        """The node is dead."""
        medium = victim.machine.medium(DATA)
        present = [name for name in OTHERS if name in medium.root.durable]
        name = MARKS
        if present and not self._random.chance(_IS_MARKS):
            name = present[self._random.below(len(present))]
        if name not in medium.root.durable:
            return
        self._taken += 1
        if name in _TELLS_OF_ALL:
            self._watch.on_rollback(victim)
        if self._random.chance(_IS_EMPTIED):
            medium.lose_bytes(name, 0, self._world.faults)
        else:
            medium.lose(name, self._world.faults)
        if name == MARKS and self._random.chance(_IS_CUT):
            for path in _newest_logs(medium):
                inode = medium.find(path)
                if isinstance(inode, Inode):
                    medium.lose_bytes(path, len(inode.seen) // 3, self._world.faults)


def may_keep_a_head(board: PartitionBoard, node_id: int) -> bool:
    """Whether the node's copy may begin lower than another one, whose start no leader decided."""
    is_held = node_id in board.image.replicas
    return is_held and any(other != node_id for other in board.own_trims)


def _newest_logs(medium: Medium) -> list[str]:
    """Of each partition the last segment, if it is not sealed."""
    newest: dict[str, str] = {}
    for path, _ in medium.files():
        directory, _, name = path.rpartition("/")
        if directory and name.endswith(".log") and parse_directory_name(f"{directory}/"):
            newest[directory] = max(newest.get(directory, ""), path)
    sealed = {path.removesuffix(".sidecar") for path, _ in medium.files()}
    return [path for path in newest.values() if path.removesuffix(".log") not in sealed]
