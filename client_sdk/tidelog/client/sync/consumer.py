"""The synchronous consumer: the user's thread runs the core, and takes what was prefetched.

Owns the user's side of reading: assignment, positions, decoding, waiting. It commits nothing: there
are no groups yet. Stop 10 of a record's walk.
"""

import math
import re
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self, Unpack

from tidelog.client import options as client_options
from tidelog.client.engine.backoff import Backoff
from tidelog.client.engine.fetch_messages import Fetched, OffsetSpec
from tidelog.client.engine.fetch_partition import PartitionState
from tidelog.client.engine.metadata import MetadataCache
from tidelog.client.errors import WakeupError
from tidelog.client.lifecycle import Client
from tidelog.client.options import ConsumerArguments, ConsumerOptions
from tidelog.client.security import security_of
from tidelog.client.sync.chunk import Chunk, decode
from tidelog.client.sync.cluster_calls import ClusterCalls
from tidelog.client.sync.connections import Connections
from tidelog.client.sync.consumer_parts import (
    ANSWER_BYTES_MAX,
    checked_offset,
    concurrent_use,
    make_core,
    metrics_of,
    split,
)
from tidelog.client.sync.fetch_loop import WAKEUP, FetchLoop, FetchLoopSettings
from tidelog.client.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RawBatch,
    TopicPartition,
)
from tidelog.wire.errors import ErrorCode, TidelogError


