"""What the drivers of the producer share: how it is put together, and what goes over the wire.

Owns the sealing of batches and the bytes of a request. It must
never wait, nor know a thread or an event loop. Stop 3 of a record's walk.
"""

from operator import itemgetter
from typing import Final

import msgspec

from tidelog.client.arguments import options as client_options
from tidelog.client.arguments.options import ProducerOptions
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.topics import TopicDesk
from tidelog.client.engine.produce.batch import Batch
from tidelog.client.engine.produce.messages import (
    BatchSealed,
    ProducerIdAllocated,
    ProducerIdFailed,
    SendProduce,
    TellWaiting,
)
from tidelog.client.engine.produce.producer import ProducerCore
from tidelog.client.engine.produce.settings import ProducerSettings
from tidelog.client.engine.transaction.core import TransactionCore
from tidelog.client.engine.transaction.producing import ProducingCore
from tidelog.client.shared.client_parts import backoff_of, topic_settings_of
from tidelog.client.wire import calls as wire
from tidelog.wire.batch import Codec, encode_batch, route_sum
from tidelog.wire.batch.layout import CHECKSUM_POSITION
from tidelog.wire.calls.produce import PartitionBatch
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId, TopicId

ANSWER_MS: Final = 1_000
"""Kept of a request's timeout for the answer's way, at most."""


class LoopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver needs of the options."""

    bootstrap: tuple[str, ...]
    codec: Codec
    acks: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    allow_auto_create_topics: bool
    transactional_id: str | None
    transaction_timeout_ms: int


def loop_settings(
    client: str, options: ProducerOptions, bootstrap: tuple[str, ...]
) -> LoopSettings:
    """Of the producer's options."""
    return LoopSettings(
        bootstrap=bootstrap,
        codec=client_options.codec_of(client, options.compression_type),
        acks=client_options.acks_of(options),
        request_timeout_ms=options.request_timeout_ms,
        delivery_timeout_ms=options.delivery_timeout_ms,
        allow_auto_create_topics=options.allow_auto_create_topics,
        transactional_id=options.transactional_id,
        transaction_timeout_ms=options.transaction_timeout_ms,
    )


def make_core(options: ProducerOptions, metadata: MetadataCache) -> ProducerCore:
    """The core, with the bounds that the options set."""
    backoff = backoff_of(options)
    settings = ProducerSettings(
        in_flight_max=options.max_in_flight_requests_per_connection,
        request_bytes_max=options.max_request_size,
        request_timeout_ms=options.request_timeout_ms,
        delivery_timeout_ms=options.delivery_timeout_ms,
        retries_max=options.retries,
        is_idempotent=client_options.is_idempotent(options),
        is_transactional=options.transactional_id is not None,
    )
    desk = TopicDesk(topic_settings_of(options), metadata, backoff)
    return ProducerCore(settings, metadata, desk, backoff)


def make_producing(options: ProducerOptions, core: ProducerCore) -> ProducingCore:
    """The same core with transactions: its own, or just what decides tokens."""
    name = options.transactional_id
    transactions = TransactionCore(name or "", backoff_of(options))
    return ProducingCore(core, transactions, is_transactional=name is not None)


class RequestMaker:
    """Turns what the core sends into bytes, and counts it."""

    def __init__(
        self, *, codec: Codec, acks: int, request_timeout_ms: int, transactional_id: str = ""
    ) -> None:
        self.records_sent = 0
        self.bytes_sent = 0
        self._codec = codec
        self._acks = acks
        self._transactional_id = transactional_id
        self._wait_ms = broker_wait_ms(request_timeout_ms)

    def make(self, effect: SendProduce) -> bytes:
        """The request; a batch is sealed by its first."""
        parts: list[PartitionBatch] = []
        for batch, leader_epoch in zip(effect.batches, effect.leader_epochs, strict=True):
            if batch.encoded is None:
                batch.encoded = seal(batch, self._codec, bool(self._transactional_id))
                # A batch that was numbered anew is sealed again.
                self.records_sent += len(batch.columns) if batch.attempts == 1 else 0
            data, sum_ = batch.encoded
            self.bytes_sent += len(data)
            parts.append(
                PartitionBatch(
                    TopicId(batch.topic_id),
                    PartitionId(batch.partition),
                    LeaderEpoch(leader_epoch),
                    data,
                    sum_,
                )
            )
        return wire.produce_request(
            effect.correlation_id,
            parts,
            acks=self._acks,
            timeout_ms=self._wait_ms,
            transactional_id=self._transactional_id,
        )


def sealed_message(batch: Batch) -> BatchSealed:
    """What the core is told of a batch that left the accumulator."""
    return BatchSealed(batch=batch)


def request_maker(settings: LoopSettings) -> RequestMaker:
    """Of a driver's settings."""
    return RequestMaker(
        codec=settings.codec,
        acks=settings.acks,
        request_timeout_ms=settings.request_timeout_ms,
        transactional_id=settings.transactional_id or "",
    )


def broker_wait_ms(request_timeout_ms: int) -> int:
    """How long a broker waits for an acknowledgement: its answer is to arrive before the client
    gives the whole stream up."""
    return max(1, request_timeout_ms - min(ANSWER_MS, request_timeout_ms // 10))


def seal(batch: Batch, codec: Codec, is_transactional: bool = False) -> tuple[bytes, int]:
    """The batch's bytes and its route sum: stop 3 of a record's walk."""
    data = encode_batch(
        batch.columns,
        codec=codec,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=is_transactional,
    )
    crc = int.from_bytes(data[CHECKSUM_POSITION : CHECKSUM_POSITION + 4], "big")
    return data, route_sum(TopicId(batch.topic_id), batch.partition, crc)


def addresses_to_ask(core: ProducerCore, bootstrap: tuple[str, ...]) -> list[str]:
    """Brokers that owe an answer come last: one that hangs costs the others' time."""
    brokers = core.metadata.brokers.values()
    known = [(core.is_silent(broker.broker_id), broker.address) for broker in brokers]
    known.sort(key=itemgetter(0))
    return list(dict.fromkeys((*(address for _, address in known), *bootstrap)))


def waiting_text(effect: TellWaiting, delivery_timeout_ms: int) -> str:
    """A line for the log: what is in the way, since when, and how long it is still tried."""
    name, error = f"{effect.topic}-{effect.partition}", effect.error
    happened = error.happened if name in error.happened else f"partition {name}: {error.happened}"
    tries = f"{effect.attempts} {'try' if effect.attempts == 1 else 'tries'}"
    others = f"; other partitions that wait: {effect.others}" if effect.others else ""
    return (
        f"waiting: {happened} [{error.code.name}], for {effect.waited_ms / 1000:.0f} s, {tries}"
        f"{others}; records are given up after delivery_timeout_ms={delivery_timeout_ms}"
    )


def identity_came(answer: bytes | TidelogError) -> ProducerIdAllocated | ProducerIdFailed:
    """What came of AllocateProducerId."""
    if isinstance(answer, TidelogError):
        return ProducerIdFailed(error=answer)
    return ProducerIdAllocated(identity=wire.read_producer_identity(answer))
