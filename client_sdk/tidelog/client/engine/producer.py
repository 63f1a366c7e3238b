"""Sends sealed batches: decides what goes where, when, and what may be tried again.

Owns queues, in-flight requests and links to brokers. It must never resend a batch whose outcome is
unknown, nor let a retry overtake a later batch of its partition. Stops 3, 4, 9 of a record's walk.

Theory of operation. A sealed batch waits in its partition's queue until the leader is known, a
stream to it is open and has room. Answers end it, refuse it or leave its outcome open:

    waiting ──► in flight ──stored──────────────────────► done
       ▲            ├─────outcome unknown───────────────► done (INDETERMINATE)
       │            └─────refused, retriable──► refused
       └──── the partition has nothing in flight any more, and nothing overtook

A partition with a refused batch sends nothing else. If a later batch of it was stored, or may have
been, the refused one fails with its own error: sent again it would stand behind its successor.
"""

from collections import deque
from collections.abc import Iterable
from typing import assert_never

import msgspec

from tidelog.client.engine.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.batch import Acknowledgement, Batch, Outcome
from tidelog.client.engine.metadata import BrokerView, MetadataCache
from tidelog.client.engine.outcomes import STALE_METADATA, indeterminate, is_known_not_stored
from tidelog.client.engine.producer_messages import (
    Answered,
    BatchSealed,
    BreakStream,
    CompleteBatch,
    ConnectFailed,
    MetadataArrived,
    MetadataFailed,
    OpenStream,
    ProducerEffect,
    ProducerMessage,
    SendProduce,
    StreamBroken,
    StreamOpened,
    TopicWanted,
)
from tidelog.client.engine.topics import TopicDesk
from tidelog.wire.errors import ErrorCode, TidelogError


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the core needs of the producer's options."""

    in_flight_max: int
    request_bytes_max: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retries_max: int


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """On its way to a broker."""

    batches: tuple[Batch, ...]
    sent_at_ns: int


class Link:
    """One broker: connecting, open, or waiting after a failure."""

    __slots__ = ("broker_id", "failures", "is_open", "requests", "retry_at_ns", "stream")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.stream: int | None = None
        """Number of the stream that is open or being opened; None: there is none."""
        self.is_open = False
        self.failures = 0
        self.retry_at_ns = 0
        self.requests: dict[int, Request] = {}
        """By correlation id, oldest first."""

    def close(self) -> None:
        """Forget the stream; its requests must have been judged."""
        assert not self.requests, f"broker {self.broker_id} has unjudged requests"
        self.stream, self.is_open = None, False


