"""What the active controller does by itself, round after round: pure decisions over its image.

A stop of the walk "a broker dies": brokers without a session are fenced here, and their partitions
get other leaders.
"""

from collections.abc import Callable, Collection
from typing import Final

from tidelog.metadata.image.image import BrokerImage, Image
from tidelog.metadata.settings import catalogue
from tidelog.metadata.settings.inherited import cluster_value
from tidelog.metadata.settings.kinds import is_true
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.append_time import plan_right_clocks
from tidelog.metadata_quorum.controller.partitions.leaders import plan_balance
from tidelog.metadata_quorum.controller.partitions.reassignment import alter_reassignments
from tidelog.metadata_quorum.controller.partitions.reassignment_plan import drain_round
from tidelog.wire.ids import BrokerId

DRAIN_MOVES_MAX: Final = 100
"""Begun in one round, so that a drain can be called off without leaving thousands of moves."""


def silent_brokers(
    image: Image, has_session: Callable[[BrokerId], bool]
) -> tuple[BrokerImage, ...]:
    """Brokers that may lead although nothing is heard of them."""
    return tuple(
        broker
        for broker in image.brokers.values()
        if not broker.is_fenced and not has_session(broker.broker_id)
    )


def balance(image: Image, clocks_off: Collection[int] = ()) -> Decision[int]:
    """Leaders back to their preferred replicas, if the cluster wants that; how many."""
    if not is_true(cluster_value(image, catalogue.LEADER_REBALANCE)):
        return Decision(answer=0)
    limit = int(cluster_value(image, catalogue.LEADER_REBALANCE_PARTITIONS))
    records = plan_balance(image, limit=max(1, limit), clocks_off=clocks_off)
    return Decision(records=records, answer=len(records))


def right_clocks(image: Image, *, off: Collection[int], right: Collection[int]) -> Decision[int]:
    """Leaders that stamp records with a clock that is off go to one that is right; how many."""
    limit = int(cluster_value(image, catalogue.LEADER_REBALANCE_PARTITIONS))
    records = plan_right_clocks(image, off=off, right=right, limit=max(1, limit))
    return Decision(records=records, answer=len(records))


def drain(image: Image) -> Decision[int]:
    """The next moves off brokers that are being emptied; how many."""
    if not any(broker.is_draining for broker in image.brokers.values()):
        return Decision(answer=0)
    plan = drain_round(image, limit=DRAIN_MOVES_MAX)
    if not plan.reassignments:
        return Decision(answer=0)
    decision = alter_reassignments(image, plan.reassignments)
    return Decision(records=decision.records, answer=len(decision.records))
