"""What is said of partitions that are not served here: to clients, to operators.

Owns the words only; it must never decide whether a partition is served.
"""

from typing import Final

import msgspec

from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey, TopicId

STOPPED: Final = (ErrorCode.STORAGE_CORRUPT, ErrorCode.STORAGE_FAILED)


class ReplicaFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a replica that is placed here is not in order."""

    key: PartitionKey
    topic_name: str
    directory: str
    """Where its files are; empty: in none that can be used."""
    is_led: bool
    """By the image, though it has stopped."""
    code: ErrorCode
    tried: str
    happened: str
    """Names file and byte, where there are any."""
    hint: str
    """What an operator can do; empty: it comes back by itself."""


def failure_of(
    key: PartitionKey,
    error: TidelogError,
    *,
    topic_name: str,
    directory: str,
    is_led: bool,
    kept: TidelogError | None,
) -> ReplicaFailure:
    """`kept`: why the controller lets nobody take over; then that is what to do something about."""
    return ReplicaFailure(
        key=key,
        topic_name=topic_name,
        directory=directory,
        is_led=is_led,
        code=error.code,
        tried=error.tried,
        happened=error.happened if kept is None else f"{error.happened}; {kept.happened}",
        hint=error.hint if kept is None else kept.hint,
    )


def told_of(
    error: TidelogError, partition: PartitionImage | None, broker_id: BrokerId
) -> TidelogError:
    """What a client hears of a copy that has stopped: to come back, where another replica is about
    to lead. Not of what may have been stored."""
    if error.code not in STOPPED or partition is None:
        return error
    holding = (*partition.in_sync_replicas, *partition.eligible_replicas)
    if all(each == broker_id for each in holding):
        return error
    return TidelogError(
        ErrorCode.NOT_LEADER,
        tried=error.tried,
        happened=f"this broker's copy has stopped, another one takes over: {error.happened}",
    )


def opening(key: PartitionKey, directory: str) -> TidelogError:
    """What is heard of a partition of which the files are being opened."""
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"use {key}",
        happened=f"its files in {directory} are being opened",
    )


def missing(image: Image, topic_id: bytes, partition: int, *, tried: str) -> TidelogError:
    """What is heard of a partition that this broker does not lead."""
    topic = image.topics.get(TopicId(topic_id))
    if topic is None:
        return TidelogError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            tried=tried,
            happened=f"there is no topic of the id {topic_id.hex()}",
        )
    if partition >= len(topic.partitions):
        return TidelogError(
            ErrorCode.UNKNOWN_PARTITION,
            tried=tried,
            happened=f"topic {topic.name} has {len(topic.partitions)} partitions",
        )
    leader_id = topic.partitions[partition].leader_id
    return TidelogError(
        ErrorCode.NOT_LEADER,
        tried=tried,
        happened="no broker leads it at the moment"
        if leader_id == NO_LEADER
        else f"broker {leader_id} leads it",
    )
