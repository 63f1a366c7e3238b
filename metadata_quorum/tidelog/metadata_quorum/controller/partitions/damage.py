"""Replicas that their brokers found damaged, or cannot open: others lead, nobody waits for them.

Pure. It must never take the last replica out that holds every acknowledged record: damaged, it
still has the only bytes of them. Each report of damage raises the partition epoch: a leader that
has decided to let the replica in, by what it held before, has decided too early. One that cannot be
opened now is not given up: it leaves the
in-sync set as a broker does that is fenced, stays eligible where those are, and leads on where
nobody else can. A stop of the walk "a broker dies": a disk that lies dies alone.
"""

from collections.abc import Sequence

from tidelog.metadata.broker_reports import DamagedReplica
from tidelog.metadata.eligibility import in_sync_min
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.metadata.records.entries import MetadataRecord
from tidelog.metadata.refusals.common import find_partition, refuse_duplicates, refuse_too_many
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.in_sync import CHANGES_MAX, check_broker_epoch
from tidelog.metadata_quorum.controller.partitions.state import PartitionState, ReplicaView
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId
from tidelog.wire.refusals import invalid


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
            decide = _step_back if each.may_come_back else _take_out
            record = decide(image, broker_id, *_found(image, broker_id, each))
        except TidelogError as error:
            errors.append(error)
            continue
        errors.append(None)
        if record is not None:
            records.append(record)
    return Decision(records=tuple(records), answer=tuple(errors))


def _found(
    image: Image, broker_id: BrokerId, damaged: DamagedReplica
) -> tuple[TopicImage, PartitionImage]:
    """What is reported, if the broker knew the present leader epoch."""
    number = damaged.partition
    tried = f"take broker {broker_id} out of {damaged.topic_id.hex()}-{number}"
    topic, partition = find_partition(image, damaged.topic_id, number, tried=tried)
    tried = _tried(broker_id, topic, partition)
    if broker_id not in partition.replicas:
        raise invalid(tried, "it holds no replica of it")
    if damaged.leader_epoch < partition.leader_epoch:
        raise TidelogError(
            ErrorCode.FENCED_LEADER_EPOCH,
            tried=tried,
            happened=f"leader epoch {damaged.leader_epoch} is over, "
            f"the present one is {partition.leader_epoch}",
        )
    return topic, partition


def _take_out(
    image: Image, broker_id: BrokerId, topic: TopicImage, partition: PartitionImage
) -> MetadataRecord | None:
    """It is damaged: nobody counts on it any more, nor lets it in by what it had before."""
    state = PartitionState.of(topic.topic_id, partition)
    sure = (*partition.in_sync_replicas, *partition.eligible_replicas)
    if broker_id not in (*sure, *partition.last_known_eligible):
        state.is_renewed = True
        return state.record()
    # Who may hold everything counts only where nobody is sure to.
    holding = sure or partition.last_known_eligible
    if all(each == broker_id for each in holding):
        raise TidelogError(
            ErrorCode.NO_ELIGIBLE_LEADER,
            tried=_tried(broker_id, topic, partition),
            happened="no other replica is known to hold every acknowledged record",
            hint="Its files are kept as they are. Another replica leads at the price of what only "
            "this one holds: `tidelog partition elect-leaders --unclean`, once its broker is "
            "stopped.",
        )
    state.lose((broker_id,))
    state.last_known = tuple(each for each in state.last_known if each != broker_id)
    state.settle(ReplicaView(image.brokers, partition), in_sync_min(topic))
    return state.record()


def _step_back(
    image: Image, broker_id: BrokerId, topic: TopicImage, partition: PartitionImage
) -> MetadataRecord | None:
    """It is not served for now: another one leads, if one can, and nobody waits for it."""
    if broker_id not in partition.in_sync_replicas:
        return None
    view = ReplicaView(image.brokers, partition)
    state = PartitionState.of(topic.topic_id, partition)
    others = tuple(each for each in state.in_sync if each != broker_id)
    if partition.leader_id in (broker_id, NO_LEADER):
        able = [each for each in others if view.is_usable(each)]
        able = able or [each for each in state.eligible if view.is_usable(each)][:1]
        if not able:
            raise TidelogError(
                ErrorCode.NO_ELIGIBLE_LEADER,
                tried=_tried(broker_id, topic, partition),
                happened="no other replica that is known to hold every acknowledged record is "
                "alive",
                hint="Start the brokers of the other replicas, or mend the disk: its broker opens "
                "the log again by itself.",
            )
        others, state.leader_id = tuple(able), NO_LEADER
    state.set_in_sync(others, in_sync_min(topic))
    state.settle(view, in_sync_min(topic))
    return state.record()


def _tried(broker_id: BrokerId, topic: TopicImage, partition: PartitionImage) -> str:
    return f"take broker {broker_id} out of {topic.name}-{partition.partition}"
