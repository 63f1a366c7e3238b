"""Bugs of moves, in the controller, for the cluster suite."""

from tidelog.chaos.sim.planted import Substitution
from tidelog.metadata_quorum.controller.partitions.state import PartitionState, ReplicaView


def reassign_before_the_copy() -> Substitution:
    """A reassignment ends when it begins: those that come count as in sync."""
    original = PartitionState.finish_reassignment

    def finish(self: PartitionState, view: ReplicaView, minimum: int, *, is_flushed: bool) -> bool:
        usable = [each for each in self.adding if view.is_usable(each)]
        self.in_sync = tuple(
            each for each in self.replicas if each in self.in_sync or each in usable
        )
        return original(self, view, minimum, is_flushed=is_flushed)

    return Substitution(PartitionState, "finish_reassignment", finish)


def leave_one_alone_too_early() -> Substitution:
    """A reassignment to one replica ends without its leader's word that what is committed is on
    that one's disk."""
    original = PartitionState.finish_reassignment

    def finish(self: PartitionState, view: ReplicaView, minimum: int, *, is_flushed: bool) -> bool:
        del is_flushed
        return original(self, view, minimum, is_flushed=True)

    return Substitution(PartitionState, "finish_reassignment", finish)
