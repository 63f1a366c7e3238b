"""The asyncio consumer: what was prefetched is taken without a pause, else a coroutine waits.

Owns the user's side of reading: assignment, positions, decoding, waiting. Names are aiokafka's. It
commits nothing: there are no groups yet. Stop 10 of a record's walk.
"""

import time
from collections.abc import AsyncIterator, Generator, Iterable, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self, Unpack

from tidelog.client import options as client_options
from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.connections import AsyncConnections, check_security
from tidelog.client.aio.fetch_loop import AsyncFetchLoop
from tidelog.client.engine.backoff import Backoff
from tidelog.client.engine.fetch_messages import Fetched, OffsetSpec
from tidelog.client.engine.fetch_partition import PartitionState
from tidelog.client.engine.metadata import MetadataCache
from tidelog.client.lifecycle import Client
from tidelog.client.options import ConsumerArguments, ConsumerOptions
from tidelog.client.security import security_of
from tidelog.client.sync.chunk import Chunk, decode
from tidelog.client.sync.consumer_parts import (
    ANSWER_BYTES_MAX,
    checked_offset,
    make_core,
    metrics_of,
    split,
)
from tidelog.client.sync.fetch_loop import FetchLoopSettings
from tidelog.client.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RawBatch,
    TopicPartition,
)
from tidelog.wire.errors import ErrorCode, TidelogError


