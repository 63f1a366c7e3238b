"""The asyncio consumer: what was prefetched is taken without a pause, else a coroutine waits.

Owns the user's side of reading: assignment, positions, decoding, waiting. Names are aiokafka's.
What a group adds is in `group_consumer`. Stop 10 of a record's walk.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from tidelog.client.aio.group_consumer import AsyncGroupConsumer
from tidelog.client.arguments.options import ConsumerArguments
from tidelog.client.arguments.records import warn_of_seconds
from tidelog.client.bulk.arrow_extra import require_arrow
from tidelog.client.engine.fetch.messages import Fetched, OffsetSpec
from tidelog.client.reading.chunk import Chunk
from tidelog.client.reading.consumer_base import matching, not_told_in_time, times_of
from tidelog.client.reading.consumer_parts import first_topics
from tidelog.client.shared.checked import checked
from tidelog.client.types.records import (
    ConsumerRecord,
    OffsetAndTimestamp,
    RawBatch,
    TopicPartition,
)
from tidelog.wire.errors import ErrorCode, TidelogError


class AsyncConsumer(AsyncGroupConsumer):
    """Reads records of topics. One coroutine at a time waits in it.

    `async with AsyncConsumer("topic", group_id="g", auto_offset_reset="earliest") as consumer:
         async for record in consumer: ...`
    """

    def __init__(self, *topics: str, **arguments: Unpack[ConsumerArguments]) -> None:
        names = first_topics("AsyncConsumer", topics)
        super().__init__("AsyncConsumer", arguments)
        self._taken = 0
        """Records given one by one since the group was last attended to."""
        self._subscriptions = 0
        """How often what is read was changed: a pattern is matched for the last one only."""
        if names:
            self.subscribe(names)

    async def start(self) -> None:
        """Reach the cluster; not needed, but it says soon if there is none."""
        self._check_usable("start the consumer")
        self._loop.driver.start()
        if not self._metadata.is_known:
            await self._calls.refresh((), self._options.bootstrap_timeout_ms)

    @checked
    async def stop(self, autocommit: bool = True, timeout_ms: int | None = None) -> None:
        """End the streams; the consumer cannot be used any more.

        With a group: what was delivered is committed (if auto-commit is on), within `timeout_ms`,
        by default 30 s; then the member leaves, so that its partitions move at once.
        """
        await self._stop(autocommit=autocommit, timeout_ms=timeout_ms, in_haste=False)

    close = stop

    async def _stop(self, *, autocommit: bool, timeout_ms: int | None, in_haste: bool) -> None:
        if self._refusal is not None:
            return
        self._is_in_use = False
        try:
            # Another coroutine that is inside a call keeps what it reads: it is not committed here.
            await self._say_farewell(
                autocommit=autocommit, timeout_ms=timeout_ms, in_haste=in_haste or self._is_busy
            )
        finally:
            self._become_closed()
            if self._member is not None:
                await self._member.stop()
            await self._loop.close()
            await self._connections.close()
            self._loop.driver.notify()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_hurried = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
        await self._stop(autocommit=True, timeout_ms=None, in_haste=error is not None)

    # What is read.

    @checked
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those that stay keep their position."""
        super().assign(partitions)
        self._subscriptions += 1

    @checked
    def subscribe(
        self, topics: str | Iterable[str] = (), pattern: str | None = None, listener: object = None
    ) -> None:
        """Read the topics: with a group its members share their partitions, without one all of
        them are read.

        A group's pattern is RE2 and matches whole names, now and later; without a group it is
        Python's, matches the beginning of a name, and is looked at once, as soon as the cluster has
        named its topics. The listener, a ConsumerRebalanceListener, is told what comes and goes; it
        needs a group.
        """
        self._check_usable("subscribe")
        names = [topics] if isinstance(topics, str) else list(topics)
        if self._group is not None:
            self._join(self._group, names, pattern, listener)
            return
        self._no_listener(listener)
        if pattern is not None:
            matching(pattern, ())
        self._subscribe(names)
        self._subscriptions += 1
        if pattern is not None:
            work = self._subscribe_matching(names, pattern, self._subscriptions)
            self._loop.driver.spawn(work, "pattern")

    async def _subscribe_matching(self, names: list[str], pattern: str, number: int) -> None:
        try:
            found = await self._topic_names()
        except TidelogError as error:
            self._core.errors.append(error)
        else:
            if number == self._subscriptions and not self.is_closed:
                self._subscribe([*names, *matching(pattern, found)])
        self._loop.update()
        self._loop.driver.notify()

    # Positions.

    @checked
    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on from the first record that is kept; without arguments: everywhere."""
        self._seek_to(partitions, OffsetSpec.EARLIEST)

    @checked
    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record; without arguments: everywhere."""
        self._seek_to(partitions, OffsetSpec.LATEST)

    @checked
    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record that will be delivered; waits until it is known."""
        tried = f"find the position of {partition.topic}-{partition.partition}"
        deadline = time.monotonic() + self._limit_ms(timeout_ms) / 1000
        self._loop.driver.start()
        self._loop.update()
        while (found := self._position_now(partition, tried)) is None:
            self._raise_error()
            if not await self._loop.driver.wait(deadline - time.monotonic()):
                raise not_told_in_time(tried)
            self._look_for_starts()
        return found

    def _look_for_starts(self) -> None:
        if self._group is not None:
            self._start_member(self._group)
            self._group.settle()

    @checked
    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that is kept, each."""
        return await self._offsets_at(partitions, OffsetSpec.EARLIEST, timeout_ms)

    @checked
    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last committed record, each."""
        return await self._offsets_at(partitions, OffsetSpec.LATEST, timeout_ms)

    @checked
    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, each; None where there is none."""
        warn_of_seconds(timestamps.values(), "find offsets by time")
        self._check_usable("find offsets by time")
        answers = await self._calls.offsets(
            {TopicPartition(*n): (OffsetSpec.AT_TIME, t) for n, t in timestamps.items()},
            self._limit_ms(timeout_ms),
            tried="find offsets by time",
        )
        return times_of(answers)

    async def _offsets_at(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        self._check_usable("find offsets")
        answers = await self._calls.offsets(
            {TopicPartition(*name): (spec, -1) for name in partitions},
            self._limit_ms(timeout_ms),
            tried="find offsets",
        )
        return {name: answer.offset for name, answer in answers.items()}

    # Topics.

    async def topics(self) -> set[str]:
        """The names of all topics."""
        self._check_usable("list topics")
        return await self._topic_names()

    @checked
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
        async with self._polling("get a record"):
            chunk = await self._wait_chunk(None)
            assert chunk is not None, "without a deadline a chunk comes"
            self._records_read += 1
            return next(chunk.records_left)

    @checked
    async def getmany(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to max_records (max_poll_records) records; empty when none came in time."""
        limit = self._record_limit(max_records, "get records")
        async with self._polling("get records"):
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
                chunk = self._next_chunk()
            self._records_read += count
            return found

    @checked
    async def get_batches(
        self, timeout_ms: float = 0, max_bytes: int = 16 * 1024 * 1024
    ) -> list[RawBatch]:
        """Whole record batches as they are stored, for bulk readers; empty: none came in time."""
        async with self._polling("get batches"):
            self._put_back_chunk()
            fetched = await self._wait_fetched(time.monotonic() + timeout_ms / 1000)
            return self._take_batches(fetched, max_bytes)

    @checked
    async def get_arrow(
        self,
        timeout_ms: float = 0,
        max_bytes: int = 16 * 1024 * 1024,
        include_headers: bool = False,
    ) -> Any:
        """Records as a `pyarrow.Table`: topic, partition, offset, timestamp, key, value, and
        headers if they are wanted; without rows: none came in time. It needs the extra `arrow`.

        Keys and values are the stored bytes, whatever deserializers the consumer has. `max_bytes`
        is of stored bytes: it ends before the next answer of a broker, which is never cut.
        Positions move on as with getmany().
        """
        require_arrow("get_arrow()")
        async with self._polling("get a table"):
            self._put_back_chunk()
            deadline = time.monotonic() + timeout_ms / 1000
            while True:
                fetched = await self._wait_fetched(deadline)
                table = self._take_table(fetched, max_bytes, include_headers=include_headers)
                if fetched is None or table.num_rows:
                    return table

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        chunk = self._chunk
        if chunk is not None and self._may_take_at_once():
            # What is decoded already is taken without a pause.
            for record in chunk.records_left:
                self._records_read += 1
                return record
        async with self._polling("iterate"):
            deadline = time.monotonic() + self._options.consumer_timeout_ms / 1000
            chunk = await self._wait_chunk(deadline)
            if chunk is None:
                raise StopAsyncIteration
            self._records_read += 1
            self._taken = 0
            return next(chunk.records_left)

    # Inside.

    def _may_take_at_once(self) -> bool:
        if self._is_busy or self._refusal is not None:
            return False
        if self._group is None:
            return True
        # A group wants to see its members between max_poll_records of them.
        self._taken += 1
        if self._taken < self._options.max_poll_records and not self._group.has_moves:
            return self._may_deliver()
        self._taken = 0
        return False

    async def _topic_names(self) -> set[str]:
        view = await self._calls.refresh((), self._options.default_api_timeout_ms, all_topics=True)
        return {topic.name for topic in view.topics if not topic.is_internal}

    async def _wait_fetched(self, deadline: float | None) -> Fetched | None:
        """The next bytes, waited for; None when the time is over."""
        self._loop.driver.start()
        while True:
            self._check_usable("wait for records")
            await self._attend()
            self._raise_error()
            fetched = self._core.take() if self._may_deliver() else None
            if fetched is not None:
                return fetched
            left = 3600.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            await self._loop.driver.wait(self._longest_wait(left))

    async def _wait_chunk(self, deadline: float | None) -> Chunk | None:
        """What is left of the present chunk, or the next one, waited for."""
        if not self._may_deliver():
            # Behind the lease: what is left of the chunk may be somebody else's by now.
            self._put_back_chunk()
        chunk = self._begun_chunk()
        if chunk is not None:
            return chunk
        while True:
            fetched = await self._wait_fetched(deadline)
            if fetched is None:
                return None
            chunk = self._first_chunk(fetched)
            if chunk is not None:
                return chunk
