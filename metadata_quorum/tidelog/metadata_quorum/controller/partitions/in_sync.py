"""Changes of in-sync sets, as leaders ask for them.

Pure. It must never let a broker into a set on the word of an older leader, nor a broker whose
process is another one than the leader saw, nor one that is fenced or stopping; and never empty a
set. A change that was made already is answered as success, since its answer may have been lost.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.metadata.broker_reports import InSyncChange, InSyncMember, InSyncResult
from tidelog.metadata.eligibility import has_directory, in_sync_min, is_able
from tidelog.metadata.image.image import Image, PartitionImage
from tidelog.metadata.records.entries import MetadataRecord
from tidelog.metadata.refusals.common import find_partition, refuse_duplicates, refuse_too_many
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.state import PartitionState, ReplicaView
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, PartitionEpoch
from tidelog.wire.refusals import invalid

CHANGES_MAX: Final = 10_000


def check_broker_epoch(
    image: Image, broker_id: BrokerId, epoch: BrokerEpoch, *, tried: str
) -> None:
    """STALE_BROKER_EPOCH unless the registration is the present one."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        present = "it is not registered" if broker is None else f"it has epoch {broker.epoch} now"
        raise TidelogError(
            ErrorCode.STALE_BROKER_EPOCH,
            tried=tried,
            happened=f"broker {broker_id} sent epoch {epoch}, {present}",
        )


def alter_partitions(
    image: Image, broker_id: BrokerId, broker_epoch: BrokerEpoch, changes: Sequence[InSyncChange]
) -> Decision[tuple[InSyncResult, ...]]:
    """Each change on its own; completes reassignments whose replicas have all come."""
    tried = f"change in-sync sets for broker {broker_id}"
    check_broker_epoch(image, broker_id, broker_epoch, tried=tried)
    refuse_too_many(len(changes), CHANGES_MAX, tried=tried, what="partitions")
    keys = [f"{change.topic_id.hex()}-{change.partition}" for change in changes]
    refuse_duplicates(keys, tried=tried, what="partition")
    records: list[MetadataRecord] = []
    results: list[InSyncResult] = []
    for change in changes:
        try:
            result, record = _alter(image, broker_id, change)
        except TidelogError as error:
            results.append(_refused(image, change, error))
            continue
        results.append(result)
        if record is not None:
            records.append(record)
    return Decision(records=tuple(records), answer=tuple(results))


def _alter(
    image: Image, broker_id: BrokerId, change: InSyncChange
) -> tuple[InSyncResult, MetadataRecord | None]:
    tried = f"change the in-sync set of {change.topic_id.hex()}-{change.partition}"
    topic, partition = find_partition(image, change.topic_id, change.partition, tried=tried)
    tried = f"change the in-sync set of {topic.name}-{change.partition}"
    _check_leader(partition, broker_id, change, tried)
    wanted = [member.broker_id for member in change.members]
    state = PartitionState.of(topic.topic_id, partition)
    is_same_set = sorted(wanted) == sorted(partition.in_sync_replicas)
    is_repeated = change.partition_epoch < partition.partition_epoch and is_same_set
    if is_repeated:
        return _result(change, state), None
    if change.partition_epoch != partition.partition_epoch:
        raise TidelogError(
            ErrorCode.STALE_PARTITION_EPOCH,
            tried=tried,
            happened=f"it was decided at partition epoch {change.partition_epoch}, "
            f"the present one is {partition.partition_epoch}",
        )
    _check_members(image, partition, broker_id, change, tried)
    # Its leader lives and has begun its epoch: nobody else is asked what he has.
    state.last_known = ()
    if not is_same_set:
        state.set_in_sync(wanted, in_sync_min(topic))
    if change.is_recovered_unclean:
        state.recover_unclean()
    state.is_renewed = change.is_withdrawal
    state.finish_reassignment(
        ReplicaView(image.brokers, partition), in_sync_min(topic), is_flushed=change.is_flushed
    )
    return _result(change, state), state.record()


def _check_leader(
    partition: PartitionImage, broker_id: BrokerId, change: InSyncChange, tried: str
) -> None:
    if change.leader_epoch < partition.leader_epoch:
        raise TidelogError(
            ErrorCode.FENCED_LEADER_EPOCH,
            tried=tried,
            happened=f"leader epoch {change.leader_epoch} is over, "
            f"the present one is {partition.leader_epoch}",
        )
    if change.leader_epoch > partition.leader_epoch:
        raise TidelogError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            tried=tried,
            happened=f"leader epoch {change.leader_epoch} was never given, "
            f"the present one is {partition.leader_epoch}",
        )
    if partition.leader_id != broker_id:
        raise TidelogError(
            ErrorCode.NOT_LEADER,
            tried=tried,
            happened=f"broker {partition.leader_id} leads it, not {broker_id}",
        )


def _check_members(
    image: Image, partition: PartitionImage, broker_id: BrokerId, change: InSyncChange, tried: str
) -> None:
    wanted = [member.broker_id for member in change.members]
    if broker_id not in wanted:
        raise invalid(tried, "the set does not hold its leader")
    if len(dict.fromkeys(wanted)) < len(wanted):
        raise invalid(tried, "the set holds a broker twice")
    for member in change.members:
        if member.broker_id not in partition.replicas:
            raise invalid(tried, f"broker {member.broker_id} holds no replica of it")
        why = _why_not(image, partition, member)
        if why:
            # To a leader it means: your metadata is behind; wait for it and decide again.
            raise TidelogError(
                ErrorCode.STALE_PARTITION_EPOCH,
                tried=tried,
                happened=f"broker {member.broker_id} {why}",
            )


def _why_not(image: Image, partition: PartitionImage, member: InSyncMember) -> str:
    """Why the broker cannot be in sync; empty: it can."""
    broker = image.brokers.get(member.broker_id)
    if broker is None:
        return "is not registered"
    if broker.epoch != member.broker_epoch:
        return f"has epoch {broker.epoch}, not {member.broker_epoch}: it was started anew"
    if member.broker_id in partition.in_sync_replicas:
        return ""
    if not is_able(broker):
        return "is fenced" if broker.is_fenced else "is stopping"
    if not has_directory(broker, partition.directory_of(member.broker_id)):
        return "has lost the directory of its replica"
    return ""


def _result(change: InSyncChange, state: PartitionState) -> InSyncResult:
    grown = 0 if state.record() is None else 1
    return InSyncResult(
        topic_id=change.topic_id,
        partition=change.partition,
        partition_epoch=PartitionEpoch(state.before.partition_epoch + grown),
        in_sync_replicas=state.in_sync,
    )


def _refused(image: Image, change: InSyncChange, error: TidelogError) -> InSyncResult:
    """With the present state, where there is one, so that the leader need not wait to learn it."""
    topic = image.topics.get(change.topic_id)
    if topic is None or not 0 <= change.partition < len(topic.partitions):
        return InSyncResult(
            topic_id=change.topic_id,
            partition=change.partition,
            error=error,
            partition_epoch=PartitionEpoch(-1),
        )
    present = topic.partitions[change.partition]
    return InSyncResult(
        topic_id=change.topic_id,
        partition=change.partition,
        error=error,
        partition_epoch=present.partition_epoch,
        in_sync_replicas=present.in_sync_replicas,
    )