class AsyncConsumer(Client):
    """Reads records of topics. One coroutine at a time waits in it.

    `async with AsyncConsumer("topic", auto_offset_reset="earliest") as consumer:
         async for record in consumer: ...`
    """

    def __init__(self, *topics: str, **arguments: Unpack[ConsumerArguments]) -> None:
        options = client_options.build(ConsumerOptions, "AsyncConsumer", arguments)
        security = security_of("AsyncConsumer", options)
        check_security("AsyncConsumer", security)
        super().__init__()
        self._options = options
        self._is_busy = False
        self._chunk: Chunk | None = None
        self._records_read = 0
        self._metadata = MetadataCache()
        backoff = Backoff(
            initial_ms=options.retry_backoff_ms,
            max_ms=options.retry_backoff_max_ms,
            salt=time.monotonic_ns() & 0xFFFF,
        )
        self._connections = AsyncConnections(options.client_id, security)
        self._calls = AsyncClusterCalls(
            self._connections,
            client_options.bootstrap_addresses("AsyncConsumer", options.bootstrap_servers),
            self._metadata,
            backoff,
            options.bootstrap_timeout_ms,
            options.request_timeout_ms,
        )
        self._core = make_core(options, self._metadata, backoff)
        self._loop = AsyncFetchLoop(
            FetchLoopSettings(
                request_timeout_ms=options.request_timeout_ms,
                allow_auto_create_topics=options.allow_auto_create_topics,
                client_rack=options.client_rack,
                answer_bytes_max=min(ANSWER_BYTES_MAX, options.fetch_max_bytes),
            ),
            self._core,
            self._connections,
            self._calls,
            self._note_position,
            self._drop_void_chunk,
        )
        if topics:
            self.subscribe(topics)

    async def start(self) -> None:
        """Reach the cluster; not needed, but it says soon if there is none."""
        self._check_usable("start the consumer")
        self._loop.driver.start()
        if not self._metadata.is_known:
            await self._calls.refresh((), self._options.bootstrap_timeout_ms)

    async def stop(self) -> None:
        """End the streams; the consumer cannot be used any more."""
        if self._refusal is not None:
            return
        self._become_closed()
        await self._loop.close()
        await self._connections.close()
        self._loop.driver.notify()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # What is read.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those that stay keep their position."""
        self._check_usable("assign partitions")
        wanted = [TopicPartition(*name) for name in partitions]
        self._note_position()
        self._core.subscribed = {}
        self._core.assign(wanted, time.monotonic_ns())
        self._forget_chunk()

    def subscribe(
        self, topics: str | Iterable[str] = (), pattern: str | None = None, listener: object = None
    ) -> None:
        """Read all partitions of the topics: without a group nothing is shared with others."""
        self._check_usable("subscribe")
        for name, value in (("pattern", pattern), ("listener", listener)):
            if value is not None:
                raise client_options.not_yet("AsyncConsumer", name, "consumer groups")
        self._note_position()
        names = [topics] if isinstance(topics, str) else list(topics)
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
        for name in partitions:
            self._state(name, "pause")
            self._core.pause(name)
        self._put_back_chunk()

    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver again."""
        for name in partitions:
            self._state(name, "resume")
            self._core.resume(name)
        self._loop.update()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {name for name, state in self._core.partitions.items() if state.is_paused}

    # Positions.

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on from this offset; with its leader epoch a truncation below it is found as well."""
        self._state(partition, "seek")
        at, epoch = checked_offset(partition, offset)
        self._note_position()
        self._core.seek(partition, at, epoch)
        self._forget_chunk()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on from the first record that is kept; without arguments: everywhere."""
        self._seek_to(partitions, OffsetSpec.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record; without arguments: everywhere."""
        self._seek_to(partitions, OffsetSpec.LATEST)

    def _seek_to(self, partitions: tuple[TopicPartition, ...], spec: OffsetSpec) -> None:
        self._note_position()
        for name in partitions or tuple(self._core.partitions):
            self._state(name, "seek")
            self._core.seek_to(name, spec)
        self._forget_chunk()

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record that will be delivered; waits until it is known."""
        tried = f"find the position of {partition.topic}-{partition.partition}"
        limit_ms = self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + limit_ms / 1000
        self._loop.driver.start()
        self._loop.update()
        while True:
            state = self._state(partition, tried)
            self._note_position()
            if state.position is not None:
                return state.position
            self._raise_error()
            if not await self._loop.driver.wait(deadline - time.monotonic()):
                raise TidelogError(
                    ErrorCode.DEADLINE_EXCEEDED,
                    tried=tried,
                    happened="no broker told it within default_api_timeout_ms",
                )

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset that is kept, each."""
        return await self._offsets_at(partitions, OffsetSpec.EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last committed record, each."""
        return await self._offsets_at(partitions, OffsetSpec.LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, each; None where there is none."""
        self._check_usable("find offsets by time")
        answers = await self._calls.offsets(
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

    async def _offsets_at(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        self._check_usable("find offsets")
        answers = await self._calls.offsets(
            {TopicPartition(*name): (spec, -1) for name in partitions},
            self._options.default_api_timeout_ms,
            tried="find offsets",
        )
        return {name: answer.offset for name, answer in answers.items()}

    def highwater(self, partition: TopicPartition) -> int | None:
        """The first offset that was not committed when the partition last had news."""
        return self._state(partition, "find the high watermark").high_watermark

    # Topics.

    async def topics(self) -> set[str]:
        """The names of all topics."""
        self._check_usable("list topics")
        view = await self._calls.refresh((), self._options.default_api_timeout_ms, all_topics=True)
        return {topic.name for topic in view.topics if not topic.is_internal}

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The topic's partitions; None if there is no such topic."""
        self._check_usable(f"describe {topic}")
        try:
            found = await self._calls.topic(
                topic, self._options.default_api_timeout_ms, tried=f"describe {topic}"
            )
        except TidelogError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC:
                return None
            raise
        return set(range(len(found.partitions)))

    async def bootstrap_connected(self) -> bool:
        """Whether the cluster answers, or has answered this client before."""
        self._check_usable("reach the cluster")
        if not self._metadata.is_known:
            try:
                await self._calls.refresh((), self._options.bootstrap_timeout_ms)
            except TidelogError:
                return False
        return True

    # Records.

    async def getone(self) -> ConsumerRecord:
        """The next record, waited for as long as it takes."""
        with self._exclusive("get a record"):
            chunk = await self._wait_chunk(None)
            assert chunk is not None, "without a deadline a chunk comes"
            self._records_read += 1
            return next(chunk.records_left)

    async def getmany(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to max_records (max_poll_records) records; empty when none came in time."""
        limit = self._options.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT, tried="get records", happened=f"max_records is {limit}"
            )
        with self._exclusive("get records"):
            found: dict[TopicPartition, list[ConsumerRecord]] = {}
            count = 0
            chunk = await self._wait_chunk(time.monotonic() + timeout_ms / 1000)
            while chunk is not None:
                records = chunk.take(limit - count)
                count += len(records)
                if records:
                    found.setdefault(chunk.topic_partition, []).extend(records)
                self._note_position()
                if count >= limit:
                    break
                fetched = self._core.take()
                chunk = None if fetched is None else self._open_chunk(fetched)
            self._records_read += count
            return found

    async def get_batches(
        self, timeout_ms: float = 0, max_bytes: int = 16 * 1024 * 1024
    ) -> list[RawBatch]:
        """Whole record batches as they are stored, for bulk readers; empty: none came in time."""
        with self._exclusive("get batches"):
            self._put_back_chunk()
            fetched = await self._wait_fetched(time.monotonic() + timeout_ms / 1000)
            found: list[RawBatch] = []
            taken_bytes = 0
            while fetched is not None:
                found += split(fetched)
                self._core.partitions[fetched.topic_partition].hand_over(fetched.next_offset)
                taken_bytes += len(fetched.data)
                fetched = None if taken_bytes >= max_bytes else self._core.take()
            self._loop.update()
            return found

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        chunk = self._chunk
        if chunk is not None and not self._is_busy and self._refusal is None:
            # What is decoded already is taken without a pause.
            for record in chunk.records_left:
                self._records_read += 1
                return record
        with self._exclusive("iterate"):
            deadline = time.monotonic() + self._options.consumer_timeout_ms / 1000
            chunk = await self._wait_chunk(deadline)
            if chunk is None:
                raise StopAsyncIteration
            self._records_read += 1
            return next(chunk.records_left)

    def metrics(self) -> dict[str, float]:
        """A snapshot of counters."""
        return metrics_of(self._core, self._records_read)

    # Inside.

    @contextmanager
    def _exclusive(self, tried: str) -> Generator[None, None, None]:
        self._check_usable(tried)
        if self._is_busy:
            raise TidelogError(
                ErrorCode.CONCURRENT_USE,
                tried=tried,
                happened="another coroutine waits in this consumer",
                hint="give each coroutine a consumer of its own",
            )
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

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

    def _raise_error(self) -> None:
        error = self._core.take_error()
        if error is not None:
            self._loop.update()
            raise error

    async def _wait_fetched(self, deadline: float | None) -> Fetched | None:
        """The next bytes, waited for; None when the time is over."""
        self._loop.driver.start()
        while True:
            self._check_usable("wait for records")
            self._raise_error()
            fetched = self._core.take()
            if fetched is not None:
                return fetched
            left = 3600.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            await self._loop.driver.wait(left)

    async def _wait_chunk(self, deadline: float | None) -> Chunk | None:
        """What is left of the present chunk, or the next one, waited for."""
        chunk = self._chunk
        if chunk is not None and chunk.count_left:
            return chunk
        self._note_position()
        while True:
            fetched = await self._wait_fetched(deadline)
            if fetched is None:
                return None
            chunk = self._open_chunk(fetched)
            if chunk.count_left:
                return chunk
            self._note_position()

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

    def _note_position(self) -> None:
        """What the user took becomes the position; a chunk that is used up is let go."""
        chunk = self._chunk
        if chunk is None:
            return
        state = self._core.partitions.get(chunk.topic_partition)
        if state is not None and state.generation == chunk.generation:
            state.hand_over(chunk.position)
        if not chunk.count_left:
            self._chunk = None

    def _put_back_chunk(self) -> None:
        """Records that were decoded and not taken are fetched again."""
        self._note_position()
        chunk = self._chunk
        if chunk is None:
            return
        state = self._core.partitions.get(chunk.topic_partition)
        if state is not None and state.generation == chunk.generation:
            self._core.put_back(chunk.topic_partition, chunk.position)
        self._forget_chunk()

    def _forget_chunk(self) -> None:
        """After a seek or a new assignment."""
        self._drop_void_chunk()
        self._loop.update()

    def _drop_void_chunk(self) -> None:
        """Void unless its partition stayed where it was: a broker may have told of a truncation."""
        chunk = self._chunk
        if chunk is not None:
            state = self._core.partitions.get(chunk.topic_partition)
            if state is None or state.generation != chunk.generation:
                chunk.take(chunk.count_left)
                self._chunk = None
