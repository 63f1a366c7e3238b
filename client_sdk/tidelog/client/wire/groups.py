"""The group contract as the engine sees it, in protobuf.

Owns the conversion of a member's calls. It must never decide anything.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidelog.client.engine.group.messages import (
    AssignedPartition,
    CommitAnswered,
    CommittedOffset,
    CoordinatorFailed,
    CoordinatorFound,
    GroupPartition,
    HeartbeatAnswer,
    HeartbeatAnswered,
    LookupAnswered,
    SendCommit,
    SendHeartbeat,
    SendLookup,
)
from tidelog.client.types.records import TopicPartition
from tidelog.client.wire.calls import read_error
from tidelog.v1 import common_pb2, coordinator_pb2, errors_pb2, groups_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

FIND_COORDINATORS: Final = "/tidelog.v1.CoordinatorService/FindCoordinators"
GROUP_HEARTBEAT: Final = "/tidelog.v1.GroupService/GroupHeartbeat"
COMMIT_OFFSETS: Final = "/tidelog.v1.GroupService/CommitOffsets"
FETCH_OFFSETS: Final = "/tidelog.v1.GroupService/FetchOffsets"

ASSIGNORS: Final = {
    "uniform": groups_pb2.ASSIGNOR_UNIFORM,
    "range": groups_pb2.ASSIGNOR_RANGE,
}


class MemberDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a member says of itself when it joins, beside what its core decides."""

    group: str
    member_id: str
    group_instance_id: str = ""
    rack: str = ""
    session_timeout_ms: int = 0
    """0: the group's setting."""
    rebalance_timeout_ms: int = 0
    assignor: str = ""


def find_coordinator_request(group: str) -> bytes:
    """Asks any broker."""
    return coordinator_pb2.FindCoordinatorsRequest(
        kind=coordinator_pb2.COORDINATOR_KIND_GROUP, keys=[group]
    ).SerializeToString()


def coordinator_came(answer: bytes | TidelogError) -> CoordinatorFound | CoordinatorFailed:
    """What came of FindCoordinator."""
    if isinstance(answer, TidelogError):
        return CoordinatorFailed(error=answer)
    places = coordinator_pb2.FindCoordinatorsResponse.FromString(answer).coordinators
    if len(places) != 1:
        return CoordinatorFailed(error=_malformed("find a coordinator", f"{len(places)} places"))
    if places[0].error.code:
        return CoordinatorFailed(error=read_error(places[0].error))
    if not places[0].address:
        return CoordinatorFailed(error=_malformed("find a coordinator", "no address"))
    return CoordinatorFound(address=places[0].address)


def heartbeat_request(effect: SendHeartbeat, details: MemberDetails) -> bytes:
    """A heartbeat; what the member says of itself goes with its subscription."""
    beat = effect.heartbeat
    request = groups_pb2.GroupHeartbeatRequest(
        group=details.group,
        member_id=details.member_id,
        member_epoch=beat.member_epoch,
        group_instance_id=details.group_instance_id,
        heartbeat_sequence=effect.number,
    )
    if beat.subscription is not None:
        request.rack = details.rack
        request.rebalance_timeout_ms = details.rebalance_timeout_ms
        if details.session_timeout_ms:
            request.session_timeout_ms = details.session_timeout_ms
        request.subscription.topics.extend(beat.subscription.topics)
        request.subscription.topic_pattern = beat.subscription.pattern
        request.subscription.assignor = ASSIGNORS.get(
            details.assignor, groups_pb2.ASSIGNOR_UNSPECIFIED
        )
    if beat.owned is not None:
        request.owned.topics.extend(_by_topic(beat.owned))
        request.owned.SetInParent()
    return request.SerializeToString()


def heartbeat_came(effect: SendHeartbeat, answer: bytes | TidelogError) -> HeartbeatAnswered:
    """What came of a heartbeat."""
    if isinstance(answer, TidelogError):
        return HeartbeatAnswered(number=effect.number, answer=HeartbeatAnswer(error=answer))
    told = groups_pb2.GroupHeartbeatResponse.FromString(answer)
    if told.error.code:
        failed = HeartbeatAnswer(error=read_error(told.error))
        return HeartbeatAnswered(number=effect.number, answer=failed)
    assignment = None
    if told.HasField("assignment"):
        assignment = tuple(
            AssignedPartition(
                topic_partition=TopicPartition(each.topic_name, each.partition),
                topic_id=each.topic_id,
                partition_assignment_epoch=each.partition_assignment_epoch,
            )
            for each in told.assignment.partitions
        )
    return HeartbeatAnswered(
        number=effect.number,
        answer=HeartbeatAnswer(
            member_epoch=told.member_epoch,
            heartbeat_interval_ms=told.heartbeat_interval_ms,
            session_timeout_ms=told.session_timeout_ms,
            assignment=assignment,
            is_idle=told.is_idle,
        ),
    )


