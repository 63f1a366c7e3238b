"""Runs the consumer's core on the user's thread, and performs its effects.

Owns inbox and streams of one consumer. Nothing runs between the user's calls except the readers of
the streams, which only fill the inbox as far as credit goes.
"""

import queue
import time
from typing import Final, assert_never

import msgspec

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
    fetch_request,
    log_reading,
    offsets_came,
)
from tidelog.client.shared.asking import Answer
from tidelog.client.shared.client_parts import metadata_came
from tidelog.client.sync.cluster_calls import ClusterCalls
from tidelog.client.sync.connections import Connections
from tidelog.client.sync.streams import FetchStream
from tidelog.client.wire import calls as wire
from tidelog.wire.errors import TidelogError


class Wakeup(msgspec.Struct, frozen=True):
    """Another thread wants the user's thread out of its wait."""


class News(msgspec.Struct, frozen=True):
    """The group's side has something for the user's thread to look at."""


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """The broker answers: its stream can be opened."""

    effect: OpenStream


WAKEUP: Final = Wakeup()
NEWS: Final = News()
Item = ConsumerMessage | Wakeup | News | Reached


class FetchLoop:
    """One per consumer; only the thread that uses the consumer calls it."""

    def __init__(
        self,
        settings: FetchLoopSettings,
        core: ConsumerCore,
        connections: Connections,
        calls: ClusterCalls,
    ) -> None:
        self.inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.is_woken = False
        self._has_turned = False
        self._settings = settings
        self._core = core
        self._connections = connections
        self._calls = calls
        self._streams: dict[int, FetchStream] = {}

    def turn(self, wait_s: float) -> None:
        """Bring the core up to date; then wait for one message, and take all that came."""
        self._has_turned = True
        now_ns = time.monotonic_ns()
        self._perform(self._core.tick(now_ns))
        deadline_ns = self._core.next_deadline_ns()
        if deadline_ns is not None:
            wait_s = min(wait_s, max(0.001, (deadline_ns - now_ns) / 1e9))
        try:
            item = self.inbox.get(timeout=wait_s) if wait_s > 0 else self.inbox.get_nowait()
            while True:
                self._take(item)
                item = self.inbox.get_nowait()
        except queue.Empty:
            pass

    def update(self) -> None:
        """Tell the brokers what the user changed or took; before the first wait there are none."""
        if not self._has_turned:
            return
        self._perform(self._core.tick(time.monotonic_ns()))

    def close(self) -> None:
        """End every stream."""
        for stream in list(self._streams.values()):
            stream.cancel()
        self._streams.clear()

    def _take(self, item: Item) -> None:
        if isinstance(item, Wakeup):
            self.is_woken = True
            return
        if isinstance(item, News):
            return
        if isinstance(item, Reached):
            effect = item.effect
            self._streams[effect.stream] = FetchStream(
                self._connections, effect.address, effect.broker_id, effect.stream, self.inbox.put
            )
            item = StreamOpened(broker_id=effect.broker_id, stream=effect.stream)
        elif isinstance(item, StreamBroken):
            self._streams.pop(item.stream, None)
        self._perform(self._core.step(item, time.monotonic_ns()))

    def _perform(self, effects: list[ConsumerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendFetch():
                    self._send(effect)
                case FetchMetadata():
                    self._fetch_metadata(effect)
                case OpenStream():
                    self._reach(effect)
                case QueryOffsets():
                    self._query(effect)
                case BreakStream():
                    stream = self._streams.pop(effect.stream, None)
                    if stream is not None:
                        stream.cancel()
                case TellUnread() | TellReadAgain():
                    log_reading(effect)
                case _:
                    assert_never(effect)

    def _send(self, effect: SendFetch) -> None:
        request = fetch_request(effect, self._settings)
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.send(request)

    def _fetch_metadata(self, effect: FetchMetadata) -> None:
        def on_answer(answer: Answer) -> None:
            self.inbox.put(metadata_came(answer))

        request = wire.metadata_request(
            effect.topics,
            allow_auto_create=self._settings.allow_auto_create_topics and effect.may_create,
        )
        self._connections.call_any_later(
            self._calls.addresses(),
            wire.GET_METADATA,
            request,
            self._settings.request_timeout_ms,
            on_answer,
        )

    def _reach(self, effect: OpenStream) -> None:
        def on_answer(answer: Answer) -> None:
            if isinstance(answer, TidelogError):
                self.inbox.put(
                    StreamBroken(broker_id=effect.broker_id, stream=effect.stream, error=answer)
                )
            else:
                self.inbox.put(Reached(effect=effect))

        self._connections.call_later(
            effect.address,
            wire.GET_METADATA,
            wire.metadata_request(()),
            self._settings.request_timeout_ms,
            on_answer,
        )

    def _query(self, effect: QueryOffsets) -> None:
        def on_answer(answer: Answer) -> None:
            self.inbox.put(offsets_came(effect, answer))

        self._connections.call_later(
            effect.address,
            wire.LIST_OFFSETS,
            wire.list_offsets_request(effect.queries, self._settings.isolation),
            self._settings.request_timeout_ms,
            on_answer,
        )
