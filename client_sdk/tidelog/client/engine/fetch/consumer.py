"""Reads partitions: decides from where, from whom, and what of the answers still counts.

Owns assignment, positions, fetch sessions and credit. It must never decode a record, nor hand over
bytes whose sum does not fit or that were asked for before a seek. Stop 10 of a record's walk.

Theory of operation. Each broker that leads an assigned partition has one parked stream. Positions
are sent once; the broker then sends whatever becomes readable, as long as it has credit. A request
that changes positions has a new session epoch; an answer names the last one that the broker knew,
so that an answer from before a seek is told from one after it.

    no position ──offset query──► position ──sent to a replica──► reading ──batches──► ready
        ▲                            ▲                               │
        └──────out of range──────────┴──stream broke, new leader epoch, nearer replica, truncated

A position goes with the epoch of the record before it and with the leader epoch that the client
believes in, so that no broker serves it from another history (`fetch.recovery`). An answer counts
only if it is of the present stream and the present position; so reading goes on at the next leader
behind the last batch that came, without a gap and without a repeat.

Credit: what the broker may send + what waits for the user + what is still to be granted is one
constant window per broker. What waits of a paused partition counts too; the newest of it makes
room when the others would get none.
"""

from collections import deque
from collections.abc import Iterable
from typing import assert_never

from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import BrokerView, MetadataCache
from tidelog.client.engine.cluster.topic_messages import FetchMetadata, RefuseTopic, RouteTopic
from tidelog.client.engine.cluster.topics import TopicDesk
from tidelog.client.engine.fetch.added import AddedPartitions
from tidelog.client.engine.fetch.answer import no_offset, told
from tidelog.client.engine.fetch.epochs import NO_EPOCH
from tidelog.client.engine.fetch.intake import Intake
from tidelog.client.engine.fetch.link import FetchLink
from tidelog.client.engine.fetch.messages import (
    BreakStream,
    ConsumerEffect,
    ConsumerMessage,
    FetchAnswered,
    Fetched,
    MetadataArrived,
    MetadataFailed,
    OffsetsArrived,
    OffsetsFailed,
    OpenStream,
    QueryOffsets,
    StreamBroken,
    StreamOpened,
)
from tidelog.client.engine.fetch.partition import PartitionState
from tidelog.client.engine.fetch.read_watch import ReadWatch
from tidelog.client.engine.fetch.ready import ReadyQueue
from tidelog.client.engine.fetch.recovery import Recovery
from tidelog.client.engine.fetch.settings import ConsumerSettings
from tidelog.client.types.records import TopicPartition
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetQuery, OffsetSpec
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId


