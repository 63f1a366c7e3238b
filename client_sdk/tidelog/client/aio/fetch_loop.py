"""Performs the consumer core's effects on grpc.aio, and takes what comes back to it.

Owns the streams of one asyncio consumer. Everything runs on the user's loop: between two awaits
nobody else touches the core.
"""

import time
from collections.abc import Callable
from typing import assert_never

from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.aio.driver import Driver
from tidelog.client.aio.streams import AsyncStream
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.messages import (
    BreakStream,
    ConsumerEffect,
    ConsumerMessage,
    FetchMetadata,
    OpenStream,
    QueryOffsets,
    SendFetch,
    StreamBroken,
    StreamOpened,
    TellReadAgain,
    TellUnread,
)
from tidelog.client.reading.consumer_parts import (
    FetchLoopSettings,
    answered,
    fetch_request,
    log_reading,
    offsets_came,
)
from tidelog.client.shared.client_parts import metadata_came
from tidelog.client.wire import calls as wire
from tidelog.wire.errors import TidelogError


class AsyncFetchLoop:
    """One per consumer.

    `before_step` notes how far the user has come in what he was given, `after_step` drops what is
    void of it by then.
    """

    def __init__(
        self,
        settings: FetchLoopSettings,
        core: ConsumerCore,
        connections: AsyncConnections,
        calls: AsyncClusterCalls,
        before_step: Callable[[], None],
        after_step: Callable[[], None],
        on_unstopped: Callable[[], None],
    ) -> None:
        self.driver = Driver("asyncio consumer", self._turn, on_unstopped)
        self._settings = settings
        self._core = core
        self._connections = connections
        self._calls = calls
        self._before_step = before_step
        self._after_step = after_step
        self._streams: dict[int, AsyncStream] = {}

    def update(self) -> None:
        """Tell the brokers soon what the user changed or took."""
        self.driver.wake()

    async def close(self) -> None:
        """End every stream."""
        await self.driver.stop()
        self._streams.clear()

    def _turn(self) -> int | None:
        self._before_step()
        self._perform(self._core.tick(time.monotonic_ns()))
        self.driver.notify()
        return self._core.next_deadline_ns()

    def _step(self, message: ConsumerMessage) -> None:
        self._before_step()
        self._perform(self._core.step(message, time.monotonic_ns()))
        self._after_step()
        self.driver.wake()
        self.driver.notify()

    def _perform(self, effects: list[ConsumerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendFetch():
                    self._send(effect)
                case FetchMetadata():
                    self.driver.spawn(self._fetch_metadata(effect), "metadata")
                case OpenStream():
                    name = f"fetch from broker {effect.broker_id}"
                    self.driver.spawn(self._read(effect), name)
                case QueryOffsets():
                    self.driver.spawn(self._query(effect), "offsets")
                case BreakStream():
                    stream = self._streams.pop(effect.stream, None)
                    if stream is not None:
                        stream.cancel()
                case TellUnread() | TellReadAgain():
                    log_reading(effect)
                case _:
                    assert_never(effect)

    def _send(self, effect: SendFetch) -> None:
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.send(fetch_request(effect, self._settings))

    async def _fetch_metadata(self, effect: FetchMetadata) -> None:
        request = wire.metadata_request(
            effect.topics,
            allow_auto_create=self._settings.allow_auto_create_topics and effect.may_create,
        )
        try:
            answer: bytes | TidelogError = await self._connections.call_any(
                self._calls.addresses(),
                wire.GET_METADATA,
                request,
                self._settings.request_timeout_ms,
            )
        except TidelogError as error:
            answer = error
        self._step(metadata_came(answer))

    async def _read(self, effect: OpenStream) -> None:
        """Reach the broker, open the stream, and read it until it breaks."""
        broker_id, number = effect.broker_id, effect.stream
        tried = f"fetch from broker {broker_id} at {effect.address}"
        try:
            await self._connections.call(
                effect.address,
                wire.GET_METADATA,
                wire.metadata_request(()),
                self._settings.request_timeout_ms,
            )
            stream = AsyncStream(self._connections, effect.address, wire.FETCH_STREAM)
            self._streams[number] = stream
            self._step(StreamOpened(broker_id=broker_id, stream=number))
            async for data in stream.answers(self.driver.scope, tried=tried):
                self._step(answered(broker_id, number, data))
        except TidelogError as error:
            self._streams.pop(number, None)
            self._step(StreamBroken(broker_id=broker_id, stream=number, error=error))

    async def _query(self, effect: QueryOffsets) -> None:
        try:
            answer: bytes | TidelogError = await self._connections.call(
                effect.address,
                wire.LIST_OFFSETS,
                wire.list_offsets_request(effect.queries, self._settings.isolation),
                self._settings.request_timeout_ms,
            )
        except TidelogError as error:
            answer = error
        self._step(offsets_came(effect, answer))
