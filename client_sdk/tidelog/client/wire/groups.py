"""The group contract as the engine sees it: partitions by name, for its user.

Owns what the engine's effects mean as values of the contract, and what those mean to the engine;
`contract.groups` turns them into protobuf. It must never decide anything.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

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
from tidelog.contract.groups import (
    COMMIT_OFFSETS,
    FETCH_OFFSETS,
    GROUP_HEARTBEAT,
    commit_message,
    fetch_message,
    heartbeat_message,
    read_commit_answer,
    read_fetch_answer,
    read_heartbeat_answer,
)
from tidelog.v1 import coordinator_pb2, groups_pb2
from tidelog.wire.calls import groups as contract
from tidelog.wire.calls.groups import Assignor, CommitOffsets, FetchOffsets, Heartbeat, StoredOffset
from tidelog.wire.errors import ErrorCode, TidelogError

FIND_COORDINATORS: Final = "/tidelog.v1.CoordinatorService/FindCoordinators"

ASSIGNORS: Final = {"uniform": Assignor.UNIFORM, "range": Assignor.RANGE}


class MemberDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a member says of itself when it joins, beside what its core decides."""

    group: str
    member_id: str
    group_instance_id: str = ""
    rack: str = ""
    session_timeout_ms: int = 0
    """0: the group's setting."""
    rebalance_timeout_ms: int = 0
    assignor: Assignor = Assignor.UNSPECIFIED


def find_coordinators_request(
    names: Iterable[str],
    kind: coordinator_pb2.CoordinatorKind.ValueType = coordinator_pb2.COORDINATOR_KIND_GROUP,
) -> bytes:
    """Asks any broker; by default for the coordinators of groups."""
    return coordinator_pb2.FindCoordinatorsRequest(kind=kind, keys=names).SerializeToString()


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


def heartbeat_of(effect: SendHeartbeat, details: MemberDetails) -> Heartbeat:
    """What the member says of itself goes with its subscription."""
    beat, wish = effect.heartbeat, effect.heartbeat.subscription
    joins = wish is not None
    return Heartbeat(
        group=details.group,
        member_id=details.member_id,
        member_epoch=beat.member_epoch,
        heartbeat_sequence=effect.number,
        group_instance_id=details.group_instance_id,
        rack=details.rack if joins else None,
        session_timeout_ms=details.session_timeout_ms or None if joins else None,
        rebalance_timeout_ms=details.rebalance_timeout_ms if joins else None,
        subscription=None if wish is None else replace(wish, assignor=details.assignor),
        owned=None if beat.owned is None else tuple(each.key for each in beat.owned),
    )


def heartbeat_came(effect: SendHeartbeat, answer: bytes | TidelogError) -> HeartbeatAnswered:
    """What came of a heartbeat."""
    if not isinstance(answer, TidelogError):
        found = groups_pb2.GroupHeartbeatResponse.FromString(answer)
        told = read_heartbeat_answer(found, read_error)
    else:
        told = answer
    if isinstance(told, TidelogError):
        return HeartbeatAnswered(number=effect.number, answer=HeartbeatAnswer(error=told))
    return HeartbeatAnswered(
        number=effect.number,
        answer=HeartbeatAnswer(
            member_epoch=told.member_epoch,
            heartbeat_interval_ms=told.heartbeat_interval_ms,
            session_timeout_ms=told.session_timeout_ms,
            assignment=None if told.assignment is None else tuple(map(_named, told.assignment)),
            is_idle=told.is_idle,
        ),
    )


def _named(assigned: contract.AssignedPartition) -> AssignedPartition:
    return AssignedPartition(
        topic_partition=TopicPartition(assigned.topic_name, assigned.key.partition),
        topic_id=assigned.key.topic_id,
        partition_assignment_epoch=assigned.partition_assignment_epoch,
    )


def commit_of(effect: SendCommit, group: str) -> CommitOffsets:
    """Offsets to store."""
    return CommitOffsets(
        group=group,
        member_id=effect.member_id,
        member_epoch=effect.member_epoch,
        offsets=tuple(
            contract.OffsetToCommit(
                key=each.key,
                committed_offset=each.committed_offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
            )
            for each in effect.offsets
        ),
    )


def commit_came(effect: SendCommit, answer: bytes | TidelogError) -> CommitAnswered:
    """What became of each."""
    if isinstance(answer, TidelogError):
        return CommitAnswered(number=effect.number, error=answer)
    found = groups_pb2.CommitOffsetsResponse.FromString(answer)
    told = read_commit_answer(found, read_error)
    if not isinstance(told, TidelogError) and len(told.errors) != len(effect.offsets):
        told = _malformed("commit offsets", f"{len(told.errors)} results")
    if isinstance(told, TidelogError):
        return CommitAnswered(number=effect.number, error=told, throttle_ms=found.throttle_ms)
    return CommitAnswered(number=effect.number, results=told.errors, throttle_ms=told.throttle_ms)


def lookup_of(effect: SendLookup, group: str) -> FetchOffsets:
    """Asks for committed offsets."""
    return FetchOffsets(
        group=group,
        keys=tuple(each.key for each in effect.partitions),
        require_stable=effect.require_stable,
        member_id=effect.member_id,
        member_epoch=effect.member_epoch,
    )


def lookup_came(effect: SendLookup, answer: bytes | TidelogError) -> LookupAnswered:
    """What is committed; partitions that were not asked for are left out."""
    if isinstance(answer, TidelogError):
        return LookupAnswered(number=effect.number, error=answer)
    told = read_fetch_answer(groups_pb2.FetchOffsetsResponse.FromString(answer), read_error)
    if isinstance(told, TidelogError):
        return LookupAnswered(number=effect.number, error=told)
    asked = {each.key: each for each in effect.partitions}
    found = [(asked[key], stored) for key, stored in told.offsets if key in asked]
    if len(found) != len(asked):
        error = _malformed("look committed offsets up", f"{len(found)} of {len(asked)} offsets")
        return LookupAnswered(number=effect.number, error=error)
    return LookupAnswered(
        number=effect.number,
        offsets=tuple(_committed(partition, stored) for partition, stored in found),
    )


def _committed(
    partition: GroupPartition, stored: StoredOffset | TidelogError | None
) -> CommittedOffset:
    name, topic_id = partition.topic_partition, partition.topic_id
    if isinstance(stored, TidelogError):
        return CommittedOffset(topic_partition=name, topic_id=topic_id, error=stored)
    if stored is None:
        return CommittedOffset(topic_partition=name, topic_id=topic_id)
    return CommittedOffset(
        topic_partition=name,
        topic_id=topic_id,
        committed_offset=stored.committed_offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
    )


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
            said = heartbeat_message(heartbeat_of(effect, details))
            return GROUP_HEARTBEAT, said.SerializeToString()
        case SendCommit():
            done = commit_message(commit_of(effect, details.group))
            return COMMIT_OFFSETS, done.SerializeToString()
        case SendLookup():
            wanted = fetch_message(lookup_of(effect, details.group))
            return FETCH_OFFSETS, wanted.SerializeToString()


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
