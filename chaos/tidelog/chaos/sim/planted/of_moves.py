"""Bugs of moves, for the cluster suite: in the controller, and in who follows the image."""

from tidelog.broker.replicas import Replica, Replicas
from tidelog.chaos.sim.planted import Substitution
from tidelog.metadata_quorum.controller.partition_state import PartitionState, ReplicaView
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.metadata_quorum.image import PartitionImage


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


def loosen_before_the_role() -> Substitution:
    """The image that ends a move to one replica lifts the rule that what is acknowledged is flushed
    first, while the role of before still holds."""
    original = Replicas._take_over

    def take_over(
        self: Replicas, replica: Replica, partition: PartitionImage, settings: TopicSettings
    ) -> None:
        self._configure(replica.log.key, replica, settings)
        original(self, self._replicas[replica.log.key], partition, settings)

    return Substitution(Replicas, "_take_over", take_over)
