"""Files of one partition that another program takes away, of a node that runs or has stopped.

Owns which, and when: once a run, of a copy that the cluster can spare. It must never take what no
other copy holds: nobody is promised anything then.
"""

from typing import Final

from tidelog.broker.log.names import directory_name
from tidelog.chaos.checkers.cluster.board import PartitionBoard
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.cluster.node import DATA, ClusterNode
from tidelog.chaos.sim.cluster.watch import ClusterWatch
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.chaos.sim.quorum_nodes.cluster import LoopAgenda
from tidelog.chaos.sim.world.process import Process
from tidelog.chaos.sim.world.world import World
from tidelog.wire.ids import PartitionKey

_AT_WORK: Final = 0.5
"""Of them: the node goes on meanwhile; else it has stopped in order."""
_WHOLE_DIRECTORY: Final = 0.4
_CUT: Final = 0.5
"""Of files of a node that has stopped: half of it is left."""
_LOOK_NS: Final = 10 * MS
_LOOKS_MAX: Final = 500


class GoneFiles:
    """Of one run."""

    def __init__(self, world: World, watch: ClusterWatch, agenda: LoopAgenda) -> None:
        self._world = world
        self._watch = watch
        self._agenda = agenda
        self._random = world.seeds.purpose("gone files taken")
        self._is_waiting = False

    def take(self, victim: ClusterNode) -> None:
        """Of the victim: at once, or once it has stopped in order."""
        if self._is_waiting or self._world.faults.felt(FaultKind.GONE_FILE):
            return
        if self._random.chance(_AT_WORK):
            self._watch.look()
            self._take(victim, [replica.log.key for replica in victim.replicas()], is_at_work=True)
            return
        keys = [replica.log.key for replica in victim.replicas() if replica.log.failure is None]
        process = victim.process
        if keys and process is not None and not victim.is_paused:
            self._is_waiting = True
            victim.request_stop()
            self._await_stop(victim, process, keys, _LOOKS_MAX)

    def _await_stop(
        self, victim: ClusterNode, process: Process, keys: list[PartitionKey], looks: int
    ) -> None:
        """Whoever watches over it may start it again before: then there is another time."""
        if victim.process is not process or not looks:
            self._is_waiting = False
        elif not process.is_dead:
            self._agenda.after(_LOOK_NS, self._await_stop, victim, process, keys, looks - 1)
        else:
            self._is_waiting = False
            self._watch.look()
            self._take(victim, keys, is_at_work=False)

    def _take(self, victim: ClusterNode, keys: list[PartitionKey], *, is_at_work: bool) -> None:
        medium = victim.machine.medium(DATA)
        places = []
        for key in keys:
            board = self._watch.board.partitions.get(key)
            held = [
                (path, inode)
                for path, inode in medium.durable_files()
                if path.startswith(f"{directory_name(key)}/") and path.endswith(".log")
            ]
            if board is None or not held or not is_spare(victim, board):
                continue
            path, inode = max(held, key=lambda each: each[0])
            # A file of which nothing was flushed may come and go.
            if inode.certain_bytes:
                places.append((board, path, inode))
        if not places:
            return
        board, path, inode = places[self._random.below(len(places))]
        board.damaged[victim.node_id] = None
        board.gone_ns[victim.node_id] = self._world.loop.now_ns
        if self._random.chance(_WHOLE_DIRECTORY):
            medium.take_away(directory_name(board.key), self._world.faults)
        elif is_at_work or self._random.chance(_CUT):
            medium.take_away(path, self._world.faults)
        else:
            medium.cut_short(path, inode, len(inode.durable) // 2, self._world.faults)


def is_spare(victim: ClusterNode, board: PartitionBoard) -> bool:
    """Whether another copy, in sync and never at risk, holds everything."""
    others = [each for each in board.image.in_sync_replicas if each != victim.node_id]
    is_held = any(each not in board.lacking and each not in board.damaged for each in others)
    return is_held and board.excuse is None
