"""Positions of readers as messages, both ends; and what a reader has to leave out."""

from collections.abc import Iterable

from tidelog.v1 import fetch_pb2
from tidelog.wire.batch import AbortedStretch
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, ProducerId
from tidelog.wire.refusals import validate_topic_id


def position_message(position: FetchPosition) -> fetch_pb2.FetchPosition:
    """Where one partition is read from."""
    return fetch_pb2.FetchPosition(
        topic_id=position.topic_id,
        partition=position.partition,
        leader_epoch=position.leader_epoch,
        fetch_offset=position.fetch_offset,
        last_fetched_epoch=position.last_fetched_epoch,
        max_bytes=position.max_bytes,
        stays_here=position.stays_here,
    )


def read_position(message: fetch_pb2.FetchPosition) -> FetchPosition:
    """Where one partition is read from."""
    return FetchPosition(
        topic_id=validate_topic_id(message.topic_id, tried="fetch"),
        partition=PartitionId(message.partition),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        fetch_offset=Offset(message.fetch_offset),
        last_fetched_epoch=LeaderEpoch(message.last_fetched_epoch),
        max_bytes=message.max_bytes,
        stays_here=message.stays_here,
    )


def read_stretches(told: Iterable[fetch_pb2.AbortedTransaction]) -> tuple[AbortedStretch, ...]:
    """What a reader of committed records leaves out of an answer."""
    return tuple(
        AbortedStretch(ProducerId(each.producer_id), Offset(each.first_offset)) for each in told
    )