class Lane:
    """The batches of one partition, in order."""

    __slots__ = (
        "broker_id",
        "in_flight",
        "is_overtaken",
        "refused",
        "retry_at_ns",
        "stale_at_ns",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.refused: list[Batch] = []
        self.is_overtaken = False
        """A batch behind a refused one is stored, or may be."""
        self.retry_at_ns = 0
        self.stale_at_ns = -1
        """When a broker said that the leader is another: only newer metadata may be followed."""
        self.broker_id = -1
        """Who has what is in flight."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the partition is left."""
        return not (self.waiting or self.in_flight or self.refused)


LaneKey = tuple[str, int]


class ProducerCore:
    """Messages in, effects out; one task or thread calls it."""

    def __init__(
        self,
        settings: ProducerSettings,
        metadata: MetadataCache,
        topics: TopicDesk,
        backoff: Backoff,
    ) -> None:
        self.settings = settings
        self.metadata = metadata
        self.topics = topics
        self.lanes: dict[LaneKey, Lane] = {}
        self.links: dict[int, Link] = {}
        self.streams_opened = 0
        self.requests_sent = 0
        self._backoff = backoff
        self._effects: list[ProducerEffect] = []

    def step(self, message: ProducerMessage, now_ns: int) -> list[ProducerEffect]:
        """One message; the effects are to be performed in their order."""
        return self.steps((message,), now_ns)

    def steps(self, messages: Iterable[ProducerMessage], now_ns: int) -> list[ProducerEffect]:
        """Several at once, so that batches sealed together travel together."""
        for message in messages:
            self._take(message, now_ns)
        return self.tick(now_ns)

    def _take(self, message: ProducerMessage, now_ns: int) -> None:
        match message:
            case BatchSealed():
                self._on_batch_sealed(message.batch)
            case TopicWanted():
                self.topics.want(message.topic, now_ns)
            case MetadataArrived():
                self._effects += self.topics.on_metadata(message.view, now_ns)
            case MetadataFailed():
                self._on_metadata_failed(message.error, now_ns)
            case StreamOpened():
                self._on_stream_opened(message)
            case ConnectFailed():
                self._on_connect_failed(message, now_ns)
            case StreamBroken():
                self._on_stream_broken(message, now_ns)
            case Answered():
                self._on_answered(message, now_ns)
            case _:
                assert_never(message)

    def tick(self, now_ns: int) -> list[ProducerEffect]:
        """Time passed: expire, retry, send what can be sent."""
        self._end_waits(now_ns)
        self._expire(now_ns)
        self._send(now_ns)
        self._effects += self.topics.tick(now_ns)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes; None: never."""
        due_at_ns = self.topics.next_deadline_ns()
        deadlines = [] if due_at_ns is None else [due_at_ns]
        delivery_ns = self.settings.delivery_timeout_ms * NS_PER_MS
        for lane in self.lanes.values():
            if lane.waiting:
                deadlines.append(lane.waiting[0].opened_at_ns + delivery_ns)
                if lane.retry_at_ns:
                    deadlines.append(lane.retry_at_ns)
        for link in self.links.values():
            if link.retry_at_ns:
                deadlines.append(link.retry_at_ns)
            if link.requests:
                oldest = next(iter(link.requests.values()))
                deadlines.append(oldest.sent_at_ns + self.settings.request_timeout_ms * NS_PER_MS)
        return min(deadlines, default=None)

    def unfinished(self) -> list[Batch]:
        """Every batch without an outcome, in no order across partitions."""
        return [
            batch
            for lane in self.lanes.values()
            for batch in (*lane.in_flight, *lane.refused, *lane.waiting)
        ]

    def abandon(self, error: TidelogError) -> list[ProducerEffect]:
        """The client closes without waiting: in-flight batches are indeterminate, others fail."""
        for link in self.links.values():
            self._judge_unanswered(link, error)
            link.close()
        for lane in list(self.lanes.values()):
            for batch in [*lane.refused, *lane.waiting]:
                self._finish(batch, error)
            lane.refused.clear()
            lane.waiting.clear()
        self.lanes.clear()
        effects, self._effects = self._effects, []
        return effects

    # Messages.

    def _on_batch_sealed(self, batch: Batch) -> None:
        assert batch.is_sealed, f"{batch!r} is not sealed"
        lane = self.lanes.setdefault((batch.topic, batch.partition), Lane())
        assert not lane.waiting or lane.waiting[-1].number < batch.number, (
            f"{batch!r} was sealed before one that was opened earlier"
        )
        lane.waiting.append(batch)

    def _on_metadata_failed(self, error: TidelogError, now_ns: int) -> None:
        self._effects += self.topics.on_failure(error, now_ns)
        for lane in self.lanes.values():
            if lane.waiting and lane.waiting[0].last_error is None:
                lane.waiting[0].last_error = error

    def _on_stream_opened(self, message: StreamOpened) -> None:
        link = self._current(message.broker_id, message.stream)
        if link is None:
            self._effects.append(BreakStream(broker_id=message.broker_id, stream=message.stream))
            return
        link.is_open, link.failures, link.retry_at_ns = True, 0, 0

    def _on_connect_failed(self, message: ConnectFailed, now_ns: int) -> None:
        link = self._current(message.broker_id, message.stream)
        if link is None:
            return
        self._lose(link, message.error, now_ns)

    def _on_stream_broken(self, message: StreamBroken, now_ns: int) -> None:
        link = self._current(message.broker_id, message.stream)
        if link is None:
            return
        self._judge_unanswered(link, message.error)
        self._lose(link, message.error, now_ns)

    def _on_answered(self, message: Answered, now_ns: int) -> None:
        link = self._current(message.broker_id, message.stream)
        request = None if link is None else link.requests.pop(message.correlation_id, None)
        if link is None or request is None:
            return
        if message.throttle_ms:
            link.retry_at_ns = now_ns + message.throttle_ms * NS_PER_MS
        outcomes: tuple[Outcome, ...] = message.outcomes
        if message.error is not None:
            outcomes = (message.error,) * len(request.batches)
        elif len(outcomes) != len(request.batches):
            happened = f"{len(outcomes)} answers for {len(request.batches)} batches"
            error = TidelogError(ErrorCode.UNKNOWN, tried="produce", happened=happened)
            outcomes = (error,) * len(request.batches)
        for batch, outcome in zip(request.batches, outcomes, strict=True):
            self._judge(batch, outcome, now_ns)

    # Judgement.

    def _judge(self, batch: Batch, outcome: Outcome, now_ns: int) -> None:
        lane = self.lanes[batch.topic, batch.partition]
        lane.in_flight.remove(batch)
        if isinstance(outcome, Acknowledgement):
            lane.is_overtaken = bool(lane.refused)
            self._finish(batch, outcome)
        elif not is_known_not_stored(outcome):
            lane.is_overtaken = bool(lane.refused)
            self._finish(batch, indeterminate(batch.topic, batch.partition, outcome))
        elif outcome.retriable and batch.attempts <= self.settings.retries_max:
            batch.last_error = outcome
            lane.refused.append(batch)
            lane.retry_at_ns = now_ns + self._backoff.delay_ns(batch.attempts)
            if outcome.code in STALE_METADATA:
                lane.stale_at_ns = now_ns
                self.topics.refresh(now_ns)
        else:
            self._finish(batch, outcome)
        self._settle(batch.topic, batch.partition, lane)

    def _judge_unanswered(self, link: Link, cause: TidelogError) -> None:
        requests = list(link.requests.values())
        link.requests.clear()
        for request in requests:
            for batch in request.batches:
                lane = self.lanes[batch.topic, batch.partition]
                lane.in_flight.remove(batch)
                lane.is_overtaken = bool(lane.refused)
                self._finish(batch, indeterminate(batch.topic, batch.partition, cause))
                self._settle(batch.topic, batch.partition, lane)

    def _settle(self, topic: str, partition: int, lane: Lane) -> None:
        """With nothing in flight the refused batches go back in front, or fail."""
        if not lane.in_flight and lane.refused:
            refused = sorted(lane.refused, key=lambda batch: batch.number)
            lane.refused = []
            if lane.is_overtaken:
                for batch in refused:
                    assert batch.last_error is not None, f"{batch!r} was refused without an error"
                    self._finish(batch, batch.last_error)
            else:
                lane.waiting.extendleft(reversed(refused))
            lane.is_overtaken = False
        if lane.is_idle:
            del self.lanes[topic, partition]

    def _finish(self, batch: Batch, outcome: Outcome) -> None:
        self._effects.append(CompleteBatch(batch=batch, outcome=outcome))

    # Links.

    def _current(self, broker_id: int, stream: int) -> Link | None:
        link = self.links.get(broker_id)
        return link if link is not None and link.stream == stream else None

    def _lose(self, link: Link, error: TidelogError, now_ns: int) -> None:
        link.close()
        link.failures += 1
        link.retry_at_ns = now_ns + self._backoff.delay_ns(link.failures)
        self.topics.refresh(now_ns)
        for (topic, partition), lane in self.lanes.items():
            leader = self.metadata.leader(topic, partition)
            if lane.waiting and leader is not None and leader[0].broker_id == link.broker_id:
                lane.waiting[0].last_error = error

    # Time.

    def _end_waits(self, now_ns: int) -> None:
        for lane in self.lanes.values():
            if lane.retry_at_ns and now_ns >= lane.retry_at_ns:
                lane.retry_at_ns = 0
        for link in self.links.values():
            if link.retry_at_ns and now_ns >= link.retry_at_ns:
                link.retry_at_ns = 0

    def _expire(self, now_ns: int) -> None:
        timeout_ns = self.settings.request_timeout_ms * NS_PER_MS
        for link in self.links.values():
            if not link.requests or link.stream is None:
                continue
            oldest = next(iter(link.requests.values()))
            if now_ns >= oldest.sent_at_ns + timeout_ns:
                happened = f"no answer within request_timeout_ms={self.settings.request_timeout_ms}"
                error = TidelogError(
                    ErrorCode.DEADLINE_EXCEEDED, tried="produce", happened=happened
                )
                self._effects.append(BreakStream(broker_id=link.broker_id, stream=link.stream))
                self._judge_unanswered(link, error)
                self._lose(link, error, now_ns)
        self._expire_waiting(now_ns)

    def _expire_waiting(self, now_ns: int) -> None:
        timeout_ms = self.settings.delivery_timeout_ms
        for (topic, partition), lane in list(self.lanes.items()):
            while lane.waiting and now_ns >= lane.waiting[0].opened_at_ns + timeout_ms * NS_PER_MS:
                batch = lane.waiting.popleft()
                self._finish(batch, _undelivered(batch, timeout_ms))
            if lane.is_idle:
                del self.lanes[topic, partition]

    # Sending.

    def _send(self, now_ns: int) -> None:
        ready: dict[int, list[tuple[Lane, int]]] = {}
        for (topic, partition), lane in list(self.lanes.items()):
            if not lane.waiting or lane.refused:
                continue
            if lane.retry_at_ns or self._fail_if_recreated(topic, partition, lane):
                continue
            leader = self.metadata.leader(topic, partition)
            if leader is None or self.metadata.updated_at_ns <= lane.stale_at_ns:
                self.topics.refresh(now_ns)
                continue
            lane.stale_at_ns = -1
            broker, leader_epoch = leader
            # Two brokers at once could store the partition's batches in either order.
            if lane.in_flight and lane.broker_id != broker.broker_id:
                continue
            if self._is_sendable(broker):
                lane.broker_id = broker.broker_id
                ready.setdefault(broker.broker_id, []).append((lane, leader_epoch))
        for broker_id, lanes in ready.items():
            self._fill(self.links[broker_id], lanes, now_ns)

    def _is_sendable(self, broker: BrokerView) -> bool:
        link = self.links.setdefault(broker.broker_id, Link(broker.broker_id))
        if link.retry_at_ns:
            return False
        if link.stream is None:
            self.streams_opened += 1
            link.stream = self.streams_opened
            self._effects.append(
                OpenStream(broker_id=broker.broker_id, stream=link.stream, address=broker.address)
            )
        return link.is_open and len(link.requests) < self.settings.in_flight_max

    def _fill(self, link: Link, lanes: list[tuple[Lane, int]], now_ns: int) -> None:
        """As many requests as the limit allows; in each at most one batch of a partition."""
        while lanes and len(link.requests) < self.settings.in_flight_max:
            batches: list[Batch] = []
            epochs: list[int] = []
            size_bytes = 0
            later: list[tuple[Lane, int]] = []
            for lane, leader_epoch in lanes:
                batch = lane.waiting[0]
                if batches and size_bytes + batch.size_bytes > self.settings.request_bytes_max:
                    later.append((lane, leader_epoch))
                    continue
                lane.waiting.popleft()
                lane.in_flight.append(batch)
                batch.attempts += 1
                batches.append(batch)
                epochs.append(leader_epoch)
                size_bytes += batch.size_bytes
            behind = [found for found in lanes if found not in later and found[0].waiting]
            lanes = later + behind
            self._send_request(link, tuple(batches), tuple(epochs), now_ns)

    def _send_request(
        self, link: Link, batches: tuple[Batch, ...], epochs: tuple[int, ...], now_ns: int
    ) -> None:
        assert link.is_open, f"broker {link.broker_id} has no open stream"
        assert link.stream is not None, f"broker {link.broker_id} has no stream number"
        self.requests_sent += 1
        link.requests[self.requests_sent] = Request(batches=batches, sent_at_ns=now_ns)
        self._effects.append(
            SendProduce(
                broker_id=link.broker_id,
                stream=link.stream,
                correlation_id=self.requests_sent,
                batches=batches,
                leader_epochs=epochs,
            )
        )

    def _fail_if_recreated(self, topic: str, partition: int, lane: Lane) -> bool:
        """What was meant for a deleted topic never reaches its namesake."""
        known = self.metadata.topics.get(topic)
        if known is None or known.topic_id == lane.waiting[0].topic_id:
            return False
        while lane.waiting and lane.waiting[0].topic_id != known.topic_id:
            error = TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                tried=f"produce to {topic}-{partition}",
                happened=f"topic {topic!r} was deleted and created again",
            )
            self._finish(lane.waiting.popleft(), error)
        if lane.is_idle:
            del self.lanes[topic, partition]
            return True
        return False


def _undelivered(batch: Batch, timeout_ms: int) -> TidelogError:
    tried = f"produce to {batch.topic}-{batch.partition}"
    cause = batch.last_error
    if cause is None:
        return TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=tried,
            happened=f"not sent within delivery_timeout_ms={timeout_ms}",
            hint="raise delivery_timeout_ms, or send less at a time",
        )
    return TidelogError(
        cause.code,
        tried=tried,
        happened=f"not stored within delivery_timeout_ms={timeout_ms}: {cause.happened}",
        hint=cause.hint,
    )