class Consumer(Client):
    """Reads records of topics. One thread at a time; `wakeup` may come from any.

    `for record in Consumer("topic", auto_offset_reset="earliest"): ...`
    """

    def __init__(self, *topics: str, **arguments: Unpack[ConsumerArguments]) -> None:
        options = client_options.build(ConsumerOptions, "Consumer", arguments)
        security = security_of("Consumer", options)
        super().__init__()
        self._options = options
        self._busy = threading.Lock()
        self._chunk: Chunk | None = None
        self._records_read = 0
        bootstrap = client_options.bootstrap_addresses("Consumer", options.bootstrap_servers)
        backoff = Backoff(
            initial_ms=options.retry_backoff_ms,
            max_ms=options.retry_backoff_max_ms,
            salt=time.monotonic_ns() & 0xFFFF,
        )
        self._metadata = MetadataCache()
        self._connections = Connections(options.client_id, security)
        self._calls = ClusterCalls(
            self._connections,
            bootstrap,
            self._metadata,
            backoff,
            options.bootstrap_timeout_ms,
            options.request_timeout_ms,
        )
        self._core = make_core(options, self._metadata, backoff)
        self._loop = FetchLoop(
            FetchLoopSettings(
                request_timeout_ms=options.request_timeout_ms,
                allow_auto_create_topics=options.allow_auto_create_topics,
                client_rack=options.client_rack,
                answer_bytes_max=min(ANSWER_BYTES_MAX, options.fetch_max_bytes),
            ),
            self._core,
            self._connections,
            self._calls,
        )
        self._records: Iterator[ConsumerRecord] | None = None
        if topics:
            self.subscribe(topics)

    # What is read.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those that stay keep their position."""
        wanted = [TopicPartition(*name) for name in partitions]
        with self._exclusive("assign partitions"):
            self._core.subscribed = {}
            self._core.assign(wanted, time.monotonic_ns())
            self._forget_chunk()

    def subscribe(
        self, topics: str | Iterable[str] = (), pattern: str | None = None, listener: object = None
    ) -> None:
        """Read all partitions of the topics: without a group nothing is shared with others.

        A pattern is matched once, now. A listener belongs to groups and is refused.
        """
        if listener is not None:
            raise client_options.not_yet("Consumer", "listener", "consumer groups")
        names = [topics] if isinstance(topics, str) else list(topics)
        with self._exclusive("subscribe"):
            if pattern is not None:
                names += [name for name in self._topic_names() if re.match(pattern, name)]
            self._core.subscribe(names, time.monotonic_ns())
            self._forget_chunk()

    def unsubscribe(self) -> None:
        """Read nothing."""
        self.assign(())

    def subscription(self) -> set[str]:
        """The topics of `subscribe`."""
        return set(self._core.subscribed)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read; a subscribed topic's appear once it is known."""
        return set(self._core.partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver nothing of these; their positions stay."""
        with self._exclusive("pause"):
            for name in partitions:
                self._state(name, "pause")
                self._core.pause(name)
            self._put_back_chunk()
            self._loop.update()

    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver again."""
        with self._exclusive("resume"):
            for name in partitions:
                self._state(name, "resume")
                self._core.resume(name)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {name for name, state in self._core.partitions.items() if state.is_paused}

    # Positions.

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on from this offset; with its leader epoch a truncation below it is found as well."""
        with self._exclusive("seek"):
            self._state(partition, "seek")
            at, epoch = checked_offset(partition, offset)
            self._core.seek(partition, at, epoch)
            self._forget_chunk()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on from the first record that is kept; without arguments: everywhere."""
        self._seek_to(partitions, OffsetSpec.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record; without arguments: everywhere."""
        self._seek_to(partitions, OffsetSpec.LATEST)

    def _seek_to(self, partitions: tuple[TopicPartition, ...], spec: OffsetSpec) -> None:
        with self._exclusive("seek"):
            for name in partitions or tuple(self._core.partitions):
                self._state(name, "seek")
                self._core.seek_to(name, spec)
            self._forget_chunk()

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record that will be delivered; waits until it is known."""
        tried = f"find the position of {partition.topic}-{partition.partition}"
        with self._exclusive(tried):
            state = self._state(partition, tried)
            deadline = self._deadline(timeout_ms)
            was_paused, state.is_paused = state.is_paused, False
            try:
                while state.position is None:
                    self._raise_error()
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise TidelogError(
                            ErrorCode.DEADLINE_EXCEEDED,
                            tried=tried,
                            happened="no broker told it within default_api_timeout_ms",
                        )
                    self._loop.turn(left)
            finally:
                state.is_paused = was_paused
            chunk = self._chunk
            if chunk is not None and chunk.topic_partition == partition:
                return chunk.position
            return state.position

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is kept, each."""
        return self._offsets_at(partitions, OffsetSpec.EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last committed record, each."""
        return self._offsets_at(partitions, OffsetSpec.LATEST)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, each; None where there is none."""
        with self._exclusive("find offsets by time"):
            answers = self._calls.offsets(
                {TopicPartition(*n): (OffsetSpec.AT_TIME, t) for n, t in timestamps.items()},
                self._options.default_api_timeout_ms,
                tried="find offsets by time",
            )
        return {
            name: OffsetAndTimestamp(answer.offset, answer.timestamp_ms, answer.leader_epoch)
            if answer.offset >= 0
            else None
            for name, answer in answers.items()
        }

    def _offsets_at(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        with self._exclusive("find offsets"):
            answers = self._calls.offsets(
                {TopicPartition(*name): (spec, -1) for name in partitions},
                self._options.default_api_timeout_ms,
                tried="find offsets",
            )
        return {name: answer.offset for name, answer in answers.items()}

    def highwater(self, partition: TopicPartition) -> int | None:
        """The first offset that was not committed when the partition last had news."""
        return self._state(partition, "find the high watermark").high_watermark

    # Topics.

    def topics(self) -> set[str]:
        """The names of all topics."""
        with self._exclusive("list topics"):
            return self._topic_names()

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The topic's partitions; None if there is no such topic."""
        with self._exclusive(f"describe {topic}"):
            try:
                found = self._calls.topic(
                    topic, self._options.default_api_timeout_ms, tried=f"describe {topic}"
                )
            except TidelogError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC:
                    return None
                raise
            return set(range(len(found.partitions)))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster answers, or has answered this client before."""
        with self._exclusive("reach the cluster"):
            if not self._metadata.is_known:
                try:
                    self._calls.refresh((), self._options.bootstrap_timeout_ms)
                except TidelogError:
                    return False
            return True

    # Records.

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to max_records (max_poll_records) records; empty when none came in time."""
        limit = self._options.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT, tried="poll", happened=f"max_records is {limit}"
            )
        with self._exclusive("poll"):
            deadline = time.monotonic() + timeout_ms / 1000
            found: dict[TopicPartition, list[ConsumerRecord]] = {}
            count = 0
            chunk = self._wait_chunk(deadline)
            while chunk is not None:
                records = chunk.take(limit - count)
                count += len(records)
                if records:
                    found.setdefault(chunk.topic_partition, []).extend(records)
                self._note_position(chunk)
                if count >= limit:
                    break
                chunk = self._next_chunk()
            self._records_read += count
            return found

    def poll_batches(
        self, timeout_ms: float = 0, max_bytes: int = 16 * 1024 * 1024
    ) -> list[RawBatch]:
        """Whole record batches as they are stored, for bulk readers; empty: none came in time.

        Each unpacks into (topic_partition, data, high_watermark). Records below `first_offset`
        were not asked for: a batch is never cut. Positions move on as with poll().
        """
        with self._exclusive("poll batches"):
            self._put_back_chunk()
            fetched = self._wait_fetched(time.monotonic() + timeout_ms / 1000)
            found: list[RawBatch] = []
            taken_bytes = 0
            while fetched is not None:
                found += split(fetched)
                self._core.partitions[fetched.topic_partition].hand_over(fetched.next_offset)
                taken_bytes += len(fetched.data)
                fetched = None if taken_bytes >= max_bytes else self._core.take()
            self._loop.update()
            return found

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._iterate()

    def __next__(self) -> ConsumerRecord:
        if self._records is None:
            self._records = self._iterate()
        try:
            return next(self._records)
        except (StopIteration, TidelogError):
            # A generator that raised is over; the consumer is not.
            self._records = None
            raise

    def _iterate(self) -> Generator[ConsumerRecord, None, None]:
        timeout_ms = self._options.consumer_timeout_ms
        while True:
            with self._exclusive("iterate"):
                deadline = time.monotonic() + timeout_ms / 1000
                chunk = self._wait_chunk(deadline)
                if chunk is None:
                    return
                self._records_read += chunk.count_left
            yield from chunk.records_left

    # The rest.

    def wakeup(self) -> None:
        """Make a waiting call of another thread, or the next one, raise WakeupError."""
        self._check_usable("wake the consumer up")
        self._loop.inbox.put(WAKEUP)

    def metrics(self) -> dict[str, float]:
        """A snapshot of counters."""
        return metrics_of(self._core, self._records_read)

    def close(self) -> None:
        """End the streams; the consumer cannot be used any more."""
        if self._refusal is not None:
            return
        self._become_closed()
        self._loop.close()
        self._connections.close()

    def __enter__(self) -> Self:
        self._check_usable("use the consumer")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Nothing is lost by it.
    close_at_exit = close

    # Inside.

    @contextmanager
    def _exclusive(self, tried: str) -> Generator[None, None, None]:
        self._check_usable(tried)
        if not self._busy.acquire(blocking=False):
            raise concurrent_use(tried)
        try:
            yield
        finally:
            self._busy.release()

    def _state(self, name: TopicPartition, tried: str) -> PartitionState:
        self._check_usable(tried)
        state = self._core.partitions.get(name)
        if state is None:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=tried,
                happened=f"{name[0]}-{name[1]} is not assigned to this consumer",
                hint="call assign() or subscribe() first",
            )
        return state

    def _deadline(self, timeout_ms: int | None) -> float:
        limit_ms = self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return time.monotonic() + limit_ms / 1000

    def _topic_names(self) -> set[str]:
        view = self._calls.refresh((), self._options.default_api_timeout_ms, all_topics=True)
        return {topic.name for topic in view.topics if not topic.is_internal}

    def _raise_error(self) -> None:
        if self._loop.is_woken:
            self._loop.is_woken = False
            raise WakeupError(tried="wait for records", happened="wakeup() was called")
        error = self._core.take_error()
        if error is not None:
            raise error

    def _wait_fetched(self, deadline: float) -> Fetched | None:
        """The next bytes, waited for; None when the time is over."""
        self._loop.turn(0)
        while True:
            self._check_usable("wait for records")
            self._raise_error()
            fetched = self._core.take()
            if fetched is not None:
                return fetched
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._loop.turn(3600.0 if math.isinf(left) else left)

    def _wait_chunk(self, deadline: float) -> Chunk | None:
        """What is left of the present chunk, or the next one, waited for."""
        chunk = self._chunk
        if chunk is not None:
            if chunk.count_left and self._is_due(chunk):
                return chunk
            self._note_position(chunk)
        while True:
            fetched = self._wait_fetched(deadline)
            if fetched is None:
                return None
            chunk = self._open_chunk(fetched)
            if chunk.count_left:
                return chunk

    def _next_chunk(self) -> Chunk | None:
        """A further chunk, if one is there already."""
        fetched = self._core.take()
        return None if fetched is None else self._open_chunk(fetched)

    def _open_chunk(self, fetched: Fetched) -> Chunk:
        self._loop.update()
        records = decode(
            fetched,
            verify=self._options.check_crcs,
            key_deserializer=self._options.key_deserializer,
            value_deserializer=self._options.value_deserializer,
        )
        self._chunk = Chunk(fetched, records)
        return self._chunk

    def _note_position(self, chunk: Chunk) -> None:
        """What the user took becomes the position; a chunk that is used up is let go."""
        state = self._core.partitions.get(chunk.topic_partition)
        if state is not None and state.generation == chunk.generation:
            state.hand_over(chunk.position)
        if not chunk.count_left:
            self._chunk = None

    def _is_due(self, chunk: Chunk) -> bool:
        """Neither paused nor void: a broker may have told of a truncation since."""
        state = self._core.partitions.get(chunk.topic_partition)
        return state is not None and chunk.generation == state.generation and not state.is_paused

    def _put_back_chunk(self) -> None:
        """Records that were decoded and not taken are fetched again."""
        chunk = self._chunk
        if chunk is None:
            return
        self._note_position(chunk)
        state = self._core.partitions.get(chunk.topic_partition)
        if chunk.count_left and state is not None and state.generation == chunk.generation:
            self._core.put_back(chunk.topic_partition, chunk.position)
        self._abandon(chunk)

    def _forget_chunk(self) -> None:
        """After a seek or a new assignment: void unless its partition stayed where it was."""
        chunk = self._chunk
        if chunk is not None:
            state = self._core.partitions.get(chunk.topic_partition)
            if state is None or state.generation != chunk.generation:
                self._abandon(chunk)
        self._loop.update()

    def _abandon(self, chunk: Chunk) -> None:
        # An iterator of the user's may still hold the chunk: empty it.
        chunk.take(chunk.count_left)
        self._chunk = None
