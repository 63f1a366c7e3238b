"""The SDK's producer core at work over a Network port: the sync driver's part, without threads.

Owns what a driver owns: streams, calls, the order in which messages reach the core. Decides
nothing: what is sent, sent again or given up is the core's. Each batch is one send of the history;
any error but INDETERMINATE is taken at its word: nothing was stored.
"""

import asyncio
from typing import Final, assert_never

import msgspec

from tidelog.chaos.checkers.history import Acks, Outcome, Send
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.sequenced_producer import make_records
from tidelog.client import wire
from tidelog.client.engine.accumulator import Accumulator, AccumulatorLimits, Route
from tidelog.client.engine.backoff import Backoff
from tidelog.client.engine.batch import Acknowledgement, Batch
from tidelog.client.engine.metadata import MetadataCache
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
    TopicWanted,
)
from tidelog.client.engine.producer_settings import ProducerSettings
from tidelog.client.engine.topics import TopicDesk, TopicSettings
from tidelog.client.sync.produce_loop import broker_wait_ms, seal
from tidelog.ports import TaskScope
from tidelog.ports.network import Stream
from tidelog.wire.batch import Codec
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId

_REQUEST_MS: Final = 3_000
_CALL_MS: Final = 1_500
_BUFFER_BYTES: Final = 64 * 1024
_BATCH_BYTES: Final = 16 * 1024
_WIRE_ACKS: Final = {Acks.ALL: -1, Acks.LEADER: 1, Acks.NONE: 0}


