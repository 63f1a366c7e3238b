"""Copies that their node has trimmed by itself, as an earlier version did by its own clock.

Owns what such a node leaves on its disk: a higher log start in the marks, told by no leader epoch.
It may be the last one in sync, and lead then: what lies below is not to be read as long as it does,
and the other copies keep it. It must never take what no other copy holds, nor make one that its
cluster cannot go on from by itself: all others have flushed what lies beyond the new start.
"""

from typing import Final

from tidelog.broker.log.marks.file import NAME, STARTS_NAME
from tidelog.broker.log.marks.marks import ENTRY_BYTES, Mark, MarkKind, encode_marks
from tidelog.chaos.checkers.cluster.board import PartitionBoard
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.cluster.node import DATA, ClusterNode
from tidelog.chaos.sim.cluster.watch import ClusterWatch
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.chaos.sim.world.world import World

_PROBABILITY: Final = 0.35
"""Of a node that is about to start: as if it were the first of this version there."""
_TIMES_MAX: Final = 2


class OwnTrims:
    """Of one run."""

    def __init__(self, world: World, watch: ClusterWatch, random: SeededRandom) -> None:
        self._world = world
        self._watch = watch
        self._random = random
        self.count = 0

    def take(self, node: ClusterNode) -> None:
        """Of a node that is dead: now and then one of its copies, if one may be trimmed."""
        # An old copy that ends below such a start could only wait for somebody to decide.
        is_mixed = FaultKind.ROLLBACK in self._world.faults.enabled
        if is_mixed or self.count >= _TIMES_MAX or not self._random.chance(_PROBABILITY):
            return
        boards = [
            board
            for board in self._watch.board.partitions.values()
            if start_in(board, node.node_id) > max(0, board.decided_start)
        ]
        if not boards:
            return
        board = boards[self._random.below(len(boards))]
        start = start_in(board, node.node_id)
        if self._mark(node, board, start):
            self.count += 1
            board.note_own_trim(node.node_id, start)
            # Whatever the clocks show: this one deletes too early.
            self._watch.board.see_trim(board.key, start)
            self._world.trace.note(node.name, "nemesis:own_trim", f"{board.name} {start}")

    def _mark(self, node: ClusterNode, board: PartitionBoard, start: int) -> bool:
        medium = node.machine.medium(DATA)
        files = [medium.find(name) for name in (NAME, STARTS_NAME)]
        whole = [each for each in files if isinstance(each, Inode) and _is_whole(each)]
        if medium.is_failed or medium.is_read_only or len(whole) < len(files):
            return False
        for inode in whole:
            inode.write(encode_marks([Mark(board.key, MarkKind.LOG_START, start)]))
            inode.cover(inode.made)
        return True


def _is_whole(inode: Inode) -> bool:
    return len(inode.seen) % ENTRY_BYTES == 0


def start_in(board: PartitionBoard, node_id: int) -> int:
    """Below the last batch that all copies hold for good, and that this one knows as committed: no
    version has trimmed above its own watermark. -1: the copy may not be trimmed."""
    image = board.image
    others = [each for each in image.replicas if each != node_id]
    is_settled = board.is_flush_sync and board.excuse is None and not image.is_reassigning
    is_hurt = bool(board.damaged or board.own_trims)
    if node_id not in image.replicas or not others or not is_settled or is_hurt:
        return -1
    if board.was_moved and any(each not in image.in_sync_replicas for each in others):
        # Where such a one stood when it was looked at last may be where another log stood.
        return -1
    known = [board.positions.get(each) for each in image.replicas]
    flushed = [each.flushed_offset for each in known if each is not None]
    if len(flushed) < len(known):
        return -1
    return min(*flushed, board.committed, board.positions[node_id].high_watermark) - 1
