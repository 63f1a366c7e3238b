"""The SDK's consumer core at work over a Network port: the driver's part, without threads.

Owns what is read, and its history. It reads one topic that nobody deletes, all of its partitions,
from their first records on and never seeks: so whatever the core hands over is one session for each
partition.
"""

from typing import Final, assert_never

from tidelog.chaos.checkers.history.history import Poll
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.engine_driver import REQUEST_MS, EngineDriver, Opening
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.topics import TopicDesk, TopicSettings
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.messages import (
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
    OpenStream,
    QueryOffsets,
    SendFetch,
    StreamBroken,
    StreamOpened,
    TellReadAgain,
    TellUnread,
)
from tidelog.client.engine.fetch.settings import ConsumerSettings
from tidelog.client.wire import calls as wire
from tidelog.ports import TaskScope
from tidelog.wire.batch import CorruptBatch, decode_batch, iterate_headers
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import TopicId

_WINDOW_BYTES: Final = 64 * 1024
_ANSWER_BYTES: Final = 16 * 1024
_TURN_S: Final = 0.3
"""At least so often the core is asked whether time has brought something."""


class EngineReader(EngineDriver[ConsumerMessage]):
    """One consumer of the SDK, on one simulated process."""

    method = wire.FETCH_STREAM
    verb, tried = "fetch", "fetch from"

    def __init__(
        self, client: ClusterClient, topic: str, *, bootstrap: tuple[str, ...], rack: str
    ) -> None:
        super().__init__(client)
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
        self.began_ns = client.now_ns

    async def run(self) -> None:
        """Until cancelled or killed."""
        async with TaskScope() as scope:
            self.scope = scope
            self.core.subscribe([self._topic], self.client.now_ns)
            while True:
                self._perform(self.core.tick(self.client.now_ns))
                await self._wait()
                for message in self.take_messages():
                    self._perform(self.core.step(message, self.client.now_ns))
                self._take()

    async def _wait(self) -> None:
        due_ns = self.core.next_deadline_ns()
        left_s = _TURN_S
        if due_ns is not None:
            left_s = min(left_s, max(0.001, (due_ns - self.client.now_ns) / 1e9))
        await self.wait_news(left_s)

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
        # What was handed over is not read again when a log turns out to be cut.
        self.core.partitions[fetched.topic_partition].hand_over(fetched.next_offset)
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
                    self.scope.start(self._fetch_metadata(effect), name="metadata")
                case OpenStream():
                    self.scope.start(self.live(effect), name="fetch stream")
                case QueryOffsets():
                    self.scope.start(self._query(effect), name="offsets")
                case BreakStream():
                    self.break_stream(effect.stream)
                case TellUnread() | TellReadAgain():
                    pass
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
        self.send_on(effect.stream, request)

    async def _fetch_metadata(self, effect: FetchMetadata) -> None:
        request = wire.metadata_request(effect.topics, allow_auto_create=False)
        known = [broker.address for broker in self._metadata.brokers.values()]
        addresses = list(dict.fromkeys((*known, *self._bootstrap)))
        begin = self.client.below(len(addresses))
        answer = await self.ask(
            (*addresses[begin:], *addresses[:begin]), wire.GET_METADATA, request
        )
        if isinstance(answer, TidelogError):
            self.put(MetadataFailed(error=answer))
        else:
            self.put(MetadataArrived(view=wire.read_metadata(answer)))

    async def _query(self, effect: QueryOffsets) -> None:
        request = wire.list_offsets_request(effect.queries)
        try:
            answer = await self.client.ports.network.call(
                effect.address, wire.LIST_OFFSETS, request, timeout_ms=REQUEST_MS
            )
        except TidelogError as error:
            self.put(OffsetsFailed(query=effect, error=error))
        else:
            self.put(OffsetsArrived(query=effect, answers=wire.read_offsets(answer)))

    def opened(self, effect: Opening) -> ConsumerMessage:
        """The stream can be used."""
        return StreamOpened(broker_id=effect.broker_id, stream=effect.stream)

    def unreached(self, effect: Opening, error: TidelogError) -> ConsumerMessage:
        """There is no stream."""
        return self.broken(effect, error)

    def broken(self, effect: Opening, error: TidelogError) -> ConsumerMessage:
        """The stream is gone."""
        return StreamBroken(broker_id=effect.broker_id, stream=effect.stream, error=error)

    def answered(self, effect: Opening, data: bytes) -> ConsumerMessage:
        """Batches came."""
        session_epoch, partitions = wire.read_fetch_answer(data)
        return FetchAnswered(
            broker_id=effect.broker_id,
            stream=effect.stream,
            session_epoch=session_epoch,
            size_bytes=len(data),
            partitions=partitions,
        )
