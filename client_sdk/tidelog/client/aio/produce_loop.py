"""Performs the producer core's effects on grpc.aio, and takes what comes back to it.

Owns the streams of one asyncio producer. Everything runs on the user's loop: between two awaits
nobody else touches accumulator or core.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import assert_never, cast

from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.aio.driver import Driver
from tidelog.client.aio.streams import AsyncStream
from tidelog.client.engine.produce.accumulator import Accumulator
from tidelog.client.engine.produce.batch import Batch, Outcome
from tidelog.client.engine.produce.messages import (
    AllocateProducerId,
    BreakStream,
    CompleteBatch,
    ConnectFailed,
    FetchMetadata,
    OpenStream,
    ProducerMessage,
    RefuseTopic,
    RouteTopic,
    SendProduce,
    StreamBroken,
    StreamOpened,
    TellWaiting,
)
from tidelog.client.engine.produce.producer import ProducerCore
from tidelog.client.engine.transaction.messages import (
    Call,
    CallDone,
    CoordinatorRequest,
    FindCoordinator,
    SendDecide,
    SendEnd,
    SendInitialize,
    SendOffsets,
    SendPrepare,
    TellCallWaits,
)
from tidelog.client.engine.transaction.producing import Effect, Message, ProducingCore
from tidelog.client.shared.client_parts import metadata_came
from tidelog.client.sync.future import complete
from tidelog.client.wire import calls as wire
from tidelog.client.wire import transactions as wire_transactions
from tidelog.client.wire.groups import FIND_COORDINATORS
from tidelog.client.writing.producer_parts import (
    LoopSettings,
    addresses_to_ask,
    identity_came,
    request_maker,
    sealed_message,
    waiting_text,
)
from tidelog.client.writing.transaction_parts import COORDINATOR_TIMEOUT_MS, OnPhase
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
        on_phase: OnPhase,
    ) -> None:
        self.driver = Driver("asyncio producer", self._turn, self._on_end)
        self.core = core
        self.unfinished: dict[int, Batch] = {}
        """Sealed and not done, by number."""
        self.producing: ProducingCore | None = None
        """The core with its transactions, of a producer that has any."""
        self.calls: dict[int, asyncio.Future[CallDone]] = {}
        """Of the user's, about transactions, that are not answered yet."""
        self.refused_topics: dict[str, RefuseTopic] = {}
        self.requests = request_maker(settings)
        self._settings = settings
        self._accumulator = accumulator
        self._connections = connections
        self._on_unstopped = on_unstopped
        self._on_phase = on_phase
        self._streams: dict[int, AsyncStream] = {}

    def step(self, *messages: Message) -> None:
        """Tell the core, and do what it wants."""
        self._perform(self._steps(messages, time.monotonic_ns()))
        self.driver.wake()

    def transact(self, call: int, message: Call) -> "asyncio.Future[CallDone]":
        """A call about transactions, behind everything that was sealed before."""
        answer: asyncio.Future[CallDone] = asyncio.get_running_loop().create_future()
        self.calls[call] = answer
        self.step(*map(sealed_message, self.take_sealed()), message)
        return answer

    def _steps(self, messages: Sequence[Message], now_ns: int) -> Sequence[Effect]:
        producing = self.producing
        if producing is None:
            return self.core.steps(cast("Sequence[ProducerMessage]", messages), now_ns)
        before = producing.phase
        effects = producing.steps(messages, now_ns)
        if producing.phase is not before:
            self._on_phase(producing.phase, producing.trouble)
        return effects

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
        for answer in self.calls.values():
            if not answer.done():
                answer.set_exception(error)
        self.calls.clear()

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
        self._perform(self._steps([*map(sealed_message, self.take_sealed())], now_ns))
        self.driver.notify()
        core = self.producing or self.core
        found = (core.next_deadline_ns(), self._accumulator.next_linger_ns())
        return min((each for each in found if each is not None), default=None)

    def _perform(self, effects: Sequence[Effect]) -> None:
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
                case TellCallWaits():
                    _log.warning(effect.text)
                case CallDone():
                    self._call_done(effect)
                case FindCoordinator():
                    self.driver.spawn(self._find_coordinator(effect), "find a coordinator")
                case SendInitialize() | SendOffsets() | SendEnd() | SendPrepare() | SendDecide():
                    self.driver.spawn(self._ask_coordinator(effect), "ask a coordinator")
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

    def _call_done(self, done: CallDone) -> None:
        assert self.producing is not None, "a call about transactions has a core"
        self._on_phase(self.producing.phase, self.producing.trouble, done.call)
        answer = self.calls.pop(done.call, None)
        if answer is not None and not answer.done():
            answer.set_result(done)

    async def _find_coordinator(self, effect: FindCoordinator) -> None:
        answer = await self._ask_anybody(
            FIND_COORDINATORS, wire_transactions.find_request(effect.of)
        )
        self.step(wire_transactions.coordinator_came(effect.of, answer))

    async def _ask_coordinator(self, effect: CoordinatorRequest) -> None:
        settings = self._settings
        method, request = wire_transactions.request_of(
            effect, settings.transactional_id or "", settings.transaction_timeout_ms
        )
        timeout_ms = min(settings.request_timeout_ms, COORDINATOR_TIMEOUT_MS)
        answer: bytes | TidelogError
        try:
            answer = await self._connections.call(effect.address, method, request, timeout_ms)
        except TidelogError as error:
            answer = error
        self.step(wire_transactions.answer_came(effect, answer))

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
