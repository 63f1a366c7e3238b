"""The producer's I/O thread: takes messages to the core and performs its effects.

Owns the core, the streams and their sequence in time. User threads reach it through the inbox and
the accumulator only. A bug in here ends the producer, with every waiting future told.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, assert_never, cast

import msgspec

from tidelog.client.engine.produce.accumulator import Accumulator
from tidelog.client.engine.produce.batch import Batch
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
from tidelog.client.shared import io_threads
from tidelog.client.shared.asking import Answer, OnAnswer
from tidelog.client.shared.client_parts import metadata_came
from tidelog.client.sync.connections import Connections
from tidelog.client.sync.future import complete
from tidelog.client.sync.streams import ProduceStream
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
_FAR_NS: Final = 1 << 62


class Wake(msgspec.Struct, frozen=True):
    """Something changed in the accumulator."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """End the thread; what is not done fails with the error."""

    error: TidelogError


WAKE: Final = Wake()
Item = Message | Wake | Stop


class Shared:
    """What user threads and the I/O thread share, all of it under `lock`."""

    def __init__(self, accumulator: Accumulator) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        """Notified when room, a topic or an error came."""
        self.accumulator = accumulator
        self.unfinished: dict[int, Batch] = {}
        """Sealed and not done, by number."""
        self.refused_topics: dict[str, RefuseTopic] = {}
        self.planned_ns = _FAR_NS
        """When the I/O thread wakes by itself."""
        self.is_wake_pending = False


class ProduceLoop:
    """Runs on its own thread from `start` to `stop`."""

    def __init__(
        self,
        settings: LoopSettings,
        core: ProducerCore,
        shared: Shared,
        connections: Connections,
        on_dead: Callable[[], None],
        on_phase: OnPhase,
    ) -> None:
        self.inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.core = core
        self.requests = request_maker(settings)
        self.producing: ProducingCore | None = None
        """The core with its transactions, of a producer that has any."""
        self.calls: dict[int, queue.SimpleQueue[CallDone | TidelogError]] = {}
        """Of the user's, about transactions, that are not answered yet; under the lock."""
        self.connections = connections
        self._settings = settings
        self._shared = shared
        self._connections = connections
        self._on_phase = on_phase
        self._streams: dict[int, ProduceStream] = {}
        self._addresses: dict[int, str] = {}
        """Of streams that are being opened."""
        self._on_dead = on_dead
        self._stop: Stop | None = None
        self.thread = threading.Thread(target=self._run, name="tidelog-producer", daemon=True)

    def _run(self) -> None:
        io_threads.become_io_thread()
        try:
            while self._stop is None:
                self._turn()
            self._end(self._stop.error)
        except Exception as error:  # noqa: BLE001 - the thread's supervisor
            _log.exception("the producer's I/O thread failed")
            self._on_dead()
            self._end(
                TidelogError(
                    ErrorCode.UNKNOWN,
                    tried="run the producer's I/O thread",
                    happened=f"{type(error).__name__}: {error}",
                    hint="this is a bug of the SDK: report it with the log",
                )
            )

    def _turn(self) -> None:
        """Wait for something to do, then do all of it."""
        messages: list[Message] = []
        item = self._wait()
        while item is not None:
            if isinstance(item, Stop):
                self._stop = item
            elif not isinstance(item, Wake):
                self._note_stream(item)
                messages.append(item)
            try:
                item = self.inbox.get_nowait()
            except queue.Empty:
                item = None
        now_ns = time.monotonic_ns()
        shared = self._shared
        with shared.lock:
            shared.is_wake_pending = False
            shared.planned_ns = 0
            shared.accumulator.seal_due(now_ns)
            sealed = shared.accumulator.take_sealed()
            for batch in sealed:
                shared.unfinished[batch.number] = batch
        # A call that ends a transaction comes behind everything that was appended before it.
        self._perform(self._steps([*map(sealed_message, sealed), *messages], now_ns))

    def _steps(self, messages: Sequence[Message], now_ns: int) -> Sequence[Effect]:
        producing = self.producing
        if producing is None:
            return self.core.steps(cast("Sequence[ProducerMessage]", messages), now_ns)
        before = producing.phase
        effects = producing.steps(messages, now_ns)
        if producing.phase is not before:
            with self._shared.lock:
                self._on_phase(producing.phase, producing.trouble)
        return effects

    def _note_stream(self, message: Message) -> None:
        """Streams are made and forgotten here, so that one thread owns them."""
        if isinstance(message, StreamOpened):
            self._streams[message.stream] = ProduceStream(
                self._connections,
                self._addresses.pop(message.stream),
                message.broker_id,
                message.stream,
                self.inbox.put,
            )
        elif isinstance(message, StreamBroken):
            self._streams.pop(message.stream, None)
        elif isinstance(message, ConnectFailed):
            self._addresses.pop(message.stream, None)

    def _wait(self) -> Item | None:
        shared = self._shared
        core_ns = (self.producing or self.core).next_deadline_ns()
        with shared.lock:
            linger_ns = shared.accumulator.next_linger_ns()
            deadlines = [found for found in (core_ns, linger_ns) if found is not None]
            planned_ns = min(deadlines, default=_FAR_NS)
            shared.planned_ns = planned_ns
            if shared.accumulator.sealed:
                planned_ns = 0
        left_ns = planned_ns - time.monotonic_ns()
        try:
            if left_ns <= 0:
                return self.inbox.get_nowait()
            return self.inbox.get(timeout=min(left_ns / 1e9, 3600.0))
        except queue.Empty:
            return None

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendProduce():
                    self._send(effect)
                case CompleteBatch():
                    self._complete(effect)
                case FetchMetadata():
                    self._fetch_metadata(effect)
                case AllocateProducerId():
                    self._allocate_producer_id()
                case OpenStream():
                    self._open(effect)
                case BreakStream():
                    stream = self._streams.pop(effect.stream, None)
                    if stream is not None:
                        stream.cancel()
                case RouteTopic():
                    self._route(effect)
                case RefuseTopic():
                    with self._shared.lock:
                        self._shared.refused_topics[effect.topic] = effect
                        self._shared.changed.notify_all()
                case TellWaiting():
                    _log.warning(waiting_text(effect, self._settings.delivery_timeout_ms))
                case TellCallWaits():
                    _log.warning(effect.text)
                case CallDone():
                    self._call_done(effect)
                case FindCoordinator():
                    self._find_coordinator(effect)
                case SendInitialize() | SendOffsets() | SendEnd() | SendPrepare() | SendDecide():
                    self._ask_coordinator(effect)
                case _:
                    assert_never(effect)

    def _send(self, effect: SendProduce) -> None:
        request = self.requests.make(effect)
        stream = self._streams.get(effect.stream)
        # A stream that broke meanwhile has its break in the inbox: the core judges the request.
        if stream is not None:
            stream.send(request)

    def _complete(self, effect: CompleteBatch) -> None:
        shared = self._shared
        with shared.lock:
            shared.unfinished.pop(effect.batch.number, None)
            shared.accumulator.release(effect.batch)
            shared.changed.notify_all()
        complete(effect.batch, effect.outcome)

    def _fetch_metadata(self, effect: FetchMetadata) -> None:
        def on_answer(answer: Answer) -> None:
            self.inbox.put(metadata_came(answer))

        request = wire.metadata_request(
            effect.topics,
            allow_auto_create=self._settings.allow_auto_create_topics and effect.may_create,
        )
        self._ask_anybody(wire.GET_METADATA, request, on_answer)

    def _allocate_producer_id(self) -> None:
        def on_answer(answer: Answer) -> None:
            self.inbox.put(identity_came(answer))

        self._ask_anybody(wire.ALLOCATE_PRODUCER_ID, wire.producer_id_request(), on_answer)

    def _call_done(self, done: CallDone) -> None:
        assert self.producing is not None, "a call about transactions has a core"
        with self._shared.lock:
            self._on_phase(self.producing.phase, self.producing.trouble, done.call)
            waiter = self.calls.pop(done.call, None)
        if waiter is not None:
            waiter.put(done)

    def _find_coordinator(self, effect: FindCoordinator) -> None:
        def on_answer(answer: Answer) -> None:
            self.inbox.put(wire_transactions.coordinator_came(effect.of, answer))

        request = wire_transactions.find_request(effect.of)
        self._ask_anybody(FIND_COORDINATORS, request, on_answer)

    def _ask_coordinator(self, effect: CoordinatorRequest) -> None:
        def on_answer(answer: Answer) -> None:
            self.inbox.put(wire_transactions.answer_came(effect, answer))

        settings = self._settings
        method, request = wire_transactions.request_of(
            effect, settings.transactional_id or "", settings.transaction_timeout_ms
        )
        timeout_ms = min(settings.request_timeout_ms, COORDINATOR_TIMEOUT_MS)
        self._connections.call_later(effect.address, method, request, timeout_ms, on_answer)

    def _ask_anybody(self, method: str, request: bytes, on_answer: OnAnswer) -> None:
        self._connections.call_any_later(
            addresses_to_ask(self.core, self._settings.bootstrap),
            method,
            request,
            self._settings.request_timeout_ms,
            on_answer,
        )

    def _open(self, effect: OpenStream) -> None:
        """Reach the broker with a harmless call first: then nothing sent means nothing stored."""

        def on_answer(answer: Answer) -> None:
            if isinstance(answer, TidelogError):
                self.inbox.put(
                    ConnectFailed(broker_id=effect.broker_id, stream=effect.stream, error=answer)
                )
            else:
                self.inbox.put(StreamOpened(broker_id=effect.broker_id, stream=effect.stream))

        self._addresses[effect.stream] = effect.address
        self._connections.call_later(
            effect.address,
            wire.GET_METADATA,
            wire.metadata_request(()),
            self._settings.request_timeout_ms,
            on_answer,
        )

    def _route(self, effect: RouteTopic) -> None:
        shared = self._shared
        with shared.lock:
            shared.accumulator.set_route(effect.topic, effect.topic_id, effect.partition_count)
            shared.refused_topics.pop(effect.topic, None)
            shared.changed.notify_all()

    def _end(self, error: TidelogError) -> None:
        self._perform(self.core.abandon(error))
        shared = self._shared
        with shared.lock:
            shared.accumulator.seal_all()
            left = [*shared.unfinished.values(), *shared.accumulator.take_sealed()]
            shared.unfinished.clear()
            for batch in left:
                shared.accumulator.release(batch)
            waiters = list(self.calls.values())
            self.calls.clear()
            shared.changed.notify_all()
        for waiter in waiters:
            waiter.put(error)
        for batch in left:
            if batch.outcome is None:
                complete(batch, error)
        for stream in list(self._streams.values()):
            stream.cancel()
        self._streams.clear()
        self._connections.close()