class EngineProducer:
    """One producer of the SDK, on one simulated process."""

    def __init__(
        self,
        client: ClusterClient,
        acks: Acks,
        *,
        bootstrap: tuple[str, ...],
        delivery_ms: int,
        is_idempotent: bool = True,
    ) -> None:
        self.client = client
        self.acks = acks
        self.is_idempotent = is_idempotent
        self._bootstrap = bootstrap
        backoff = Backoff(initial_ms=50, max_ms=500, salt=client.below(1 << 16))
        self._metadata = MetadataCache()
        self.core = ProducerCore(
            ProducerSettings(
                in_flight_max=1 + client.below(5),
                request_bytes_max=_BUFFER_BYTES,
                request_timeout_ms=_REQUEST_MS,
                delivery_timeout_ms=delivery_ms,
                retries_max=1 << 30,
                is_idempotent=is_idempotent,
            ),
            self._metadata,
            TopicDesk(
                TopicSettings(max_age_ms=5_000, bootstrap_timeout_ms=60_000),
                self._metadata,
                backoff,
            ),
            backoff,
        )
        self._accumulator = Accumulator(
            AccumulatorLimits(
                batch_bytes=_BATCH_BYTES,
                batch_bytes_max=_BATCH_BYTES,
                buffer_bytes=_BUFFER_BYTES,
                linger_ns=0,
                in_flight_max=5,
            ),
            lambda: client.now_ns,
        )
        self._sends: dict[int, Send] = {}
        """By batch number, until it is done."""
        self._streams: dict[int, Stream] = {}
        self._queues: dict[int, list[bytes]] = {}
        """By stream, requests that are not handed to the network yet."""
        self._sending: dict[int, asyncio.Event] = {}
        self._messages: list[ProducerMessage] = []
        self._news = asyncio.Event()
        self._scope: TaskScope

    # -- the caller's side ---------------------------------------------------------------------

    def route(self, topic: str) -> Route | None:
        """Where records of the topic go; None: it is asked for."""
        found = self._accumulator.routes.get(topic)
        if found is None:
            self._put(TopicWanted(topic=topic))
        return found

    def send(self, route: Route, partition: int) -> bool:
        """One batch of its own; False without room."""
        values, records = make_records(self.client)
        batch: Batch | None = None
        for timestamp_ms, key, value, headers in records:
            size_bytes = len(key or b"") + len(value or b"") + 64
            batch = self._accumulator.append(
                route, partition, timestamp_ms, key, value, headers, size_bytes
            )
            if batch is None:
                break
        opened = route.open[partition]
        if opened is None:
            return False
        values = values[: len(opened.columns)]
        topic = Incarnation(route.name, TopicId(opened.topic_id), route.partition_count)
        now_ns = self.client.now_ns
        send = Send(
            client=self.client.name,
            partition=topic.key(partition),
            values=values,
            began_ns=now_ns,
            ended_ns=now_ns,
            outcome=Outcome.INDETERMINATE,
            stream=f"{self.client.name}/{topic.key(partition)}" if self.is_idempotent else "",
            stream_position=opened.number,
            acks=self.acks,
        )
        self.client.history.begin(send)
        self._sends[opened.number] = send
        self._accumulator.seal(route, opened)
        self._news.set()
        return True

    @property
    def unfinished(self) -> int:
        """Batches without an outcome."""
        return len(self._sends)

    # -- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled or killed."""
        async with TaskScope() as scope:
            self._scope = scope
            while True:
                await self._wait()
                self._news.clear()
                messages, self._messages = self._messages, []
                sealed = self._accumulator.take_sealed()
                steps = [*(BatchSealed(batch=batch) for batch in sealed), *messages]
                self._perform(self.core.steps(steps, self.client.now_ns))

    async def _wait(self) -> None:
        due_ns = self.core.next_deadline_ns()
        if due_ns is None:
            await self._news.wait()
            return
        left_s = max(0, due_ns - self.client.now_ns) / 1e9
        timer = asyncio.get_running_loop().call_later(left_s, self._news.set)
        try:
            await self._news.wait()
        finally:
            timer.cancel()

    def _put(self, message: ProducerMessage) -> None:
        self._messages.append(message)
        self._news.set()

    def _perform(self, effects: list[ProducerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendProduce():
                    self._send(effect)
                case CompleteBatch():
                    self._complete(effect)
                case FetchMetadata():
                    self._scope.start(self._fetch_metadata(effect), name="metadata")
                case AllocateProducerId():
                    self._scope.start(self._allocate(), name="producer id")
                case OpenStream():
                    self._scope.start(self._live(effect), name="produce stream")
                case BreakStream():
                    stream = self._streams.pop(effect.stream, None)
                    if stream is not None:
                        stream.cancel()
                case RouteTopic():
                    self._accumulator.set_route(
                        effect.topic, effect.topic_id, effect.partition_count
                    )
                case RefuseTopic():
                    self.client.on_error(effect.error)
                case _:
                    assert_never(effect)

    def _complete(self, effect: CompleteBatch) -> None:
        batch, outcome = effect.batch, effect.outcome
        self._accumulator.release(batch)
        batch.complete(outcome)
        known, base_offset = Outcome.FAILED, -1
        if isinstance(outcome, Acknowledgement):
            known, base_offset = Outcome.ACKNOWLEDGED, outcome.base_offset
        else:
            self.client.on_error(outcome)
            if outcome.code is ErrorCode.INDETERMINATE:
                known = Outcome.INDETERMINATE
        send = self._sends.pop(batch.number)
        self.client.history.end(
            msgspec.structs.replace(
                send, ended_ns=self.client.now_ns, outcome=known, base_offset=base_offset
            )
        )

    def _send(self, effect: SendProduce) -> None:
        parts: list[tuple[bytes, int, int, bytes, int]] = []
        for batch, leader_epoch in zip(effect.batches, effect.leader_epochs, strict=True):
            if batch.encoded is None:
                batch.encoded = seal(batch, Codec.NONE)
            data, sum_ = batch.encoded
            parts.append((batch.topic_id, batch.partition, leader_epoch, data, sum_))
        request = wire.produce_request(
            effect.correlation_id,
            parts,
            acks=_WIRE_ACKS[self.acks],
            timeout_ms=broker_wait_ms(_REQUEST_MS),
        )
        queue = self._queues.get(effect.stream)
        if queue is not None:
            queue.append(request)
            self._sending[effect.stream].set()

    # -- calls and streams ---------------------------------------------------------------------

    async def _ask_anybody(self, method: str, request: bytes) -> bytes:
        known = [
            broker.address
            for broker in self._metadata.brokers.values()
            if not self.core.is_silent(broker.broker_id)
        ]
        error: TidelogError | None = None
        for address in dict.fromkeys((*known, *self._bootstrap)):
            try:
                return await self.client.ports.network.call(
                    address, method, request, timeout_ms=_CALL_MS
                )
            except TidelogError as found:
                error = found
        assert error is not None, "there is a broker to ask"
        raise error

    async def _fetch_metadata(self, effect: FetchMetadata) -> None:
        request = wire.metadata_request(effect.topics, allow_auto_create=False)
        try:
            answer = await self._ask_anybody(wire.GET_METADATA, request)
        except TidelogError as error:
            self._put(MetadataFailed(error=error))
        else:
            self._put(MetadataArrived(view=wire.read_metadata(answer)))

    async def _allocate(self) -> None:
        try:
            answer = await self._ask_anybody(wire.ALLOCATE_PRODUCER_ID, wire.producer_id_request())
        except TidelogError as error:
            self._put(ProducerIdFailed(error=error))
        else:
            self._put(ProducerIdAllocated(identity=wire.read_producer_identity(answer)))

    async def _live(self, effect: OpenStream) -> None:
        """Reach the broker with a harmless call first: then nothing sent means nothing stored."""
        network = self.client.ports.network
        try:
            request = wire.metadata_request(())
            await network.call(effect.address, wire.GET_METADATA, request, timeout_ms=_REQUEST_MS)
            stream = network.stream(effect.address, wire.PRODUCE_STREAM)
        except TidelogError as error:
            failed = ConnectFailed(broker_id=effect.broker_id, stream=effect.stream, error=error)
            self._put(failed)
            return
        self._streams[effect.stream] = stream
        self._queues[effect.stream] = []
        self._sending[effect.stream] = asyncio.Event()
        self._put(StreamOpened(broker_id=effect.broker_id, stream=effect.stream))
        self._scope.start(self._write(effect.stream, stream), name="produce requests")
        await self._read(effect, stream)

    async def _write(self, number: int, stream: Stream) -> None:
        queue, sending = self._queues[number], self._sending[number]
        try:
            while number in self._queues:
                while queue:
                    await stream.send(queue.pop(0))
                sending.clear()
                if not queue:
                    await sending.wait()
        except TidelogError:
            # The reader is told of the break as well, and tells the core.
            return

    async def _read(self, effect: OpenStream, stream: Stream) -> None:
        error = TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=f"produce to broker {effect.broker_id}",
            happened="the broker ended the stream",
        )
        try:
            while (data := await stream.receive()) is not None:
                answer = wire.read_produce_answer(data)
                self._put(
                    Answered(
                        broker_id=effect.broker_id,
                        stream=effect.stream,
                        correlation_id=answer.correlation_id,
                        error=answer.error,
                        outcomes=answer.outcomes,
                        hints=answer.hints,
                        throttle_ms=answer.throttle_ms,
                    )
                )
        except TidelogError as found:
            error = found
        stream.cancel()
        self._streams.pop(effect.stream, None)
        self._queues.pop(effect.stream, None)
        self._sending.pop(effect.stream).set()
        self._put(StreamBroken(broker_id=effect.broker_id, stream=effect.stream, error=error))