def commit_request(effect: SendCommit, group: str) -> bytes:
    """Offsets to store."""
    return groups_pb2.CommitOffsetsRequest(
        group=group,
        member_id=effect.member_id,
        member_epoch=effect.member_epoch,
        offsets=[
            groups_pb2.OffsetCommit(
                topic_id=each.topic_id,
                partition=each.topic_partition.partition,
                committed_offset=each.committed_offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
            )
            for each in effect.offsets
        ],
    ).SerializeToString()


def commit_came(effect: SendCommit, answer: bytes | TidelogError) -> CommitAnswered:
    """What became of each."""
    if isinstance(answer, TidelogError):
        return CommitAnswered(number=effect.number, error=answer)
    told = groups_pb2.CommitOffsetsResponse.FromString(answer)
    error = _error_in(told.error)
    if error is None and len(told.results) != len(effect.offsets):
        error = _malformed("commit offsets", f"{len(told.results)} results")
    if error is not None:
        return CommitAnswered(number=effect.number, error=error, throttle_ms=told.throttle_ms)
    return CommitAnswered(
        number=effect.number,
        results=tuple(_error_in(each.error) for each in told.results),
        throttle_ms=told.throttle_ms,
    )


def lookup_request(effect: SendLookup, group: str) -> bytes:
    """Asks for committed offsets."""
    return groups_pb2.FetchOffsetsRequest(
        group=group,
        topics=_by_topic(effect.partitions),
        require_stable=effect.require_stable,
        member_id=effect.member_id,
        member_epoch=effect.member_epoch,
    ).SerializeToString()


def lookup_came(effect: SendLookup, answer: bytes | TidelogError) -> LookupAnswered:
    """What is committed; partitions that were not asked for are left out."""
    if isinstance(answer, TidelogError):
        return LookupAnswered(number=effect.number, error=answer)
    told = groups_pb2.FetchOffsetsResponse.FromString(answer)
    if told.error.code:
        return LookupAnswered(number=effect.number, error=read_error(told.error))
    asked = {each.key: each for each in effect.partitions}
    found = [each for each in told.offsets if (each.topic_id, each.partition) in asked]
    if len(found) != len(asked):
        error = _malformed("look committed offsets up", f"{len(found)} of {len(asked)} offsets")
        return LookupAnswered(number=effect.number, error=error)
    return LookupAnswered(
        number=effect.number,
        offsets=tuple(
            CommittedOffset(
                topic_partition=asked[each.topic_id, each.partition].topic_partition,
                topic_id=each.topic_id,
                committed_offset=each.committed_offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                error=read_error(each.error)
                if each.HasField("error") and each.error.code
                else None,
            )
            for each in found
        ),
    )


def _error_in(error: errors_pb2.Error) -> TidelogError | None:
    """An error that is not set has no code."""
    return read_error(error) if error.code else None


def _by_topic(partitions: Iterable[GroupPartition]) -> list[common_pb2.TopicPartitions]:
    numbers: dict[bytes, list[int]] = {}
    for each in partitions:
        numbers.setdefault(each.topic_id, []).append(each.topic_partition.partition)
    return [
        common_pb2.TopicPartitions(topic_id=topic_id, partitions=sorted(found))
        for topic_id, found in numbers.items()
    ]


def _malformed(tried: str, happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN, tried=tried, happened=f"the broker answered with {happened}"
    )


def request_of(
    effect: SendHeartbeat | SendCommit | SendLookup, details: MemberDetails
) -> tuple[str, bytes]:
    """Method and request."""
    match effect:
        case SendHeartbeat():
            return GROUP_HEARTBEAT, heartbeat_request(effect, details)
        case SendCommit():
            return COMMIT_OFFSETS, commit_request(effect, details.group)
        case SendLookup():
            return FETCH_OFFSETS, lookup_request(effect, details.group)


def answer_came(
    effect: SendHeartbeat | SendCommit | SendLookup, answer: bytes | TidelogError
) -> HeartbeatAnswered | CommitAnswered | LookupAnswered:
    """What came of it."""
    match effect:
        case SendHeartbeat():
            return heartbeat_came(effect, answer)
        case SendCommit():
            return commit_came(effect, answer)
        case SendLookup():
            return lookup_came(effect, answer)
