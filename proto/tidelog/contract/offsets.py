"""ListOffsets, both ends: questions for offsets and their answers."""

from tidelog.contract.errors import ReadError, error_in, fill_error, read_error
from tidelog.v1 import metadata_pb2
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetQuery, OffsetSpec
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId
from tidelog.wire.refusals import invalid, validate_topic_id

_SPECS = frozenset(each.value for each in OffsetSpec)


def query_message(query: OffsetQuery) -> metadata_pb2.OffsetQuery:
    """One question."""
    return metadata_pb2.OffsetQuery(
        topic_id=query.topic_id,
        partition=query.partition,
        leader_epoch=query.leader_epoch,
        spec=metadata_pb2.OffsetSpec.ValueType(query.spec),
        timestamp_ms=query.timestamp_ms,
    )


def read_query(message: metadata_pb2.OffsetQuery) -> OffsetQuery:
    """One question; INVALID_ARGUMENT for one that cannot be meant."""
    if message.spec not in _SPECS:
        raise invalid(
            "list offsets",
            f"the offset spec is number {message.spec}",
            "Set `spec` to EARLIEST, LATEST, AT_TIME or MAX_TIMESTAMP.",
        )
    return OffsetQuery(
        topic_id=validate_topic_id(message.topic_id, tried="list offsets"),
        partition=PartitionId(message.partition),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        spec=OffsetSpec(message.spec),
        timestamp_ms=message.timestamp_ms,
    )


def fill_answer(message: metadata_pb2.ListOffsetsResponse, answer: OffsetAnswer) -> None:
    """Add one answer."""
    each = message.answers.add(
        topic_id=answer.topic_id,
        partition=answer.partition,
        offset=answer.offset,
        timestamp_ms=answer.timestamp_ms,
        leader_epoch=answer.leader_epoch,
    )
    if answer.error is not None:
        fill_error(each.error, answer.error)


def read_answer(message: metadata_pb2.OffsetAnswer, read: ReadError = read_error) -> OffsetAnswer:
    """One answer."""
    return OffsetAnswer(
        topic_id=TopicId(message.topic_id),
        partition=PartitionId(message.partition),
        error=error_in(message.error, read),
        offset=Offset(message.offset),
        timestamp_ms=message.timestamp_ms,
        leader_epoch=LeaderEpoch(message.leader_epoch),
    )
