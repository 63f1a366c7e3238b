"""The asyncio consumer: what was prefetched is taken without a pause, else a coroutine waits.

Owns its life, what it reads, and its iteration; names are aiokafka's. The calls that it shares with
a consumer on threads are in `reading_calls`. Stop 10 of a record's walk.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self, Unpack

from tidelog.client.aio.reading_calls import AsyncReadingCalls
from tidelog.client.arguments.options import ConsumerArguments
from tidelog.client.reading.consumer_base import matching
from tidelog.client.reading.consumer_parts import first_topics
from tidelog.client.shared.checked import checked
from tidelog.client.types.records import ConsumerRecord, TopicPartition
from tidelog.wire.errors import TidelogError


class AsyncConsumer(AsyncReadingCalls):
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

    # Records.

    async def getone(self) -> ConsumerRecord:
        """The next record, waited for as long as it takes."""
        async with self._polling("get a record"):
            chunk = await self._wait_chunk(math.inf)
            assert chunk is not None, "without a deadline a chunk comes"
            self._records_read += 1
            return next(chunk.records_left)

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
