"""Ends of transactions in `__groups`, brought to the coordinators of groups that they concern.

Owns the way of a marker from the leader that has written it to the core that makes it count. It
must never say that an end shows before the core has said so.
"""

from typing import Final

from tidelog.broker.groups.coordinator.keeper import GroupCoordinators
from tidelog.broker.groups.state.messages import EndStaged
from tidelog.broker.groups.state.places import GROUPS
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.ids import PartitionKey


class GroupEnds:
    """The `MarkerObserver` of `__groups`."""

    def __init__(self, replicas: Replicas, coordinators: GroupCoordinators) -> None:
        self._replicas: Final = replicas
        self._coordinators: Final = coordinators

    def observes(self, key: PartitionKey) -> bool:
        """Whether it is a partition of `__groups`."""
        topic = GROUPS.topic_in(self._replicas.applied)
        return topic is not None and topic.topic_id == key.topic_id

    async def marker_committed(
        self, key: PartitionKey, identity: Identity, decision: Decision, marker_offset: int
    ) -> None:
        """Return once what was committed or aborted shows; see `MarkerObserver`.

        A coordinator that loads has perhaps read past the marker already, or will not reach it: it
        says COORDINATOR_NOT_AVAILABLE, and the marker comes again.
        """
        del marker_offset
        coordinator = self._coordinators.by_partition.get(key.partition)
        if coordinator is None:
            raise GROUPS.not_coordinator(key)
        await coordinator.ask(EndStaged(end=identity, decision=decision))
