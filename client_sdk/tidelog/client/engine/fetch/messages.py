"""What goes into the consumer's core and what comes out of it.

Owns both closed unions and the values of the fetch contract as the engine sees them.
"""

import msgspec

from tidelog.client.engine.cluster.topic_messages import (
    FetchMetadata,
    MetadataArrived,
    MetadataFailed,
)
from tidelog.client.types.records import TopicPartition
from tidelog.wire.batch import NONE_LEFT_OUT, AbortedStretch
from tidelog.wire.calls.fetch import Divergence, FetchPosition
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetQuery
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset, PartitionId, TopicId


class PartitionBatches(msgspec.Struct, frozen=True, kw_only=True):
    """Whole batches of one partition, as they came."""

    topic_id: TopicId
    partition: PartitionId
    batches: bytes | memoryview = b""
    fetch_sum: int = 0
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    divergence: Divergence | None = None
    preferred_replica: int = -1
    """A replica that is nearer; the answering one reads no more for this position. -1: none."""
    leader_id: int | None = None
    """With an error: who leads in `leader_epoch`."""
    aborted: tuple[AbortedStretch, ...] = ()
    """What a reader of committed records leaves out of `batches`."""
    error: TidelogError | None = None


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """Verified bytes that wait for the user."""

    topic_partition: TopicPartition
    data: bytes
    first_offset: Offset
    """Records below it are skipped."""
    next_offset: Offset
    high_watermark: Offset
    leader_epoch: LeaderEpoch
    broker_id: int
    generation: int
    """Of the partition's position: a seek makes what was fetched before it void."""
    left_out: frozenset[int] = NONE_LEFT_OUT
    """Base offsets of batches of aborted transactions, for a reader of committed records."""


class StreamOpened(msgspec.Struct, frozen=True, kw_only=True):
    """The broker can be sent positions."""

    broker_id: int
    stream: int


class StreamBroken(msgspec.Struct, frozen=True, kw_only=True):
    """The broker was not reached, or its stream ended."""

    broker_id: int
    stream: int
    error: TidelogError


class FetchAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """Batches came."""

    broker_id: int
    stream: int
    session_epoch: int
    size_bytes: int
    partitions: tuple[PartitionBatches, ...]


class QueryOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a leader where partitions without a position begin."""

    broker_id: int
    address: str
    generations: tuple[int, ...]
    partitions: tuple[TopicPartition, ...]
    queries: tuple[OffsetQuery, ...]


class OffsetsArrived(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to QueryOffsets, in its order."""

    query: QueryOffsets
    answers: tuple[OffsetAnswer, ...]


class OffsetsFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The broker could not be asked."""

    query: QueryOffsets
    error: TidelogError


ConsumerMessage = (
    MetadataArrived
    | MetadataFailed
    | StreamOpened
    | StreamBroken
    | FetchAnswered
    | OffsetsArrived
    | OffsetsFailed
)


class OpenStream(msgspec.Struct, frozen=True, kw_only=True):
    """Reach the broker, then open; answer with StreamOpened or StreamBroken."""

    broker_id: int
    stream: int
    address: str


class SendFetch(msgspec.Struct, frozen=True, kw_only=True):
    """One request on the stream."""

    broker_id: int
    stream: int
    positions: tuple[FetchPosition, ...]
    removed: tuple[tuple[bytes, int], ...]
    credit_bytes: int
    session_epoch: int


class BreakStream(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel the stream."""

    broker_id: int
    stream: int


class TellUnread(msgspec.Struct, frozen=True, kw_only=True):
    """A partition has not been read for a while: warn the user. It is still tried."""

    partition: TopicPartition
    address: str
    """Of who leads it, as far as is known; empty: nobody is known to."""
    error: TidelogError
    """What is in the way."""
    waited_ms: int
    others: int
    """Partitions beside it that are not read either."""


class TellReadAgain(msgspec.Struct, frozen=True, kw_only=True):
    """What was told of is over: nothing is in the way of any partition."""

    waited_ms: int


ConsumerEffect = (
    FetchMetadata | OpenStream | SendFetch | BreakStream | QueryOffsets | TellUnread | TellReadAgain
)

__all__ = [
    "BreakStream",
    "ConsumerEffect",
    "ConsumerMessage",
    "FetchAnswered",
    "FetchMetadata",
    "Fetched",
    "MetadataArrived",
    "MetadataFailed",
    "OffsetsArrived",
    "OffsetsFailed",
    "OpenStream",
    "PartitionBatches",
    "QueryOffsets",
    "SendFetch",
    "StreamBroken",
    "StreamOpened",
    "TellReadAgain",
    "TellUnread",
]
