"""The SDK's consumer core at work over a Network port: the driver's part, without threads.

Owns what a driver owns: streams, calls, the order in which messages reach the core. It reads one
topic that nobody deletes, all of its partitions, from their first records on and never seeks: so
whatever the core hands over is one session for each partition.
"""

import asyncio
from typing import Final, assert_never

from tidelog.chaos.checkers.history import Poll
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.client import wire
from tidelog.client.engine.backoff import Backoff
from tidelog.client.engine.consumer import ConsumerCore
from tidelog.client.engine.consumer_settings import ConsumerSettings
from tidelog.client.engine.fetch_messages import (
    BreakStream,
    ConsumerEffect,
    ConsumerMessage,
    FetchAnswered,
    Fetched,
    FetchMetadata,
    MetadataArrived,
    MetadataFailed,
    OffsetsArrived,
    OffsetsFailed,
    OffsetSpec,
    OpenStream,
    QueryOffsets,
    SendFetch,
    StreamBroken,
    StreamOpened,
)
from tidelog.client.engine.metadata import MetadataCache
from tidelog.client.engine.topics import TopicDesk, TopicSettings
from tidelog.ports import TaskScope
from tidelog.ports.network import Stream
from tidelog.wire.batch import CorruptBatch, decode_batch, iterate_headers
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId

_REQUEST_MS: Final = 3_000
_CALL_MS: Final = 1_500
_WINDOW_BYTES: Final = 64 * 1024
_ANSWER_BYTES: Final = 16 * 1024
_TURN_S: Final = 0.3
"""At least so often the core is asked whether time has brought something."""


