"""Converts the messages of ReplicaService for both ends.

What comes from the wire is checked here as far as a number by itself can be wrong; whether it fits
the log is the session's business.
"""

from typing import Final

from tidelog.broker.replication.shared.messages import (
    NO_EPOCH,
    Divergence,
    FetchAnswer,
    FetchAsk,
    FollowerPosition,
    Lane,
    PartitionNews,
)
from tidelog.contract.errors import fill_error, read_error
from tidelog.ports import Stream
from tidelog.v1 import replica_pb2
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicId,
)
from tidelog.wire.refusals import invalid, validate_topic_id

REPLICA_FETCH: Final = "/tidelog.v1.ReplicaService/ReplicaFetch"


TRIED: Final = "pull copies"


_LANES: Final = {
    replica_pb2.REPLICA_LANE_LIVE: Lane.LIVE,
    replica_pb2.REPLICA_LANE_CATCH_UP: Lane.CATCH_UP,
}


_LANE_NUMBERS: Final = {lane: number for number, lane in _LANES.items()}


def encode_ask(ask: FetchAsk) -> bytes:
    """`ReplicaFetchRequest`."""
    message = replica_pb2.ReplicaFetchRequest(
        session_id=ask.session_id,
        session_sequence=ask.session_sequence,
        confirmed_answer=ask.confirmed_answer,
        max_bytes=ask.max_bytes,
    )
    if ask.lane is not None:
        message.cluster_id = ask.cluster_id
        message.broker_id = ask.broker_id
        message.broker_epoch = ask.broker_epoch
        message.lane = _LANE_NUMBERS[ask.lane]
    for each in ask.positions:
        message.positions.add(
            topic_id=each.key.topic_id,
            partition=each.key.partition,
            leader_epoch=each.leader_epoch,
            log_end_offset=each.log_end_offset,
            flushed_offset=each.flushed_offset,
            last_epoch=each.last_epoch,
            log_start_offset=each.log_start_offset,
            partition_epoch=each.partition_epoch,
            log_start_epoch=_encode_start_epoch(each.log_start_epoch),
        )
    for key in ask.removed:
        message.removed.add(topic_id=key.topic_id, partition=key.partition)
    return message.SerializeToString()


def decode_answer(data: bytes) -> FetchAnswer:
    """`ReplicaFetchResponse`."""
    message = replica_pb2.ReplicaFetchResponse.FromString(data)
    return FetchAnswer(
        session_id=message.session_id,
        session_sequence=message.session_sequence,
        answer_sequence=message.answer_sequence,
        partitions=tuple(_read_news(each) for each in message.partitions),
        is_full_start_wanted=message.is_full_start_wanted,
    )


def _read_news(message: replica_pb2.ReplicaBatches) -> PartitionNews:
    return PartitionNews(
        key=PartitionKey(TopicId(message.topic_id), PartitionId(message.partition)),
        error=read_error(message.error) if message.HasField("error") else None,
        leader_epoch=LeaderEpoch(message.leader_epoch),
        batches=message.batches,
        fetch_sum=message.fetch_sum,
        high_watermark=Offset(message.high_watermark),
        log_start_offset=Offset(message.log_start_offset),
        log_start_epoch=_read_start_epoch(message),
        is_head_missing=message.is_head_missing,
        divergence=Divergence(
            LeaderEpoch(message.divergence.leader_epoch), Offset(message.divergence.end_offset)
        )
        if message.HasField("divergence")
        else None,
        move_to_lane=_LANES.get(message.move_to_lane),
    )


def decode_ask(data: bytes) -> FetchAsk:
    """`ReplicaFetchRequest`; INVALID_ARGUMENT for numbers that no follower sends."""
    message = replica_pb2.ReplicaFetchRequest.FromString(data)
    if not message.session_id or not message.session_sequence:
        raise invalid(TRIED, "session_id and session_sequence begin at 1")
    return FetchAsk(
        session_id=message.session_id,
        session_sequence=message.session_sequence,
        positions=tuple(_read_position(each) for each in message.positions),
        removed=tuple(_read_key(each.topic_id, each.partition) for each in message.removed),
        confirmed_answer=message.confirmed_answer,
        max_bytes=message.max_bytes,
        cluster_id=message.cluster_id,
        broker_id=BrokerId(message.broker_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        lane=_LANES.get(message.lane),
    )


def encode_answer(answer: FetchAnswer) -> bytes:
    """`ReplicaFetchResponse`."""
    message = replica_pb2.ReplicaFetchResponse(
        session_id=answer.session_id,
        session_sequence=answer.session_sequence,
        answer_sequence=answer.answer_sequence,
        is_full_start_wanted=answer.is_full_start_wanted,
    )
    for news in answer.partitions:
        _fill_news(message.partitions.add(), news)
    return message.SerializeToString()


def _fill_news(message: replica_pb2.ReplicaBatches, news: PartitionNews) -> None:
    message.topic_id = news.key.topic_id
    message.partition = news.key.partition
    message.leader_epoch = news.leader_epoch
    message.high_watermark = news.high_watermark
    message.log_start_offset = news.log_start_offset
    if news.log_start_epoch != NO_EPOCH:
        message.log_start_epoch = news.log_start_epoch
    message.is_head_missing = news.is_head_missing
    if news.batches:
        message.batches = news.batches
        message.fetch_sum = news.fetch_sum
    if news.error is not None:
        fill_error(message.error, news.error)
    if news.divergence is not None:
        message.divergence.leader_epoch = news.divergence.leader_epoch
        message.divergence.end_offset = news.divergence.end_offset
    if news.move_to_lane is not None:
        message.move_to_lane = _LANE_NUMBERS[news.move_to_lane]


def _read_key(topic_id: bytes, partition: int) -> PartitionKey:
    return PartitionKey(validate_topic_id(topic_id, tried=TRIED), PartitionId(partition))


def _read_position(message: replica_pb2.ReplicaPosition) -> FollowerPosition:
    start, flushed, end = message.log_start_offset, message.flushed_offset, message.log_end_offset
    if not (0 <= start <= end and 0 <= flushed <= end):
        raise invalid(TRIED, f"a log from {start} to {end}, flushed up to {flushed}, cannot be")
    if message.leader_epoch < 0 or message.last_epoch < -1:
        raise invalid(TRIED, f"leader epochs {message.leader_epoch} and {message.last_epoch}")
    return FollowerPosition(
        key=_read_key(message.topic_id, message.partition),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        log_end_offset=Offset(end),
        flushed_offset=Offset(flushed),
        last_epoch=LeaderEpoch(message.last_epoch),
        log_start_offset=Offset(start),
        partition_epoch=PartitionEpoch(message.partition_epoch),
        log_start_epoch=_read_start_epoch(message),
    )


def _encode_start_epoch(start_epoch: LeaderEpoch) -> int | None:
    """One that is not known is not told."""
    return None if start_epoch == NO_EPOCH else start_epoch


def _read_start_epoch(
    message: replica_pb2.ReplicaPosition | replica_pb2.ReplicaBatches,
) -> LeaderEpoch:
    """A broker of an earlier version tells none, and epoch 0 is one: absent is not known."""
    if not message.HasField("log_start_epoch") or message.log_start_epoch < 0:
        return NO_EPOCH
    return LeaderEpoch(message.log_start_epoch)


class FollowerEnd:
    """The stream in the room's own words."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def receive(self) -> FetchAsk | None:
        data = await self._stream.receive()
        return None if data is None else decode_ask(data)

    async def send(self, answer: FetchAnswer) -> None:
        await self._stream.send(encode_answer(answer))

    def cancel(self) -> None:
        self._stream.cancel()
