"""Sends sealed batches: decides what goes where and when.

Owns queues, in-flight requests and links to brokers. It must never send what `judge` has ended, nor
the batches of one partition to two brokers at once. Stops 3, 4, 9 of a record's walk.

Theory of operation. A sealed batch waits in its partition's queue until the leader is known, a
stream to it is open and has room. Answers end it, refuse it or leave its outcome open:

    waiting ──► in flight ──stored───────────────────────► done
       ▲            ├─────outcome unknown, no sequence───► done (INDETERMINATE)
       │            ├─────outcome unknown──► refused
       │            └─────refused, retriable──► refused
       └──── the partition has nothing in flight any more, and nothing overtook

A partition with a refused batch sends nothing else. Without sequences a later batch of it may have
been stored, and told first: then the refused one fails with its own error, since sent again it
would stand behind its successor. With sequences (`is_idempotent`) no broker stores one batch
without those before it.

A numbered batch need not wait for an answer that does not come: when metadata names another leader,
what the old one has is sent to the new one at once, and metadata is asked for while a broker is
silent.
"""

from collections.abc import Iterable
from typing import Final, assert_never

from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.cluster.metadata import BrokerView, MetadataCache
from tidelog.client.engine.cluster.topics import TopicDesk
from tidelog.client.engine.produce.batch import Batch, Outcome
from tidelog.client.engine.produce.clocks import judged_by_own_clock
from tidelog.client.engine.produce.judge import PlainJudge, SequenceJudge, TransactionJudge
from tidelog.client.engine.produce.lane import Lane
from tidelog.client.engine.produce.link import Link, Request
from tidelog.client.engine.produce.links import Links
from tidelog.client.engine.produce.messages import (
    Answered,
    BatchSealed,
    BreakStream,
    CompleteBatch,
    ConnectFailed,
    LeaderHint,
    MetadataArrived,
    MetadataFailed,
    ProducerEffect,
    ProducerIdAllocated,
    ProducerIdFailed,
    ProducerMessage,
    RefuseTopic,
    SendProduce,
    StreamBroken,
    StreamOpened,
    TopicWanted,
)
from tidelog.client.engine.produce.outcomes import NOT_LET_IN, STALE_METADATA, indeterminate
from tidelog.client.engine.produce.producer_ids import ProducerIdDesk, ProducerIdentity
from tidelog.client.engine.produce.sequences import Sequencer
from tidelog.client.engine.produce.settings import ProducerSettings
from tidelog.client.engine.produce.waiting import WaitWatch, note_missing
from tidelog.wire.errors import ErrorCode, TidelogError

