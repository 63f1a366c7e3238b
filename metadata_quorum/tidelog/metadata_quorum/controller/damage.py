"""Replicas that their brokers found damaged: others lead, nobody waits for them.

Pure. It must never take the last replica out that holds every acknowledged record: damaged, it
still has the only bytes of them. A stop of the walk "a broker dies": a disk that lies dies alone.
"""

from collections.abc import Sequence

import msgspec

from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.in_sync import CHANGES_MAX, check_broker_epoch
from tidelog.metadata_quorum.controller.partition_state import (
    PartitionState,
    ReplicaView,
    in_sync_min,
)
from tidelog.metadata_quorum.controller.refusals import (
    find_partition,
    invalid,
    refuse_duplicates,
    refuse_too_many,
)
from tidelog.metadata_quorum.image import Image
from tidelog.metadata_quorum.records import MetadataRecord
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicId


class DamagedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker reports, and the leader epoch that it knew then."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch


def report_damaged(
    image: Image, broker_id: BrokerId, broker_epoch: BrokerEpoch, damaged: Sequence[DamagedReplica]
) -> Decision[tuple[TidelogError | None, ...]]:
    """Each on its own: None where the broker neither leads nor is in sync after it."""
    tried = f"take damaged replicas of broker {broker_id} out"
    check_broker_epoch(image, broker_id, broker_epoch, tried=tried)
    refuse_too_many(len(damaged), CHANGES_MAX, tried=tried, what="partitions")
    keys = [f"{each.topic_id.hex()}-{each.partition}" for each in damaged]
    refuse_duplicates(keys, tried=tried, what="partition")
    records: list[MetadataRecord] = []
    errors: list[TidelogError | None] = []
    for each in damaged:
        try:
            record = _take_out(image, broker_id, each)
        except TidelogError as error:
            errors.append(error)
            continue
        errors.append(None)
        if record is not None:
            records.append(record)
    return Decision(records=tuple(records), answer=tuple(errors))


def _take_out(image: Image, broker_id: BrokerId, damaged: DamagedReplica) -> MetadataRecord | None:
    number = damaged.partition
    tried = f"take broker {broker_id} out of {damaged.topic_id.hex()}-{number}"
    topic, partition = find_partition(image, damaged.topic_id, number, tried=tried)
    tried = f"take broker {broker_id} out of {topic.name}-{number}"
    if broker_id not in partition.replicas:
        raise invalid(tried, "it holds no replica of it")
    if damaged.leader_epoch < partition.leader_epoch:
        raise TidelogError(
            ErrorCode.FENCED_LEADER_EPOCH,
            tried=tried,
            happened=f"leader epoch {damaged.leader_epoch} is over, "
            f"the present one is {partition.leader_epoch}",
        )
    holding = (
        *partition.in_sync_replicas,
        *partition.eligible_replicas,
        *partition.last_known_eligible,
    )
    if broker_id not in holding:
        return None
    if all(each == broker_id for each in holding):
        raise TidelogError(
            ErrorCode.NO_ELIGIBLE_LEADER,
            tried=tried,
            happened="no other replica is known to hold every acknowledged record",
            hint="Its files are kept as they are. Another replica leads at the price of what only "
            "this one holds: `tidelog partition elect-leaders --unclean`, once its broker is "
            "stopped.",
        )
    state = PartitionState.of(topic.topic_id, partition)
    state.lose((broker_id,))
    state.last_known = tuple(each for each in state.last_known if each != broker_id)
    state.settle(ReplicaView(image.brokers, partition), in_sync_min(topic))
    return state.record()
