"""The SDK's producer core at work over a Network port: the sync driver's part, without threads.

Owns what is sent, and its history: each batch is one send; any error but INDETERMINATE is taken at
its word: nothing was stored.
"""

from typing import Final, assert_never

import msgspec

from tidelog.chaos.checkers.history.history import Acks, Outcome, Send
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.engine_driver import REQUEST_MS, EngineDriver, Opening
from tidelog.chaos.workloads.sequenced_producer import make_records
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.topics import TopicDesk, TopicSettings
from tidelog.client.engine.produce.accumulator import Accumulator, AccumulatorLimits, Route
from tidelog.client.engine.produce.batch import Acknowledgement, Batch
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
    TopicWanted,
)
from tidelog.client.engine.produce.producer import ProducerCore
from tidelog.client.engine.produce.settings import ProducerSettings
from tidelog.client.shared.client_parts import metadata_came
from tidelog.client.wire import calls as wire
from tidelog.client.writing.producer_parts import RequestMaker, identity_came
from tidelog.ports import TaskScope
from tidelog.wire.batch import Codec
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId

_BUFFER_BYTES: Final = 64 * 1024
_BATCH_BYTES: Final = 16 * 1024
_WIRE_ACKS: Final = {Acks.ALL: -1, Acks.LEADER: 1, Acks.NONE: 0}


class EngineProducer(EngineDriver[ProducerMessage]):
    """One producer of the SDK, on one simulated process."""

    method = wire.PRODUCE_STREAM
    verb, tried = "produce", "produce to"

    def __init__(
        self,
        client: ClusterClient,
        acks: Acks,
        *,
        bootstrap: tuple[str, ...],
        delivery_ms: int,
        is_idempotent: bool = True,
    ) -> None:
        super().__init__(client)
        self.acks = acks
        self.is_idempotent = is_idempotent
        self._bootstrap = bootstrap
        backoff = Backoff(initial_ms=50, max_ms=500, salt=client.below(1 << 16))
        self._metadata = MetadataCache()
        self.core = ProducerCore(
            ProducerSettings(
                in_flight_max=1 + client.below(5),
                request_bytes_max=_BUFFER_BYTES,
                request_timeout_ms=REQUEST_MS,
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
        self._requests = RequestMaker(
            codec=Codec.NONE, acks=_WIRE_ACKS[acks], request_timeout_ms=REQUEST_MS
        )

    # -- the caller's side ---------------------------------------------------------------------

    def route(self, topic: str) -> Route | None:
        """Where records of the topic go; None: it is asked for."""
        found = self._accumulator.routes.get(topic)
        if found is None:
            self.put(TopicWanted(topic=topic))
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
        self.news.set()
        return True

    @property
    def unfinished(self) -> int:
        """Batches without an outcome."""
        return len(self._sends)

    # -- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled or killed."""
        async with TaskScope() as scope:
            self.scope = scope
            while True:
                due_ns = self.core.next_deadline_ns()
                left_s = None if due_ns is None else max(0, due_ns - self.client.now_ns) / 1e9
                await self.wait_news(left_s)
                messages = self.take_messages()
                sealed = self._accumulator.take_sealed()
                steps = [*(BatchSealed(batch=batch) for batch in sealed), *messages]
                self._perform(self.core.steps(steps, self.client.now_ns))

    def _perform(self, effects: list[ProducerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendProduce():
                    self.send_on(effect.stream, self._requests.make(effect))
                case CompleteBatch():
                    self._complete(effect)
                case FetchMetadata():
                    self.scope.start(self._fetch_metadata(effect), name="metadata")
                case AllocateProducerId():
                    self.scope.start(self._allocate(), name="producer id")
                case OpenStream():
                    self.scope.start(self.live(effect), name="produce stream")
                case BreakStream():
                    self.break_stream(effect.stream)
                case RouteTopic():
                    self._accumulator.set_route(
                        effect.topic, effect.topic_id, effect.partition_count
                    )
                case RefuseTopic():
                    self.client.on_error(effect.error)
                case TellWaiting():
                    pass  # Nobody reads a log here.
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

    # -- calls and streams ---------------------------------------------------------------------

    async def _ask_anybody(self, method: str, request: bytes) -> bytes | TidelogError:
        known = [
            broker.address
            for broker in self._metadata.brokers.values()
            if not self.core.is_silent(broker.broker_id)
        ]
        return await self.ask(dict.fromkeys((*known, *self._bootstrap)), method, request)

    async def _fetch_metadata(self, effect: FetchMetadata) -> None:
        request = wire.metadata_request(effect.topics, allow_auto_create=False)
        self.put(metadata_came(await self._ask_anybody(wire.GET_METADATA, request)))

    async def _allocate(self) -> None:
        answer = await self._ask_anybody(wire.ALLOCATE_PRODUCER_ID, wire.producer_id_request())
        self.put(identity_came(answer))

    def opened(self, effect: Opening) -> ProducerMessage:
        """The stream can be used."""
        return StreamOpened(broker_id=effect.broker_id, stream=effect.stream)

    def unreached(self, effect: Opening, error: TidelogError) -> ProducerMessage:
        """Nothing was sent."""
        return ConnectFailed(broker_id=effect.broker_id, stream=effect.stream, error=error)

    def broken(self, effect: Opening, error: TidelogError) -> ProducerMessage:
        """Whatever it had not answered has an unknown outcome."""
        return StreamBroken(broker_id=effect.broker_id, stream=effect.stream, error=error)

    def answered(self, effect: Opening, data: bytes) -> ProducerMessage:
        """Batch by batch, or as a whole."""
        wall_ms = self.client.ports.clock.wall_ms()
        return wire.read_produce_answer(effect.broker_id, effect.stream, data, wall_ms)