NEVER_NS: Final = 1 << 62
BATCHES_IN_FLIGHT_MAX: Final = 16
"""Of one partition, numbered: as many as a partition remembers of a producer."""


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
        self._links = Links(backoff)
        self.links = self._links.by_broker
        self.requests_sent = 0
        self._backoff = backoff
        self._effects: list[ProducerEffect] = []
        self._expiry_ns = NEVER_NS
        """With sequences no batch expires before: whoever is done by then makes it too early."""
        self._watch = WaitWatch()
        self.producer_ids = ProducerIdDesk(backoff)
        self.sequencer: Sequencer | None = None
        self._judge_as: PlainJudge | SequenceJudge
        if settings.is_idempotent:
            self.sequencer = Sequencer(self.producer_ids)
            judge = TransactionJudge if settings.is_transactional else SequenceJudge
            self._judge_as = judge(
                metadata,
                topics,
                backoff,
                retries_max=settings.retries_max,
                finish=self._finish,
                sequencer=self.sequencer,
            )
        else:
            self._judge_as = PlainJudge(
                metadata, topics, backoff, retries_max=settings.retries_max, finish=self._finish
            )

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
                if self.settings.is_idempotent and not self.settings.is_transactional:
                    self.producer_ids.want(now_ns)
            case MetadataArrived():
                wanted = set(self.topics.wanted)
                told = self.topics.on_metadata(message.view, now_ns)
                self._effects += told
                for each in told:
                    if isinstance(each, RefuseTopic) and each.is_final and each.topic in wanted:
                        self._fail_unrouted(each.topic, each.error)
                self._follow_leaders()
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
            case ProducerIdAllocated():
                self.producer_ids.on_allocated(message.identity)
            case ProducerIdFailed():
                self._on_producer_id_failed(message.error, now_ns)
            case _:
                assert_never(message)

    def tick(self, now_ns: int) -> list[ProducerEffect]:
        """Time passed: expire, retry, send what can be sent."""
        self._end_waits(now_ns)
        self._expire(now_ns)
        self._send(now_ns)
        # A broker that hangs cannot say that another one leads by now.
        if self.settings.is_idempotent and self._links.look_behind_silence(now_ns):
            self.topics.refresh(now_ns)
        self._effects += self.topics.tick(now_ns)
        self._effects += self.producer_ids.tick(now_ns)
        self._effects += self._watch.tick(self.lanes, self.links, now_ns)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes; None: never."""
        parts = (self.topics, self.producer_ids, self._watch)
        deadlines = [due for part in parts if (due := part.next_deadline_ns()) is not None]
        delivery_ns = self.settings.delivery_timeout_ms * NS_PER_MS
        is_idempotent = self.settings.is_idempotent
        if is_idempotent and self.lanes:
            deadlines.append(self._expiry_ns)
        for lane in self.lanes.values():
            if not lane.waiting:
                continue
            if not is_idempotent:
                deadlines.append(lane.waiting[0].opened_at_ns + delivery_ns)
            if lane.retry_at_ns:
                deadlines.append(lane.retry_at_ns)
        deadlines += self._links.deadlines(
            self.settings.request_timeout_ms, is_silence_looked_at=is_idempotent
        )
        return min(deadlines, default=None)

    def is_silent(self, broker_id: int) -> bool:
        """Whether the broker owes an answer for so long that another one had better be asked."""
        return self._links.is_silent(broker_id)

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
            link.requests.clear()
            link.close()
        for (topic, partition), lane in self.lanes.items():
            unknown = indeterminate(topic, partition, error)
            for batch in lane.in_flight:
                self._finish(batch, unknown)
            for batch in [*lane.refused, *lane.waiting]:
                self._finish(batch, unknown if batch.is_doubtful else error)
        self.lanes.clear()
        effects, self._effects = self._effects, []
        return effects

    def use_identity(self, identity: ProducerIdentity) -> None:
        """What is numbered from now on belongs to the next transaction: sequences begin at 0."""
        assert self.sequencer is not None, "batches of a transaction are numbered"
        assert not self.lanes, f"of the transaction before there is more: {list(self.lanes)}"
        self.sequencer.partitions.clear()
        self.producer_ids.on_allocated(identity)

    def drop(self, error: TidelogError) -> list[ProducerEffect]:
        """Fail every batch without an outcome. What of them is on its way may still be stored, and
        its answers count for nothing."""
        for batch in self.unfinished():
            self._finish(batch, error)
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
        expiry_ns = batch.opened_at_ns + self.settings.delivery_timeout_ms * NS_PER_MS
        self._expiry_ns = min(self._expiry_ns, expiry_ns)

    def _on_metadata_failed(self, error: TidelogError, now_ns: int) -> None:
        self._effects += self.topics.on_failure(error, now_ns)
        for lane in self.lanes.values():
            if not lane.waiting:
                continue
            lane.note_trouble(error, now_ns)
            if lane.waiting[0].last_error is None:
                lane.waiting[0].last_error = error

    def _on_producer_id_failed(self, error: TidelogError, now_ns: int) -> None:
        """What can wait waits; a refusal for good fails what has no number."""
        self.producer_ids.on_failed(error, now_ns)
        assert self.sequencer is not None, "nobody asked for a producer id"
        for (topic, partition), lane in list(self.lanes.items()):
            if not lane.waiting or self.sequencer.of(lane.waiting[0]) is not None:
                continue
            if error.retriable:
                lane.note_trouble(error, now_ns)
                lane.waiting[0].last_error = lane.waiting[0].last_error or error
                continue
            while lane.waiting:
                self._judge_as.give_up(lane, lane.waiting.popleft(), error)
            self._settle(topic, partition, lane)

    def _follow_leaders(self) -> None:
        """Numbered batches go to a newer leader without waiting for what the old one says."""
        if not isinstance(self._judge_as, SequenceJudge):
            return
        for (topic, partition), lane in self.lanes.items():
            if self.metadata.leader_epoch(topic, partition) <= lane.leader_epoch:
                continue
            leader = self.metadata.leader(topic, partition)
            if leader is None:
                continue
            if lane.in_flight and leader[0].broker_id != lane.broker_id:
                self._judge_as.abandon(lane)
            lane.retry_at_ns = 0

    def _on_stream_opened(self, message: StreamOpened) -> None:
        link = self._links.current(message.broker_id, message.stream)
        if link is None:
            self._effects.append(BreakStream(broker_id=message.broker_id, stream=message.stream))
            return
        link.is_open, link.failures, link.retry_at_ns = True, 0, 0

    def _on_connect_failed(self, message: ConnectFailed, now_ns: int) -> None:
        link = self._links.current(message.broker_id, message.stream)
        if link is None:
            return
        self._lose(link, message.error, now_ns)

    def _on_stream_broken(self, message: StreamBroken, now_ns: int) -> None:
        link = self._links.current(message.broker_id, message.stream)
        if link is None:
            return
        self._judge_unanswered(link, message.error, now_ns)
        self._lose(link, message.error, now_ns)

    def _on_answered(self, message: Answered, now_ns: int) -> None:
        link = self._links.current(message.broker_id, message.stream)
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
        hints = message.hints if len(message.hints) == len(outcomes) else (None,) * len(outcomes)
        for place, (batch, outcome) in enumerate(zip(request.batches, outcomes, strict=True)):
            self._take_hint(batch, outcome, hints[place])
            outcome = judged_by_own_clock(batch, outcome, message.wall_ms, self.settings)
            self._judge(batch, request.attempts[place], outcome, now_ns)

    def _take_hint(self, batch: Batch, outcome: Outcome, hint: LeaderHint | None) -> None:
        is_of_use = isinstance(outcome, TidelogError) and outcome.code in STALE_METADATA
        if hint is not None and is_of_use:
            self.metadata.follow_hint(
                batch.topic, batch.topic_id, batch.partition, hint.leader_id, hint.leader_epoch
            )

    # Judgement.

    def _judge(self, batch: Batch, attempt: int, outcome: Outcome, now_ns: int) -> None:
        lane = self.lanes.get((batch.topic, batch.partition))
        # Its lane has given this try up: what became of it, a later one tells.
        if lane is None or batch.attempts != attempt or batch not in lane.in_flight:
            return
        lane.in_flight.remove(batch)
        self._judge_as.answered(lane, batch, outcome, now_ns)
        self._settle(batch.topic, batch.partition, lane)

    def _judge_unanswered(self, link: Link, cause: TidelogError, now_ns: int) -> None:
        requests = list(link.requests.values())
        link.requests.clear()
        for request in requests:
            for batch, attempt in zip(request.batches, request.attempts, strict=True):
                lane = self.lanes.get((batch.topic, batch.partition))
                if lane is None or batch.attempts != attempt or batch not in lane.in_flight:
                    continue
                lane.in_flight.remove(batch)
                if cause.code in NOT_LET_IN:
                    self._judge_as.answered(lane, batch, cause, now_ns)
                else:
                    self._judge_as.lost(lane, batch, cause, now_ns)
                self._settle(batch.topic, batch.partition, lane)

    def _settle(self, topic: str, partition: int, lane: Lane) -> None:
        self._judge_as.settle(lane)
        if lane.is_idle:
            del self.lanes[topic, partition]

    def _finish(self, batch: Batch, outcome: Outcome) -> None:
        self._effects.append(CompleteBatch(batch=batch, outcome=outcome))

    # Links.

    def _lose(self, link: Link, error: TidelogError, now_ns: int) -> None:
        self._links.lose(link, now_ns)
        self.topics.refresh(now_ns)
        for (topic, partition), lane in self.lanes.items():
            leader = self.metadata.leader(topic, partition)
            if lane.waiting and leader is not None and leader[0].broker_id == link.broker_id:
                lane.waiting[0].last_error = error
                lane.note_trouble(error, now_ns)

    # Time.

    def _end_waits(self, now_ns: int) -> None:
        for lane in self.lanes.values():
            if lane.retry_at_ns and now_ns >= lane.retry_at_ns:
                lane.retry_at_ns = 0
        self._links.end_waits(now_ns)

    def _expire(self, now_ns: int) -> None:
        timeout_ms = self.settings.request_timeout_ms
        for link in self._links.overdue(now_ns, timeout_ms):
            assert link.stream is not None, f"broker {link.broker_id} has requests and no stream"
            happened = f"no answer within request_timeout_ms={timeout_ms}"
            error = TidelogError(ErrorCode.DEADLINE_EXCEEDED, tried="produce", happened=happened)
            self._effects.append(BreakStream(broker_id=link.broker_id, stream=link.stream))
            self._judge_unanswered(link, error, now_ns)
            self._lose(link, error, now_ns)
        self._expire_batches(now_ns)

    def _expire_batches(self, now_ns: int) -> None:
        timeout_ms = self.settings.delivery_timeout_ms
        if self.settings.is_idempotent and now_ns < self._expiry_ns:
            return
        for (topic, partition), lane in list(self.lanes.items()):
            self._judge_as.expire(lane, now_ns, timeout_ms)
            self._settle(topic, partition, lane)
        if not self.settings.is_idempotent:
            return
        oldest_ns = min((lane.oldest_ns for lane in self.lanes.values()), default=NEVER_NS)
        self._expiry_ns = oldest_ns + timeout_ms * NS_PER_MS

    # Sending.

    def _send(self, now_ns: int) -> None:
        ready: dict[int, list[tuple[Lane, int]]] = {}
        for (topic, partition), lane in list(self.lanes.items()):
            if not lane.waiting or lane.refused or not self._has_room(lane):
                continue
            if self._fail_if_recreated(topic, partition, lane):
                continue
            if lane.retry_at_ns:
                continue
            leader = self.metadata.leader(topic, partition)
            if leader is None:
                note_missing(topic, partition, lane, self.topics, now_ns)
            if leader is None or self.metadata.updated_at_ns <= lane.stale_at_ns:
                self.topics.refresh(now_ns)
                continue
            lane.stale_at_ns = -1
            broker, leader_epoch = leader
            # Two brokers at once could store the partition's batches in either order.
            if lane.in_flight and lane.broker_id != broker.broker_id:
                continue
            if not self._is_sendable(broker):
                # Another one may lead by now, and only metadata tells.
                if self._links.is_lost(broker.broker_id):
                    self.topics.refresh(now_ns)
                continue
            if not self._judge_as.is_ready(lane, now_ns):
                self._settle(topic, partition, lane)
            else:
                lane.broker_id = broker.broker_id
                lane.leader_epoch = leader_epoch
                ready.setdefault(broker.broker_id, []).append((lane, leader_epoch))
        for broker_id, lanes in ready.items():
            self._fill(self.links[broker_id], lanes, now_ns)

    def _has_room(self, lane: Lane) -> bool:
        """Whether the partition would know one batch more again."""
        identity = self.producer_ids.identity
        limit = BATCHES_IN_FLIGHT_MAX
        if identity is not None and identity.batches_in_flight_max:
            limit = min(limit, identity.batches_in_flight_max)
        return not self.settings.is_idempotent or len(lane.in_flight) < limit

    def _is_sendable(self, broker: BrokerView) -> bool:
        opening = self._links.open(broker)
        if opening is not None:
            self._effects.append(opening)
        link = self.links[broker.broker_id]
        return link.is_open and not link.retry_at_ns and self._has_slot(link)

    def _has_slot(self, link: Link) -> bool:
        return len(link.requests) < self.settings.in_flight_max

    def _fill(self, link: Link, lanes: list[tuple[Lane, int]], now_ns: int) -> None:
        """As many requests as the limit allows; in each at most one batch of a partition."""
        while lanes and self._has_slot(link):
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
                if self.sequencer is not None:
                    self.sequencer.number(batch)
                batch.attempts += 1
                batches.append(batch)
                epochs.append(leader_epoch)
                size_bytes += batch.size_bytes
            behind = [found for found in lanes if found not in later and found[0].waiting]
            lanes = later + [found for found in behind if self._has_room(found[0])]
            self._send_request(link, tuple(batches), tuple(epochs), now_ns)

    def _send_request(
        self, link: Link, batches: tuple[Batch, ...], epochs: tuple[int, ...], now_ns: int
    ) -> None:
        assert link.is_open, f"broker {link.broker_id} has no open stream"
        assert link.stream is not None, f"broker {link.broker_id} has no stream number"
        self.requests_sent += 1
        link.requests[self.requests_sent] = Request(
            batches=batches,
            attempts=tuple(batch.attempts for batch in batches),
            sent_at_ns=now_ns,
        )
        self._effects.append(
            SendProduce(
                broker_id=link.broker_id,
                stream=link.stream,
                correlation_id=self.requests_sent,
                batches=batches,
                leader_epochs=epochs,
            )
        )

    def _fail_unrouted(self, topic: str, error: TidelogError) -> None:
        """A topic that was in use was looked for again, and is not there: nothing waits for it."""
        for (name, partition), lane in list(self.lanes.items()):
            if name != topic:
                continue
            while lane.waiting:
                batch = lane.waiting.popleft()
                self._judge_as.give_up(lane, batch, error)
                if self.sequencer is not None:
                    self.sequencer.forget(batch)
            self._settle(name, partition, lane)

    def _fail_if_recreated(self, topic: str, partition: int, lane: Lane) -> bool:
        """What was meant for a deleted topic never reaches its namesake; whether that leaves
        nothing to be sent now. What is in flight is judged by its answer."""
        known = self.metadata.topics.get(topic)
        if known is None or known.topic_id == lane.waiting[0].topic_id:
            return False
        while lane.waiting and lane.waiting[0].topic_id != known.topic_id:
            error = TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                tried=f"produce to {topic}-{partition}",
                happened=f"topic {topic!r} was deleted and created again",
            )
            batch = lane.waiting.popleft()
            self._judge_as.give_up(lane, batch, error)
            if self.sequencer is not None:
                self.sequencer.forget(batch)
        if lane.is_idle:
            del self.lanes[topic, partition]
        return not lane.waiting
