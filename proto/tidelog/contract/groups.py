"""GroupService, both ends: what a member sends and what its coordinator answers.

Owns what each message means. Requests are checked as they are read, since they come from outside;
answers are taken as they are. It must never decide anything of a group.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.contract.errors import ReadError, error_in, fill_error, read_error
from tidelog.contract.partitions import (
    by_topic,
    read_partition,
    refuse_too_many,
    refuse_twice,
    validate_partition,
    validate_partitions,
)
from tidelog.v1 import errors_pb2, groups_pb2, transactions_pb2
from tidelog.wire.calls.groups import (
    AssignedPartition,
    Assignor,
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
    OffsetToCommit,
    SendOffsets,
    StoredOffset,
    Subscription,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey, ProducerEpoch, ProducerId
from tidelog.wire.refusals import invalid

GROUP_HEARTBEAT: Final = "/tidelog.v1.GroupService/GroupHeartbeat"
COMMIT_OFFSETS: Final = "/tidelog.v1.GroupService/CommitOffsets"
FETCH_OFFSETS: Final = "/tidelog.v1.GroupService/FetchOffsets"
NOTHING_COMMITTED: Final = -1
RETRY_AFTER_MS: Final = 200
"""After so long a coordinator that is loading is asked again."""


def fill_group_error(message: errors_pb2.Error, error: TidelogError) -> None:
    """An error of a coordinator, with when to ask again."""
    fill_error(message, error)
    if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        message.retry_after_ms = RETRY_AFTER_MS


# -- heartbeats ------------------------------------------------------------------------------------


def heartbeat_message(request: Heartbeat) -> groups_pb2.GroupHeartbeatRequest:
    """What a member says."""
    message = groups_pb2.GroupHeartbeatRequest(
        group=request.group,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_sequence=request.heartbeat_sequence,
        group_instance_id=request.group_instance_id,
        takes_over=request.takes_over,
        rack=request.rack,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )
    if request.subscription is not None:
        message.subscription.SetInParent()
        message.subscription.topics.extend(request.subscription.topics)
        message.subscription.topic_pattern = request.subscription.topic_pattern
        message.subscription.assignor = groups_pb2.Assignor.ValueType(request.subscription.assignor)
    if request.owned is not None:
        message.owned.SetInParent()
        message.owned.topics.extend(by_topic(request.owned))
    return message


def read_heartbeat(message: groups_pb2.GroupHeartbeatRequest, *, partitions_max: int) -> Heartbeat:
    """What a member says; what it did not send stays None."""
    tried = f"send a heartbeat to group {message.group}"
    subscription = owned = None
    if message.HasField("subscription"):
        subscription = _read_subscription(message.subscription)
    if message.HasField("owned"):
        owned = validate_partitions(message.owned.topics, tried=tried, count_max=partitions_max)
    return Heartbeat(
        group=message.group,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        heartbeat_sequence=message.heartbeat_sequence,
        group_instance_id=message.group_instance_id,
        takes_over=message.takes_over,
        rack=message.rack if message.HasField("rack") else None,
        session_timeout_ms=message.session_timeout_ms or None,
        rebalance_timeout_ms=message.rebalance_timeout_ms or None,
        subscription=subscription,
        owned=owned,
    )


def _read_subscription(message: groups_pb2.Subscription) -> Subscription:
    if message.assignor not in groups_pb2.Assignor.values():
        raise invalid("join a group", f"the assignor is number {message.assignor}")
    return Subscription(
        topics=tuple(message.topics),
        topic_pattern=message.topic_pattern,
        assignor=Assignor(message.assignor),
    )


def fill_heartbeat_answer(
    message: groups_pb2.GroupHeartbeatResponse, answer: HeartbeatAnswer
) -> None:
    """What the coordinator tells."""
    message.member_epoch = answer.member_epoch
    message.heartbeat_interval_ms = answer.heartbeat_interval_ms
    message.group_epoch = answer.group_epoch
    message.assignment_epoch = answer.assignment_epoch
    message.session_timeout_ms = answer.session_timeout_ms
    message.is_idle = answer.is_idle
    if answer.assignment is not None:
        message.assignment.SetInParent()
        message.assignment.partitions.extend(assigned_message(each) for each in answer.assignment)


def assigned_message(assigned: AssignedPartition) -> groups_pb2.AssignedPartition:
    """A partition that a member owns."""
    return groups_pb2.AssignedPartition(
        topic_id=assigned.key.topic_id,
        partition=assigned.key.partition,
        partition_assignment_epoch=assigned.partition_assignment_epoch,
        topic_name=assigned.topic_name,
    )


def read_heartbeat_answer(
    message: groups_pb2.GroupHeartbeatResponse, read: ReadError = read_error
) -> HeartbeatAnswer | TidelogError:
    """What the coordinator tells, or why it tells nothing."""
    error = error_in(message.error, read)
    if error is not None:
        return error
    assignment = None
    if message.HasField("assignment"):
        assignment = tuple(
            AssignedPartition(
                read_partition(each.topic_id, each.partition),
                each.partition_assignment_epoch,
                each.topic_name,
            )
            for each in message.assignment.partitions
        )
    return HeartbeatAnswer(
        member_epoch=message.member_epoch,
        heartbeat_interval_ms=message.heartbeat_interval_ms,
        assignment=assignment,
        group_epoch=message.group_epoch,
        assignment_epoch=message.assignment_epoch,
        session_timeout_ms=message.session_timeout_ms,
        is_idle=message.is_idle,
    )


# -- commits ---------------------------------------------------------------------------------------


def commit_message(request: CommitOffsets) -> groups_pb2.CommitOffsetsRequest:
    """How far a group has read."""
    message = groups_pb2.CommitOffsetsRequest(
        group=request.group, member_id=request.member_id, member_epoch=request.member_epoch
    )
    for each in request.offsets:
        message.offsets.add(
            topic_id=each.key.topic_id,
            partition=each.key.partition,
            committed_offset=each.committed_offset,
            leader_epoch=each.leader_epoch,
            metadata=each.metadata,
        )
    return message


def read_commit(message: groups_pb2.CommitOffsetsRequest, *, partitions_max: int) -> CommitOffsets:
    """How far a group has read; no partition is named twice, no offset is below 0."""
    tried = f"commit offsets of group {message.group}"
    refuse_too_many(len(message.offsets), partitions_max, tried=tried)
    offsets = tuple(read_offset(each, tried=tried) for each in message.offsets)
    refuse_twice([each.key for each in offsets], tried=tried)
    _refuse_below_zero(offsets, tried=tried)
    return CommitOffsets(
        group=message.group,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        offsets=offsets,
    )


def _refuse_below_zero(offsets: Sequence[OffsetToCommit], *, tried: str) -> None:
    for place, each in enumerate(offsets):
        if each.committed_offset < 0:
            raise invalid(
                tried,
                f"offset {each.committed_offset} of partition {each.key.partition}, at place "
                f"{place} of the request, is below 0",
            )


def read_offset(
    message: groups_pb2.OffsetCommit | transactions_pb2.TransactionOffset, *, tried: str
) -> OffsetToCommit:
    """How far one partition was read."""
    return OffsetToCommit(
        key=validate_partition(message.topic_id, message.partition, tried=tried),
        committed_offset=Offset(message.committed_offset),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        metadata=message.metadata,
    )


def fill_commit_answer(
    message: groups_pb2.CommitOffsetsResponse, request: CommitOffsets, answer: CommitAnswer
) -> None:
    """What became of each offset."""
    message.throttle_ms = answer.throttle_ms
    for offset, error in zip(request.offsets, answer.errors, strict=True):
        each = message.results.add(topic_id=offset.key.topic_id, partition=offset.key.partition)
        if error is not None:
            fill_group_error(each.error, error)


def read_commit_answer(
    message: groups_pb2.CommitOffsetsResponse, read: ReadError = read_error
) -> CommitAnswer | TidelogError:
    """What became of each offset, or why none was looked at."""
    return error_in(message.error, read) or CommitAnswer(
        errors=tuple(error_in(each.error, read) for each in message.results),
        throttle_ms=message.throttle_ms,
    )


# -- offsets in a transaction ---------------------------------------------------------------------


def read_send_offsets(
    message: transactions_pb2.SendOffsetsRequest, *, partitions_max: int
) -> SendOffsets:
    """How far a group has read; no partition is named twice, no offset is below 0."""
    tried = f"send offsets of group {message.group} to transaction {message.transactional_id}"
    refuse_too_many(len(message.offsets), partitions_max, tried=tried)
    offsets = tuple(read_offset(each, tried=tried) for each in message.offsets)
    refuse_twice([each.key for each in offsets], tried=tried)
    _refuse_below_zero(offsets, tried=tried)
    if not message.HasField("identity"):
        # Unset it would read as the first producer's, 0@0.
        raise invalid(tried, "the request has no identity")
    return SendOffsets(
        transactional_id=message.transactional_id,
        producer_id=ProducerId(message.identity.producer_id),
        producer_epoch=ProducerEpoch(message.identity.producer_epoch),
        group=message.group,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        offsets=offsets,
    )


# -- committed offsets -----------------------------------------------------------------------------


def fetch_message(request: FetchOffsets) -> groups_pb2.FetchOffsetsRequest:
    """Which committed offsets are wanted."""
    return groups_pb2.FetchOffsetsRequest(
        group=request.group,
        topics=by_topic(request.keys),
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        require_stable=request.require_stable,
    )


def read_fetch(message: groups_pb2.FetchOffsetsRequest, *, partitions_max: int) -> FetchOffsets:
    """Which committed offsets are wanted."""
    tried = f"fetch the offsets of group {message.group}"
    return FetchOffsets(
        group=message.group,
        keys=validate_partitions(message.topics, tried=tried, count_max=partitions_max),
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        require_stable=message.require_stable,
    )


def fill_fetch_answer(message: groups_pb2.FetchOffsetsResponse, answer: FetchOffsetsAnswer) -> None:
    """What was committed."""
    for key, stored in answer.offsets:
        each = message.offsets.add(
            topic_id=key.topic_id,
            partition=key.partition,
            committed_offset=NOTHING_COMMITTED,
            leader_epoch=NOTHING_COMMITTED,
            commit_time_ms=NOTHING_COMMITTED,
        )
        if isinstance(stored, TidelogError):
            fill_group_error(each.error, stored)
        elif stored is not None:
            each.committed_offset = stored.committed_offset
            each.leader_epoch = stored.leader_epoch
            each.metadata = stored.metadata
            each.commit_time_ms = stored.commit_time_ms


def read_fetch_answer(
    message: groups_pb2.FetchOffsetsResponse, read: ReadError = read_error
) -> FetchOffsetsAnswer | TidelogError:
    """What was committed, or why nothing was looked up."""
    return error_in(message.error, read) or FetchOffsetsAnswer(
        offsets=tuple(_read_stored(each, read) for each in message.offsets)
    )


def _read_stored(
    message: groups_pb2.CommittedOffset, read: ReadError
) -> tuple[PartitionKey, StoredOffset | TidelogError | None]:
    key = read_partition(message.topic_id, message.partition)
    error = error_in(message.error, read)
    if error is not None or message.committed_offset < 0:
        return key, error
    return key, StoredOffset(
        committed_offset=Offset(message.committed_offset),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        metadata=message.metadata,
        commit_time_ms=message.commit_time_ms,
    )