class EngineReader:
    """One consumer of the SDK, on one simulated process."""

    def __init__(
        self, client: ClusterClient, topic: str, *, bootstrap: tuple[str, ...], rack: str
    ) -> None:
        self.client = client
        self._topic = topic
        self._bootstrap = bootstrap
        self._rack = rack
        backoff = Backoff(initial_ms=50, max_ms=500, salt=client.below(1 << 16))
        self._metadata = MetadataCache()
        desk = TopicDesk(
            TopicSettings(max_age_ms=5_000, bootstrap_timeout_ms=60_000), self._metadata, backoff
        )
        settings = ConsumerSettings(
            reset=OffsetSpec.EARLIEST,
            window_bytes=_WINDOW_BYTES,
            grant_bytes=_WINDOW_BYTES // 2,
            partition_bytes_max=_ANSWER_BYTES,
            verify=True,
            replica_lease_ms=3_000,
        )
        self.core = ConsumerCore(settings, self._metadata, desk, backoff)
        self._streams: dict[int, Stream] = {}
        self._queues: dict[int, list[bytes]] = {}
        self._sending: dict[int, asyncio.Event] = {}
        self._messages: list[ConsumerMessage] = []
        self._news = asyncio.Event()
        self._scope: TaskScope
        self.began_ns = client.now_ns

    async def run(self) -> None:
        """Until cancelled or killed."""
        async with TaskScope() as scope:
            self._scope = scope
            self.core.subscribe([self._topic], self.client.now_ns)
            while True:
                self._perform(self.core.tick(self.client.now_ns))
                await self._wait()
                messages, self._messages = self._messages, []
                for message in messages:
                    self._perform(self.core.step(message, self.client.now_ns))
                self._take()

    async def _wait(self) -> None:
        due_ns = self.core.next_deadline_ns()
        left_s = _TURN_S
        if due_ns is not None:
            left_s = min(left_s, max(0.001, (due_ns - self.client.now_ns) / 1e9))
        timer = asyncio.get_running_loop().call_later(left_s, self._news.set)
        try:
            await self._news.wait()
        finally:
            timer.cancel()
        self._news.clear()

    def _put(self, message: ConsumerMessage) -> None:
        self._messages.append(message)
        self._news.set()

    def _take(self) -> None:
        while (fetched := self.core.take()) is not None:
            self._note(fetched)
        while (error := self.core.take_error()) is not None:
            self.client.on_error(error)

    def _note(self, fetched: Fetched) -> None:
        """What the core hands over, decoded and written down."""
        view = self._metadata.topics[self._topic]
        topic = Incarnation(self._topic, TopicId(view.topic_id), len(view.partitions))
        key = topic.key(fetched.topic_partition.partition)
        found: list[tuple[int, str]] = []
        try:
            for position, _ in iterate_headers(fetched.data):
                for offset, _, _, _, value, _ in decode_batch(fetched.data, position):
                    if offset >= fetched.first_offset:
                        assert value is not None, "the workload writes no tombstones"
                        found.append((offset, value.decode()))
        except CorruptBatch as error:
            self.client.history.damage.append(f"{key} at {fetched.first_offset}: {error}")
            return
        self.client.history.polls.append(
            Poll(
                reader=f"{self.client.name}/{key}",
                partition=key,
                began_ns=self.began_ns,
                ended_ns=self.client.now_ns,
                position=fetched.first_offset,
                records=tuple(found),
                high_watermark=fetched.high_watermark,
            )
        )

    # -- effects -------------------------------------------------------------------------------

    def _perform(self, effects: list[ConsumerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendFetch():
                    self._send(effect)
                case FetchMetadata():
                    self._scope.start(self._fetch_metadata(effect), name="metadata")
                case OpenStream():
                    self._scope.start(self._live(effect), name="fetch stream")
                case QueryOffsets():
                    self._scope.start(self._query(effect), name="offsets")
                case BreakStream():
                    stream = self._streams.pop(effect.stream, None)
                    if stream is not None:
                        stream.cancel()
                case _:
                    assert_never(effect)

    def _send(self, effect: SendFetch) -> None:
        request = wire.fetch_stream_request(
            effect.positions,
            effect.removed,
            credit_bytes=effect.credit_bytes,
            session_epoch=effect.session_epoch,
            max_bytes=_ANSWER_BYTES,
            client_rack=self._rack,
        )
        queue = self._queues.get(effect.stream)
        if queue is not None:
            queue.append(request)
            self._sending[effect.stream].set()

    async def _fetch_metadata(self, effect: FetchMetadata) -> None:
        request = wire.metadata_request(effect.topics, allow_auto_create=False)
        known = [broker.address for broker in self._metadata.brokers.values()]
        addresses = list(dict.fromkeys((*known, *self._bootstrap)))
        error: TidelogError | None = None
        begin = self.client.below(len(addresses))
        for address in (*addresses[begin:], *addresses[:begin]):
            try:
                answer = await self.client.ports.network.call(
                    address, wire.GET_METADATA, request, timeout_ms=_CALL_MS
                )
            except TidelogError as found:
                error = found
                continue
            self._put(MetadataArrived(view=wire.read_metadata(answer)))
            return
        assert error is not None, "there is a broker to ask"
        self._put(MetadataFailed(error=error))

    async def _query(self, effect: QueryOffsets) -> None:
        request = wire.list_offsets_request(effect.queries)
        try:
            answer = await self.client.ports.network.call(
                effect.address, wire.LIST_OFFSETS, request, timeout_ms=_REQUEST_MS
            )
        except TidelogError as error:
            self._put(OffsetsFailed(query=effect, error=error))
        else:
            self._put(OffsetsArrived(query=effect, answers=wire.read_offsets(answer)))

    async def _live(self, effect: OpenStream) -> None:
        """Reach the broker with a harmless call first, as the SDK's drivers do."""
        network, number = self.client.ports.network, effect.stream
        try:
            request = wire.metadata_request(())
            await network.call(effect.address, wire.GET_METADATA, request, timeout_ms=_REQUEST_MS)
            stream = network.stream(effect.address, wire.FETCH_STREAM)
        except TidelogError as error:
            self._put(StreamBroken(broker_id=effect.broker_id, stream=number, error=error))
            return
        self._streams[number] = stream
        self._queues[number] = []
        self._sending[number] = asyncio.Event()
        self._put(StreamOpened(broker_id=effect.broker_id, stream=number))
        self._scope.start(self._write(number, stream), name="fetch requests")
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
            tried=f"fetch from broker {effect.broker_id}",
            happened="the broker ended the stream",
        )
        try:
            while (data := await stream.receive()) is not None:
                session_epoch, partitions = wire.read_fetch_answer(data)
                self._put(
                    FetchAnswered(
                        broker_id=effect.broker_id,
                        stream=effect.stream,
                        session_epoch=session_epoch,
                        size_bytes=len(data),
                        partitions=partitions,
                    )
                )
        except TidelogError as found:
            error = found
        stream.cancel()
        self._streams.pop(effect.stream, None)
        self._queues.pop(effect.stream, None)
        self._sending.pop(effect.stream).set()
        self._put(StreamBroken(broker_id=effect.broker_id, stream=effect.stream, error=error))
