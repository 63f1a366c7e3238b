"""Performs the producer core's effects on grpc.aio, and takes what comes back to it.

Owns the streams of one asyncio producer. Everything runs on the user's loop: between two awaits
nobody else touches accumulator or core.
"""

import logging
import time
from collections.abc import Callable
from typing import assert_never

from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.aio.driver import Driver
from tidelog.client.aio.streams import AsyncStream
from tidelog.client.engine.produce.accumulator import Accumulator
from tidelog.client.engine.produce.batch import Batch, Outcome
from tidelog.client.engine.produce.messages import (
    AllocateProducerId,
    BatchSealed,
    BreakStream,
    CompleteBatch,
    ConnectFailed,
    FetchMetadata,
    OpenStream,
    ProducerEffect,
    ProducerMessage,
    RefuseTopic,
    RouteTopic,
    SendProduce,
    StreamBroken,
    StreamOpened,
    TellWaiting,
)
from tidelog.client.engine.produce.producer import ProducerCore
from tidelog.client.shared.client_parts import metadata_came
from tidelog.client.sync.future import complete
from tidelog.client.wire import calls as wire
from tidelog.client.writing.producer_parts import (
    LoopSettings,
    addresses_to_ask,
    identity_came,
    request_maker,
    waiting_text,
)
from tidelog.wire.errors import ErrorCode, TidelogError

_log = logging.getLogger("tidelog.client")


class AsyncProduceLoop:
    """One per producer."""

    def __init__(
        self,
        settings: LoopSettings,
        core: ProducerCore,
        accumulator: Accumulator,
        connections: AsyncConnections,
        on_unstopped: Callable[[], None],
    ) -> None:
        self.driver = Driver("asyncio producer", self._turn, self._on_end)
        self.core = core
        self.unfinished: dict[int, Batch] = {}
        """Sealed and not done, by number."""
        self.refused_topics: dict[str, RefuseTopic] = {}
        self.requests = request_maker(settings)
        self._settings = settings
        self._accumulator = accumulator
        self._connections = connections
        self._on_unstopped = on_unstopped
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
        for effect in self.core.abandon(error):
            # Others may be left of a step that a bug broke off: nothing begins any more.
            if isinstance(effect, CompleteBatch):
                self._complete(effect.batch, effect.outcome)
        self._accumulator.seal_all()
        for batch in [*self.unfinished.values(), *self.take_sealed()]:
            if batch.outcome is None:
                self._complete(batch, error)
        self.unfinished.clear()

    def _on_end(self) -> None:
        """After a bug, or with a loop that ends first: whoever waits for a record is told."""
        if self.driver.failure is not None:
            self.abandon(self.driver.failure)
            return
        self._on_unstopped()
        self.abandon(loop_ended())

    @property
    def unsent_count(self) -> int:
        """Records that were taken and of which nobody knows yet that they are stored."""
        accumulator = self._accumulator
        left = (*self.unfinished.values(), *accumulator.sealed, *accumulator.open.values())
        return sum(len(batch.columns) for batch in left if batch.outcome is None)

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
                case TellWaiting():
                    _log.warning(waiting_text(effect, self._settings.delivery_timeout_ms))
                case _:
                    assert_never(effect)

    def _send(self, effect: SendProduce) -> None:
        request = self.requests.make(effect)
        stream = self._streams.get(effect.stream)
        # A stream that broke meanwhile has told so: the core judges the request.
        if stream is not None:
            stream.send(request)

    def _complete(self, batch: Batch, outcome: Outcome) -> None:
        self.unfinished.pop(batch.number, None)
        self._accumulator.release(batch)
        complete(batch, outcome)
        self.driver.notify()

    async def _ask_anybody(self, method: str, request: bytes) -> bytes | TidelogError:
        addresses = addresses_to_ask(self.core, self._settings.bootstrap)
        timeout_ms = self._settings.request_timeout_ms
        try:
            return await self._connections.call_any(addresses, method, request, timeout_ms)
        except TidelogError as error:
            return error

    async def _fetch_metadata(self, effect: FetchMetadata) -> None:
        request = wire.metadata_request(
            effect.topics,
            allow_auto_create=self._settings.allow_auto_create_topics and effect.may_create,
        )
        self.step(metadata_came(await self._ask_anybody(wire.GET_METADATA, request)))

    async def _allocate_producer_id(self) -> None:
        answer = await self._ask_anybody(wire.ALLOCATE_PRODUCER_ID, wire.producer_id_request())
        self.step(identity_came(answer))

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
                wall_ms = time.time_ns() // 1_000_000
                self.step(wire.read_produce_answer(broker_id, number, data, wall_ms))
        except TidelogError as error:
            self._streams.pop(number, None)
            self.step(StreamBroken(broker_id=broker_id, stream=number, error=error))


def loop_ended() -> TidelogError:
    """For what a producer held when its event loop ended."""
    return TidelogError(
        ErrorCode.CLOSED,
        tried="produce",
        happened="the event loop ended before the record was sent",
        hint="await the producer's stop() before the loop ends, or use `async with`",
    )
