"""Performs the producer core's effects on grpc.aio, and takes what comes back to it.

Owns the streams of one asyncio producer. Everything runs on the user's loop: between two awaits
nobody else touches accumulator or core.
"""

import time
from operator import itemgetter
from typing import assert_never

from tidelog.client import wire
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.aio.driver import Driver
from tidelog.client.aio.streams import AsyncStream
from tidelog.client.engine.accumulator import Accumulator
from tidelog.client.engine.batch import Batch, Outcome
from tidelog.client.engine.producer import ProducerCore
from tidelog.client.engine.producer_messages import (
    AllocateProducerId,
    Answered,
    BatchSealed,
    BreakStream,
    CompleteBatch,
    ConnectFailed,
    FetchMetadata,
    MetadataArrived,
    MetadataFailed,
    OpenStream,
    ProducerEffect,
    ProducerIdAllocated,
    ProducerIdFailed,
    ProducerMessage,
    RefuseTopic,
    RouteTopic,
    SendProduce,
    StreamBroken,
    StreamOpened,
)
from tidelog.client.sync.future import complete
from tidelog.client.sync.produce_loop import LoopSettings, broker_wait_ms, seal
from tidelog.wire.errors import TidelogError


class AsyncProduceLoop:
    """One per producer."""

    def __init__(
        self,
        settings: LoopSettings,
        core: ProducerCore,
        accumulator: Accumulator,
        connections: AsyncConnections,
    ) -> None:
        self.driver = Driver("asyncio producer", self._turn)
        self.core = core
        self.unfinished: dict[int, Batch] = {}
        """Sealed and not done, by number."""
        self.refused_topics: dict[str, RefuseTopic] = {}
        self.records_sent = 0
        self.bytes_sent = 0
        self._settings = settings
        self._accumulator = accumulator
        self._connections = connections
        self._streams: dict[int, AsyncStream] = {}

    def step(self, *messages: ProducerMessage) -> None:
        """Tell the core, and do what it wants."""
        self._perform(self.core.steps(messages, time.monotonic_ns()))
        self.driver.wake()

    def take_sealed(self) -> list[Batch]:
        """Batches that are sealed and that nobody has taken yet."""
        sealed = self._accumulator.take_sealed()
        for batch in sealed:
            self.unfinished[batch.number] = batch
        return sealed

    def abandon(self, error: TidelogError) -> None:
        """What is not done fails."""
        self._perform(self.core.abandon(error))
        self._accumulator.seal_all()
        for batch in [*self.unfinished.values(), *self.take_sealed()]:
            if batch.outcome is None:
                self._complete(batch, error)
        self.unfinished.clear()

    def _turn(self) -> int | None:
        now_ns = time.monotonic_ns()
        self._accumulator.seal_due(now_ns)
        sealed = [BatchSealed(batch=batch) for batch in self.take_sealed()]
        self._perform(self.core.steps(sealed, now_ns))
        self.driver.notify()
        found = (self.core.next_deadline_ns(), self._accumulator.next_linger_ns())
        return min((each for each in found if each is not None), default=None)

    def _perform(self, effects: list[ProducerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendProduce():
                    self._send(effect)
                case CompleteBatch():
                    self._complete(effect.batch, effect.outcome)
                case FetchMetadata():
                    self.driver.spawn(self._fetch_metadata(effect), "metadata")
                case AllocateProducerId():
                    self.driver.spawn(self._allocate_producer_id(), "producer id")
                case OpenStream():
                    name = f"produce to broker {effect.broker_id}"
                    self.driver.spawn(self._run_stream(effect), name)
                case BreakStream():
                    stream = self._streams.pop(effect.stream, None)
                    if stream is not None:
                        stream.cancel()
                case RouteTopic():
                    self._accumulator.set_route(
                        effect.topic, effect.topic_id, effect.partition_count
                    )
                    self.refused_topics.pop(effect.topic, None)
                    self.driver.notify()
                case RefuseTopic():
                    self.refused_topics[effect.topic] = effect
                    self.driver.notify()
                case _:
                    assert_never(effect)

    def _send(self, effect: SendProduce) -> None:
        parts: list[tuple[bytes, int, int, bytes, int]] = []
        for batch, leader_epoch in zip(effect.batches, effect.leader_epochs, strict=True):
            if batch.encoded is None:
                batch.encoded = seal(batch, self._settings.codec)
                self.records_sent += len(batch.columns) if batch.attempts == 1 else 0
            data, sum_ = batch.encoded
            self.bytes_sent += len(data)
            parts.append((batch.topic_id, batch.partition, leader_epoch, data, sum_))
        stream = self._streams.get(effect.stream)
        # A stream that broke meanwhile has told so: the core judges the request.
        if stream is not None:
            stream.send(
                wire.produce_request(
                    effect.correlation_id,
                    parts,
                    acks=self._settings.acks,
                    timeout_ms=broker_wait_ms(self._settings.request_timeout_ms),
                )
            )

    def _complete(self, batch: Batch, outcome: Outcome) -> None:
        self.unfinished.pop(batch.number, None)
        self._accumulator.release(batch)
        complete(batch, outcome)
        self.driver.notify()

    async def _ask_anybody(self, method: str, request: bytes) -> bytes:
        """Brokers that owe an answer come last: one that hangs costs the others' time."""
        brokers = self.core.metadata.brokers.values()
        known = [(self.core.is_silent(broker.broker_id), broker.address) for broker in brokers]
        known.sort(key=itemgetter(0))
        addresses = [address for _, address in known]
        return await self._connections.call_any(
            list(dict.fromkeys((*addresses, *self._settings.bootstrap))),
            method,
            request,
            self._settings.request_timeout_ms,
        )

    async def _fetch_metadata(self, effect: FetchMetadata) -> None:
        request = wire.metadata_request(
            effect.topics, allow_auto_create=self._settings.allow_auto_create_topics
        )
        try:
            answer = await self._ask_anybody(wire.GET_METADATA, request)
        except TidelogError as error:
            self.step(MetadataFailed(error=error))
        else:
            self.step(MetadataArrived(view=wire.read_metadata(answer)))

    async def _allocate_producer_id(self) -> None:
        try:
            answer = await self._ask_anybody(wire.ALLOCATE_PRODUCER_ID, wire.producer_id_request())
        except TidelogError as error:
            self.step(ProducerIdFailed(error=error))
        else:
            self.step(ProducerIdAllocated(identity=wire.read_producer_identity(answer)))

    async def _run_stream(self, effect: OpenStream) -> None:
        """Reach the broker with a harmless call first: then nothing sent means nothing stored."""
        broker_id, number = effect.broker_id, effect.stream
        tried = f"produce to broker {broker_id} at {effect.address}"
        try:
            await self._connections.call(
                effect.address,
                wire.GET_METADATA,
                wire.metadata_request(()),
                self._settings.request_timeout_ms,
            )
            stream = AsyncStream(self._connections, effect.address, wire.PRODUCE_STREAM)
        except TidelogError as error:
            self.step(ConnectFailed(broker_id=broker_id, stream=number, error=error))
            return
        self._streams[number] = stream
        self.step(StreamOpened(broker_id=broker_id, stream=number))
        try:
            async for data in stream.answers(self.driver.scope, tried=tried):
                self.step(self._answered(broker_id, number, data))
        except TidelogError as error:
            self._streams.pop(number, None)
            self.step(StreamBroken(broker_id=broker_id, stream=number, error=error))

    def _answered(self, broker_id: int, stream: int, data: bytes) -> Answered:
        answer = wire.read_produce_answer(data)
        return Answered(
            broker_id=broker_id,
            stream=stream,
            correlation_id=answer.correlation_id,
            error=answer.error,
            outcomes=answer.outcomes,
            hints=answer.hints,
            throttle_ms=answer.throttle_ms,
        )