class ConsumerCore:
    """Messages and the user's wishes in, effects out; one thread or task calls it."""

    def __init__(
        self,
        settings: ConsumerSettings,
        metadata: MetadataCache,
        topics: TopicDesk,
        backoff: Backoff,
    ) -> None:
        self.settings = settings
        self.metadata = metadata
        self.topics = topics
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.subscribed: dict[str, None] = {}
        self.is_member = False  # Of a group: its coordinator may know of partitions before we do.
        self.links: dict[int, FetchLink] = {}
        self.ready = ReadyQueue(self.partitions, self.links)
        self.recovery = Recovery(settings, metadata, topics, backoff)
        self.errors: deque[TidelogError] = deque()
        self.intake = Intake(settings, metadata, self.recovery, self.ready, self._leave)
        self.added = AddedPartitions()
        self.watch = ReadWatch(metadata, topics, self.links)
        self.streams_opened = 0
        self._backoff = backoff
        self._by_id: dict[tuple[bytes, int], PartitionState] = {}
        self._effects: list[ConsumerEffect] = []

    def assign(self, wanted: Iterable[TopicPartition], now_ns: int) -> None:
        """Read exactly these; those that stay keep their position."""
        names = dict.fromkeys(wanted)
        for gone in [found for found in self.partitions if found not in names]:
            self._leave(self.partitions.pop(gone))
        for name in names:
            if name not in self.partitions:
                is_added = self.is_member and self.added.has(name)
                self.partitions[name] = PartitionState(name, self.recovery.reset_of(is_added))
            if name.topic not in self.metadata.topics:
                self.topics.want(name.topic, now_ns)
        if self.is_member:
            self.added.see_assigned(names, self.metadata.topics)
        self._index()
        self.ready.drop_void()

    def trust_group(self, name: TopicPartition, topic_id: bytes, now_ns: int) -> None:
        """Its coordinator knows the topic by this id: what is known of another one is old.

        Metadata that come later could not tell it from a topic that was made again otherwise, and
        where the group wants to begin would be forgotten.
        """
        known = self.metadata.topics.get(name.topic)
        if known is not None and known.topic_id != topic_id:
            del self.metadata.topics[name.topic]
            self.topics.want(name.topic, now_ns)
        state = self._left(name)
        state.topic_id = topic_id
        state.group_topic_id = topic_id if self.is_member else b""

    def be_member(self, topics: Iterable[str], now_ns: int) -> None:
        """Of a group, which says what to assign: of these topics, and of others by pattern."""
        self.is_member = True
        self.added = AddedPartitions()
        for name in topics:
            known = self.metadata.topics.get(name)
            if known is None:
                self.topics.notice(name, now_ns)
            else:
                self.added.see(name, len(known.partitions))

    def subscribe(self, topics: Iterable[str], now_ns: int) -> None:
        """Read all partitions of these topics, as they become known."""
        self.subscribed = dict.fromkeys(topics)
        known: list[TopicPartition] = []
        for name in self.subscribed:
            topic = self.metadata.topics.get(name)
            if topic is None:
                self.topics.want(name, now_ns)
                continue
            known += [TopicPartition(name, number) for number in range(len(topic.partitions))]
        self.assign(known, now_ns)

    def seek(self, name: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Go on from this offset; `epoch` is that of the record before it, if it is known."""
        self._left(name).move_to(offset, epoch)
        self.ready.drop_void()

    def put_back(self, name: TopicPartition, offset: int) -> None:
        """The user took only what is below the offset of what was handed over: read it again."""
        self._left(name).step_back(offset)
        self.ready.drop_void()

    def seek_to(self, name: TopicPartition, spec: OffsetSpec) -> None:
        """Go on from the first or behind the last record."""
        self._left(name).need_reset(spec)
        self.ready.drop_void()

    def pause(self, name: TopicPartition) -> None:
        """Keep the position, deliver nothing."""
        self._left(name).is_paused = True

    def hold(self, name: TopicPartition) -> None:
        """The same for its group: until it is released, moved, or not assigned any more."""
        self._left(name).is_held = True

    def resume(self, name: TopicPartition) -> None:
        """Deliver again."""
        self.partitions[name].is_paused = False

    def take(self) -> Fetched | None:
        """The next verified bytes for the user, oldest first; paused partitions are skipped."""
        return self.ready.take()

    def take_error(self) -> TidelogError | None:
        """The next error that the user must see, once."""
        if self.errors:
            return self.errors.popleft()
        for state in self.partitions.values():
            if state.error is not None and not state.is_paused:
                error, state.error = state.error, None
                return error
        return None

    # Inputs.

    def step(self, message: ConsumerMessage, now_ns: int) -> list[ConsumerEffect]:
        """One message; the effects are to be performed in their order."""
        match message:
            case MetadataArrived():
                self.added.see_missing(message.view, self.topics.noticed)
                self._note_topics(self.topics.on_metadata(message.view, now_ns), now_ns)
            case MetadataFailed():
                self._note_topics(self.topics.on_failure(message.error, now_ns), now_ns)
            case StreamOpened():
                self._on_stream_opened(message)
            case StreamBroken():
                self._on_stream_broken(message, now_ns)
            case FetchAnswered():
                self._on_fetch_answered(message, now_ns)
            case OffsetsArrived():
                for name, generation, answer in told(message):
                    self._on_offset(name, generation, answer, now_ns)
            case OffsetsFailed():
                for name, generation in zip(
                    message.query.partitions, message.query.generations, strict=True
                ):
                    self._on_offset(name, generation, message.error, now_ns)
            case _:
                assert_never(message)
        return self.tick(now_ns)

    def tick(self, now_ns: int) -> list[ConsumerEffect]:
        """Time passed, or the user asked for something: bring the streams up to date."""
        queries: dict[int, tuple[BrokerView, list[tuple[PartitionState, OffsetQuery]]]] = {}
        moves: dict[int, list[FetchPosition]] = {}
        for link in self.links.values():
            if link.retry_at_ns and now_ns >= link.retry_at_ns:
                link.retry_at_ns = 0
        for state in self.partitions.values():
            self._advance(state, now_ns, queries, moves)
        for broker, asked in queries.values():
            self._query(broker, asked)
        settings = self.settings
        for link in self.links.values():
            self.ready.make_room(link, settings.grant_bytes, settings.window_bytes)
            request = link.next_request(moves.get(link.broker_id, []), settings.grant_bytes)
            if request is not None:
                self._effects.append(request)
        self._note_topics(self.topics.tick(now_ns), now_ns)
        self._effects += self.watch.tick(self.partitions, now_ns)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes; None: never."""
        due_at_ns = self.topics.next_deadline_ns()
        look_at_ns = self.watch.next_deadline_ns()
        deadlines = [each for each in (due_at_ns, look_at_ns) if each is not None]
        for state in self.partitions.values():
            deadlines += [at_ns for at_ns in (state.retry_at_ns, state.replica_until_ns) if at_ns]
        deadlines += [link.retry_at_ns for link in self.links.values() if link.retry_at_ns]
        return min(deadlines, default=None)

    # Topics.

    def _note_topics(
        self, effects: Iterable[FetchMetadata | RouteTopic | RefuseTopic], now_ns: int
    ) -> None:
        for effect in effects:
            if isinstance(effect, FetchMetadata):
                self._effects.append(effect)
            elif isinstance(effect, RouteTopic):
                self._on_topic_known(effect, now_ns)
            elif effect.is_final:
                self.errors.append(effect.error)
        self._index()

    def _on_topic_known(self, topic: RouteTopic, now_ns: int) -> None:
        self.added.see(topic.topic, topic.partition_count)
        if topic.topic in self.subscribed:
            is_added = any(name.topic == topic.topic for name in self.partitions)
            reset = self.recovery.reset_of(is_added)
            for number in range(topic.partition_count):
                name = TopicPartition(topic.topic, number)
                if name not in self.partitions:
                    self.partitions[name] = PartitionState(name, reset)
        for name in list(self.partitions):
            is_missing = name.partition >= topic.partition_count and not self.is_member
            if name.topic == topic.topic and is_missing:
                state = self.partitions.pop(name)
                self._leave(state)
                self.errors.append(
                    self.metadata.unknown_partition(
                        name.topic, name.partition, tried=f"read {name.topic}-{name.partition}"
                    )
                )
        self.ready.drop_void()

    def _index(self) -> None:
        by_id: dict[tuple[bytes, int], PartitionState] = {}
        for name, state in self.partitions.items():
            topic = self.metadata.topics.get(name.topic)
            if topic is not None and state.group_topic_id not in (b"", topic.topic_id):
                # Older than the group's word; or its coordinator lags, and takes it away soon.
                self._leave(state)
            elif topic is not None:
                state.group_topic_id = b""
                by_id[topic.topic_id, name.partition] = state
                if state.topic_id not in (b"", topic.topic_id):
                    # A position of a topic that was deleted says nothing of its namesake.
                    self._leave(state)
                    self.recovery.on_recreated(state)
                    self.ready.drop_void()
                state.topic_id = topic.topic_id
        self._by_id = by_id

    # Streams.

    def _on_stream_opened(self, message: StreamOpened) -> None:
        link = self._current(message.broker_id, message.stream)
        if link is None:
            self._effects.append(BreakStream(broker_id=message.broker_id, stream=message.stream))
            return
        link.open(self.settings.window_bytes)

    def _on_stream_broken(self, message: StreamBroken, now_ns: int) -> None:
        link = self._current(message.broker_id, message.stream)
        if link is None:
            return
        link.close()
        link.failures += 1
        link.failure = message.error
        link.retry_at_ns = now_ns + self._backoff.delay_ns(link.failures)
        for state in self.partitions.values():
            if state.broker_id == link.broker_id:
                state.leave_stream()
            if state.preferred_id == link.broker_id:
                self.recovery.go_to_leader(state, now_ns)
        self.topics.refresh(now_ns)

    def _current(self, broker_id: int, stream: int) -> FetchLink | None:
        link = self.links.get(broker_id)
        return link if link is not None and link.stream == stream else None

    def _left(self, name: TopicPartition) -> PartitionState:
        state = self.partitions[name]
        self._leave(state)
        return state

    def _leave(self, state: PartitionState) -> None:
        if state.broker_id is None:
            return
        link = self.links[state.broker_id]
        if link.is_open:
            link.removed[state.topic_id, state.topic_partition.partition] = None
        state.leave_stream()

    def _advance(
        self,
        state: PartitionState,
        now_ns: int,
        queries: dict[int, tuple[BrokerView, list[tuple[PartitionState, OffsetQuery]]]],
        moves: dict[int, list[FetchPosition]],
    ) -> None:
        """Bring one partition a step nearer to being read."""
        if state.retry_at_ns and now_ns >= state.retry_at_ns:
            state.retry_at_ns = 0
        if state.is_draining and state.is_drained:
            state.is_draining = False
        name = state.topic_partition
        leader = self.metadata.leader(name.topic, name.partition)
        if state.is_querying and leader is not None and leader[1] > state.sent_epoch:
            # Whoever was asked leads no more, and may be silent until its request is given up.
            state.give_up_query()
        is_waiting = state.retry_at_ns or state.is_querying or state.is_draining
        if state.error is not None or is_waiting or state.is_held:
            return
        if name.topic in self.metadata.topics:
            # Known from another call, perhaps: a refresh asks for topics in use only.
            self.topics.used.setdefault(name.topic, None)
        if leader is None or state.group_topic_id:
            if name.topic in self.metadata.topics:
                self.topics.refresh(now_ns)
            return
        broker, leader_epoch = leader
        if state.fetch_offset is None:
            self._ask_offset(state, broker, leader_epoch, queries)
            return
        if state.is_paused:
            return
        reader = self.recovery.broker_for(state, broker, leader_epoch, now_ns)
        if state.broker_id is not None:
            is_current = state.broker_id == reader.broker_id and state.sent_epoch == leader_epoch
            if is_current and not state.must_move:
                return
            self._leave(state)
        link = self._link_to(reader)
        if link is None:
            return
        state.read_by(reader.broker_id, link.session_epoch + 1, leader_epoch)
        moves.setdefault(reader.broker_id, []).append(
            FetchPosition(
                topic_id=self.metadata.topics[name.topic].topic_id,
                partition=PartitionId(name.partition),
                fetch_offset=Offset(state.fetch_offset),
                leader_epoch=LeaderEpoch(leader_epoch),
                last_fetched_epoch=LeaderEpoch(state.epochs.latest),
                max_bytes=self.settings.partition_bytes_max,
                stays_here=state.is_leader_wanted,
            )
        )

    def _ask_offset(
        self,
        state: PartitionState,
        leader: BrokerView,
        leader_epoch: int,
        queries: dict[int, tuple[BrokerView, list[tuple[PartitionState, OffsetQuery]]]],
    ) -> None:
        """Where to begin is for the leader to tell; without a rule for the user."""
        name = state.topic_partition
        if state.reset is None:
            state.error = no_offset(name)
            return
        query = OffsetQuery(
            topic_id=self.metadata.topics[name.topic].topic_id,
            partition=PartitionId(name.partition),
            spec=state.reset,
            leader_epoch=LeaderEpoch(leader_epoch),
        )
        state.sent_epoch = leader_epoch
        queries.setdefault(leader.broker_id, (leader, []))[1].append((state, query))

    def _link_to(self, broker: BrokerView) -> FetchLink | None:
        """The broker's link if it is open; opens it otherwise."""
        link = self.links.setdefault(broker.broker_id, FetchLink(broker.broker_id))
        if link.retry_at_ns:
            return None
        if link.stream is None:
            self.streams_opened += 1
            link.stream = self.streams_opened
            self._effects.append(
                OpenStream(broker_id=broker.broker_id, stream=link.stream, address=broker.address)
            )
        return link if link.is_open else None

    # Offsets.

    def _query(self, broker: BrokerView, asked: list[tuple[PartitionState, OffsetQuery]]) -> None:
        for state, _ in asked:
            state.is_querying = True
        self._effects.append(
            QueryOffsets(
                broker_id=broker.broker_id,
                address=broker.address,
                generations=tuple(state.generation for state, _ in asked),
                partitions=tuple(state.topic_partition for state, _ in asked),
                queries=tuple(query for _, query in asked),
            )
        )

    def _on_offset(
        self,
        name: TopicPartition,
        generation: int,
        answer: OffsetAnswer | TidelogError,
        now_ns: int,
    ) -> None:
        state = self.partitions.get(name)
        if state is None or state.generation != generation:
            return
        state.is_querying = False
        error = answer if isinstance(answer, TidelogError) else answer.error
        if error is not None:
            self.recovery.on_error(state, error, now_ns)
            return
        assert isinstance(answer, OffsetAnswer), "an offset query was answered by neither"
        is_held = state.is_held
        state.move_to(max(0, answer.offset))
        state.is_held = is_held  # Only the user, or its group, releases it.

    # Answers.

    def _on_fetch_answered(self, message: FetchAnswered, now_ns: int) -> None:
        link = self._current(message.broker_id, message.stream)
        if link is not None:
            self.intake.take(message, link, self._by_id, now_ns)
