"""What goes into the producer's core and what comes out of it.

Owns both closed unions. A driver turns I/O into messages and performs effects; it decides nothing.
"""

import msgspec

from tidelog.client.engine.cluster.topic_messages import (
    FetchMetadata,
    MetadataArrived,
    MetadataFailed,
    RefuseTopic,
    RouteTopic,
    TopicWanted,
)
from tidelog.client.engine.produce.batch import Batch, Outcome
from tidelog.client.engine.produce.producer_ids import AllocateProducerId, ProducerIdentity
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId


class BatchSealed(msgspec.Struct, frozen=True, kw_only=True):
    """A batch left the accumulator."""

    batch: Batch


class StreamOpened(msgspec.Struct, frozen=True, kw_only=True):
    """The broker can be sent requests."""

    broker_id: int
    stream: int


class ConnectFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The broker was never reached: nothing was sent."""

    broker_id: int
    stream: int
    error: TidelogError


class StreamBroken(msgspec.Struct, frozen=True, kw_only=True):
    """The stream ended: whatever it had not answered has an unknown outcome."""

    broker_id: int
    stream: int
    error: TidelogError


class LeaderHint(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads a partition, as the broker knows that refused a batch of it."""

    leader_id: int
    leader_epoch: LeaderEpoch


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A request was answered: as a whole by an error, or batch by batch."""

    broker_id: int
    stream: int
    correlation_id: int
    error: TidelogError | None = None
    outcomes: tuple[Outcome, ...] = ()
    """In the order of the request's batches."""
    hints: tuple[LeaderHint | None, ...] = ()
    """As many as outcomes, or none."""
    throttle_ms: int = 0
    wall_ms: int = 0
    """What this client's clock shows as the answer comes; 0: not known."""


class ProducerIdAllocated(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster gave this producer an identity."""

    identity: ProducerIdentity


class ProducerIdFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody could give one."""

    error: TidelogError


ProducerMessage = (
    BatchSealed
    | TopicWanted
    | MetadataArrived
    | MetadataFailed
    | StreamOpened
    | ConnectFailed
    | StreamBroken
    | Answered
    | ProducerIdAllocated
    | ProducerIdFailed
)


class OpenStream(msgspec.Struct, frozen=True, kw_only=True):
    """Reach the broker first, then open: answer with StreamOpened or ConnectFailed."""

    broker_id: int
    stream: int
    address: str


class SendProduce(msgspec.Struct, frozen=True, kw_only=True):
    """One request on the stream; the outcomes come back in the order of the batches."""

    broker_id: int
    stream: int
    correlation_id: int
    batches: tuple[Batch, ...]
    leader_epochs: tuple[int, ...]


class BreakStream(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel the stream; what it still says is ignored."""

    broker_id: int
    stream: int


class CompleteBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The batch's outcome is final."""

    batch: Batch
    outcome: Outcome


class TellWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """A partition gets nowhere: warn the user. It is still tried."""

    topic: str
    partition: PartitionId
    error: TidelogError
    """The last refusal, or what else is in the way."""
    attempts: int
    """Of its oldest batch."""
    waited_ms: int
    others: int
    """Partitions beside it that get nowhere either."""


ProducerEffect = (
    FetchMetadata
    | AllocateProducerId
    | OpenStream
    | SendProduce
    | BreakStream
    | CompleteBatch
    | RouteTopic
    | RefuseTopic
    | TellWaiting
)

__all__ = [
    "AllocateProducerId",
    "Answered",
    "BatchSealed",
    "BreakStream",
    "CompleteBatch",
    "ConnectFailed",
    "FetchMetadata",
    "LeaderHint",
    "MetadataArrived",
    "MetadataFailed",
    "OpenStream",
    "ProducerEffect",
    "ProducerIdAllocated",
    "ProducerIdFailed",
    "ProducerIdentity",
    "ProducerMessage",
    "RefuseTopic",
    "RouteTopic",
    "SendProduce",
    "StreamBroken",
    "StreamOpened",
    "TellWaiting",
    "TopicWanted",
]
