"""A consumer beside replicas whose leaders change: nothing twice, nothing skipped or too early."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.support.replica_model import (
    BROKERS,
    NOBODY,
    PARTITIONS,
    ModelCluster,
    Session,
    refusal,
)
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import ClusterView, MetadataCache
from tidelog.client.engine.cluster.topics import TopicDesk, TopicSettings
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.messages import (
    BreakStream,
    ConsumerEffect,
    ConsumerMessage,
    FetchAnswered,
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
)
from tidelog.client.engine.fetch.settings import ConsumerSettings
from tidelog.client.engine.invariants import check_consumer
from tidelog.client.errors import LogTruncationError
from tidelog.client.types.records import TopicPartition
from tidelog.wire.batch import decode_records, iterate_headers
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import ErrorCode

MS = 1_000_000
LEASE_MS = 5_000


class Reader:
    """The engine, its streams to the model, and the user who takes what comes."""

    def __init__(self, random: Random, *, is_clean: bool, reset: OffsetSpec | None) -> None:
        self.random = random
        self.cluster = ModelCluster(random, is_clean=is_clean)
        self.rack = random.choice(["", *map(str, BROKERS)])
        self.now_ns = 1_000_000_000
        metadata = MetadataCache()
        backoff = Backoff(initial_ms=100, max_ms=1_000)
        desk = TopicDesk(
            TopicSettings(max_age_ms=60_000, bootstrap_timeout_ms=5_000), metadata, backoff
        )
        self.core = ConsumerCore(
            ConsumerSettings(
                reset=reset,
                window_bytes=2_000,
                grant_bytes=500,
                partition_bytes_max=0,
                verify=True,
                replica_lease_ms=LEASE_MS,
            ),
            metadata,
            desk,
            backoff,
        )
        self.opening: list[OpenStream] = []
        self.sessions: dict[int, Session] = {}
        self.queries: list[QueryOffsets] = []
        self.is_asked = False
        self.old_views: list[ClusterView] = [self.cluster.view()]
        self.had: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        """What the user has last been given at an offset."""
        self.had_epoch: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.expected: list[int | None] = [None] * PARTITIONS
        self.truncations: list[LogTruncationError] = []
        self.repeats = 0
        self.moves = 0
        self.names = [TopicPartition("t", number) for number in range(PARTITIONS)]
        self.core.assign(self.names, self.now_ns)
        self.tick(0)
        self.step(MetadataArrived(view=self.cluster.view()))

    # Between engine and model.

    def step(self, message: ConsumerMessage) -> None:
        self._perform(self.core.step(message, self.now_ns))

    def tick(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * MS
        self._perform(self.core.tick(self.now_ns))

    def _perform(self, effects: list[ConsumerEffect]) -> None:
        check_consumer(self.core)
        for effect in effects:
            match effect:
                case OpenStream():
                    self.opening.append(effect)
                case SendFetch():
                    if effect.stream in self.sessions:
                        self.sessions[effect.stream].requests.append(effect)
                case FetchMetadata():
                    self.is_asked = True
                case QueryOffsets():
                    self.queries.append(effect)
                case BreakStream():
                    self.sessions.pop(effect.stream, None)

    # Moves.

    def connect(self) -> None:
        if not self.opening:
            return
        effect = self.opening.pop(0)
        if self.random.random() < 0.2:
            self._report_broken(effect.broker_id, effect.stream)
            return
        self.sessions[effect.stream] = Session(effect.broker_id, self.rack)
        self.step(StreamOpened(broker_id=effect.broker_id, stream=effect.stream))

    def serve(self) -> None:
        if self.sessions:
            self.cluster.serve(self.random.choice(list(self.sessions.values())))

    def deliver(self) -> None:
        waiting = [stream for stream, found in self.sessions.items() if found.answers]
        if not waiting:
            return
        stream = self.random.choice(waiting)
        session = self.sessions[stream]
        epoch, partitions = session.answers.popleft()
        self.step(
            FetchAnswered(
                broker_id=session.broker_id,
                stream=stream,
                session_epoch=epoch,
                size_bytes=0,
                partitions=partitions,
            )
        )

    def break_stream(self) -> None:
        """Any suffix is lost, both ways."""
        if not self.sessions or self.random.random() < 0.7:
            return
        stream = self.random.choice(list(self.sessions))
        session = self.sessions[stream]
        while session.answers and self.random.random() < 0.5:
            self.deliver()
        self.sessions.pop(stream, None)
        self._report_broken(session.broker_id, stream)

    def _report_broken(self, broker_id: int, stream: int) -> None:
        error = refusal(ErrorCode.UNAVAILABLE)
        self.step(StreamBroken(broker_id=broker_id, stream=stream, error=error))

    def metadata(self) -> None:
        """An answer, perhaps of a broker that is behind, perhaps none."""
        self.old_views.append(self.cluster.view())
        if not self.is_asked and self.random.random() < 0.9:
            return
        self.is_asked = False
        chance = self.random.random()
        if chance < 0.1:
            self.step(MetadataFailed(error=refusal(ErrorCode.UNAVAILABLE)))
            return
        found = self.random.choice(self.old_views) if chance < 0.4 else self.cluster.view()
        self.step(MetadataArrived(view=found))

    def offsets(self) -> None:
        if not self.queries:
            return
        query = self.queries.pop(0)
        if self.random.random() < 0.1:
            self.step(OffsetsFailed(query=query, error=refusal(ErrorCode.UNAVAILABLE)))
            return
        answers = tuple(self.cluster.offset(query.broker_id, each) for each in query.queries)
        self.step(OffsetsArrived(query=query, answers=answers))

    def take(self) -> None:
        """The user takes bytes, sometimes only a part of them."""
        error = self.core.take_error()
        if isinstance(error, LogTruncationError):
            self._on_truncated(error)
        elif error is not None:
            raise error
        fetched = self.core.take()
        if fetched is None:
            return
        number = fetched.topic_partition.partition
        state = self.core.partitions[fetched.topic_partition]
        records = [
            (record[0], int(record[4] or b"-1"), header.leader_epoch)
            for place, header in iterate_headers(fetched.data, is_compacted=True)
            for record in decode_records(fetched.data, place, is_compacted=True)
            if record[0] >= fetched.first_offset
        ]
        count = self.random.randint(1, len(records))
        is_part = count < len(records) and self.random.random() < 0.3
        for offset, value, epoch in records[:count] if is_part else records:
            self._have(number, offset, value)
            self.had_epoch[number][offset] = epoch
        if is_part:
            self.core.put_back(fetched.topic_partition, records[count][0])
        else:
            state.hand_over(fetched.next_offset)
        self.tick(0)

    def _on_truncated(self, error: LogTruncationError) -> None:
        self.truncations.append(error)
        number = error.topic_partition.partition
        assert error.offset == self.expected[number], "told where the user stands"
        assert error.divergent_offset < error.offset
        self.repeats += 1
        self._seek(number, error.divergent_offset)

    def _seek(self, number: int, offset: int) -> None:
        """With the epoch of the record before, as whoever wants to hear of truncations does."""
        self.core.seek(self.names[number], offset, self.had_epoch[number].get(offset - 1, -1))
        self.expected[number] = offset
        self.tick(0)

    def _have(self, number: int, offset: int, value: int) -> None:
        expected = self.expected[number]
        if expected is not None and offset != expected:
            assert not self.cluster.is_clean, f"{offset} came, {expected} was due"
            assert self.core.settings.reset is not None, "moved without being told"
            assert offset < expected, f"{offset} came, {expected} was skipped"
            self.repeats += 1
        if self.cluster.is_clean:
            assert offset < self.cluster.committed[number], "read above every watermark"
            assert self.had[number].get(offset, value) == value, f"two records at {offset}"
        self.had[number][offset] = value
        self.expected[number] = offset + 1

    def seek(self) -> None:
        number = self.random.randrange(PARTITIONS)
        state = self.core.partitions[self.names[number]]
        if state.position is None or self.random.random() < 0.8:
            return
        self._seek(number, self.random.randint(0, state.position))

    def pause(self) -> None:
        name = self.random.choice(self.names)
        if self.core.partitions[name].is_paused:
            self.core.resume(name)
        elif self.random.random() < 0.3:
            self.core.pause(name)
        self.tick(0)

    def wait(self) -> None:
        self.tick(self.random.choice([1, 10, 150, 1_100, LEASE_MS]))

    def happen(self) -> None:
        """Something among the brokers."""
        cluster, number = self.cluster, self.random.randrange(PARTITIONS)
        chance = self.random.random()
        if chance < 0.25:
            cluster.produce(number)
        elif chance < 0.65:
            cluster.replicate(number, self.random.choice(BROKERS))
        elif chance < 0.8:
            cluster.learn(self.random.choice(BROKERS))
        elif chance < 0.85:
            cluster.elect(number)
            self.moves += 1
        elif chance < 0.9:
            cluster.change_in_sync(number)
        elif chance < 0.92:
            cluster.fenced = self.random.choice([NOBODY, *BROKERS])
        else:
            cluster.elect_unclean(number)

    def drain(self) -> None:
        """All is well again: everything committed must come, of what is paused once it is not."""
        self.cluster.heal()
        self._read_out()
        assert self._is_done(), "what waits of a paused partition holds up the others"
        for name in self.names:
            self.core.resume(name)
        self._read_out()

    def _read_out(self) -> None:
        quiet = 0
        for _ in range(3_000):
            for move in (self.connect, self.metadata, self.offsets, self.take):
                move()
            for session in self.sessions.values():
                self.cluster.serve(session)
            self.deliver()
            self.tick(50)
            quiet = quiet + 1 if self._is_done() else 0
            if quiet == 40:
                break

    def _is_done(self) -> bool:
        return all(
            state.is_paused or state.position == self._truth(number)
            for number, state in enumerate(self.core.partitions[name] for name in self.names)
        )

    def _truth(self, number: int) -> int:
        return self.cluster.logs[self.cluster.truth[number].leader, number].high_watermark


MOVES = (
    *("happen",) * 6,
    *("serve",) * 6,
    *("deliver",) * 4,
    *("take",) * 3,
    *("connect", "connect", "metadata", "metadata", "offsets", "wait", "wait", "pause"),
    *("break_stream", "seek"),
)


def live(seed: int, *, is_clean: bool, reset: OffsetSpec | None = OffsetSpec.EARLIEST) -> Reader:
    random = Random(seed)
    reader = Reader(random, is_clean=is_clean, reset=reset)
    if reset is None:
        for name in reader.names:
            reader.core.seek(name, 0)
    for _ in range(random.randrange(100, 600)):
        getattr(reader, random.choice(MOVES))()
    reader.drain()
    return reader


def check_end(reader: Reader) -> None:
    """The user has stood at the log's end and has last been given what the log holds."""
    for number in range(PARTITIONS):
        end = reader._truth(number)
        state = reader.core.partitions[reader.names[number]]
        assert state.position == end, f"{state!r} never came to the end {end}"
        log = reader.cluster.logs[reader.cluster.truth[number].leader, number]
        for offset in range(end):
            found = reader.had[number].get(offset)
            assert found == log.entries[offset].value, f"{number}: offset {offset} is {found}"


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_leaders_change_and_each_committed_record_comes_once_in_order(seed: int) -> None:
    reader = live(seed, is_clean=True)
    check_end(reader)
    assert reader.core.recovery.truncations == 0, "nothing that was committed is ever cut"
    assert reader.repeats == 0, "no record came twice"


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_after_unclean_elections_the_reader_has_read_what_the_log_holds(seed: int) -> None:
    check_end(live(seed, is_clean=False))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 32))
def test_without_a_reset_policy_every_step_back_is_told(seed: int) -> None:
    reader = live(seed, is_clean=False, reset=None)
    check_end(reader)
    assert reader.repeats == len(reader.truncations), "the user has moved only by himself"


@pytest.mark.slow
def test_lives_change_leaders_truncate_and_read_followers() -> None:
    clean = [live(seed, is_clean=True) for seed in range(30)]
    unclean = [live(seed, is_clean=False) for seed in range(60)]
    for reader in (*clean, *unclean):
        check_end(reader)
    assert sum(reader.moves for reader in clean) > 50
    assert sum(reader.cluster.follower_reads for reader in clean) > 20
    assert sum(reader.core.recovery.truncations for reader in unclean) > 4
