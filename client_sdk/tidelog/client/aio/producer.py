"""The asyncio producer, stop 1 of a record's walk: `await send()` appends, the loop does the rest.

Owns the user's side of the accumulator: checks, serialisation, waiting for room. Names are
aiokafka's. It belongs to one loop; everything in it runs there.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from tidelog.client.aio.batch_future import AsyncSendBatchFuture
from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.aio.produce_loop import AsyncProduceLoop
from tidelog.client.aio.send_future import AsyncSendFuture, wait_done
from tidelog.client.aio.transaction import HASTE_S
from tidelog.client.aio.transaction_calls import AsyncTransactionCalls
from tidelog.client.aio.unstopped import tell_unstopped
from tidelog.client.arguments.options import ProducerArguments
from tidelog.client.arguments.records import as_bytes, checked_headers, too_large
from tidelog.client.bulk.appending import Appending
from tidelog.client.bulk.arrow_extra import require_arrow
from tidelog.client.bulk.pieces import pieces
from tidelog.client.bulk.records import GivenRecords, Source
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.produce.accumulator import Route
from tidelog.client.engine.produce.batch import Batch
from tidelog.client.engine.produce.messages import TopicWanted
from tidelog.client.engine.transaction.messages import CallWithdrawn, Token
from tidelog.client.shared.checked import checked
from tidelog.client.shared.client_parts import backoff_of
from tidelog.client.sync.batch_future import PartlySentError
from tidelog.client.types.records import Headers, RecordMetadata
from tidelog.client.writing.producer_base import (
    FLUSH_IN_HASTE_S,
    closed_before_sent,
    flush_timed_out,
)
from tidelog.client.writing.producer_parts import make_core, make_producing
from tidelog.client.writing.transaction_parts import MakeCall, abort_failed
from tidelog.wire.batch import RecordTuple, record_size_estimate
from tidelog.wire.errors import TidelogError
from tidelog.wire.partitioner import partition_for_key

_log = logging.getLogger("tidelog.client")
Appended = TypeVar("Appended")
"""What stands for a record, or for many, that are in a batch."""


class AsyncProducer(AsyncTransactionCalls):
    """Sends records to topics.

    `async with AsyncProducer() as producer: await producer.send_and_wait("t", b"value")`
    """

    _is_in_use = False
    """Made, and neither stopped nor told of."""

    def __init__(self, **arguments: Unpack[ProducerArguments]) -> None:
        super().__init__("AsyncProducer", arguments)
        self._connections = AsyncConnections(self._options.client_id, self._security)
        self._loop = AsyncProduceLoop(
            self._loop_settings(),
            make_core(self._options, self._metadata),
            self._accumulator,
            self._connections,
            self._tell_unstopped,
            self._follow,
        )
        self._is_in_use = True

    async def start(self) -> None:
        """Reach the cluster; not needed, but it says soon if there is none."""
        self._check_usable("start the producer")
        self._loop.driver.start()
        if not self._metadata.is_known:
            await self._reach()

    @checked
    async def stop(self, timeout: float | None = None) -> None:
        """Flush, then end. What is not done after `timeout` seconds fails."""
        await self._stop(lambda: self._flush(timeout))

    async def _stop(self, flush: Callable[[], Awaitable[object]]) -> None:
        if self._refusal is not None:
            return
        await self._abort_at_close()
        self._become_closed()
        self._is_in_use = False
        if not self._loop.driver.has_started:
            return
        try:
            await flush()
        finally:
            self._loop.abandon(closed_before_sent("stop"))
            await self._loop.driver.stop()
            await self._connections.close()

    close = stop

    def __del__(self) -> None:
        self._tell_unstopped()

    def close_at_exit(self) -> None:
        """There is no loop any more that could send: say what is lost."""
        self._tell_unstopped()

    def _tell_unstopped(self) -> None:
        """Once, of a producer that was used and not stopped."""
        if not self._is_in_use or self._is_forked or not self._loop.driver.has_started:
            return
        self._is_in_use = False
        count = self._loop.unsent_count
        lost = f"{count} record(s) that it had taken were not sent or not acknowledged"
        tell_unstopped(self, "AsyncProducer", lost if count else "")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            await self._stop(self._flush_in_haste)
        else:
            await self.stop()

    async def _flush_in_haste(self) -> None:
        """After Ctrl-C, which cancels: as long as one batch after the other is done."""
        left = self._unfinished_count
        while not await self._flush(FLUSH_IN_HASTE_S):
            before, left = left, self._unfinished_count
            if left >= before:
                return

    @property
    def _unfinished_count(self) -> int:
        accumulator = self._accumulator
        return sum(map(len, (self._loop.unfinished, accumulator.sealed, accumulator.open)))

    # Sending.

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncSendFuture:
        """Append a record, waiting up to max_block_ms for metadata or room; await the future for
        its place.
        """
        topic = self._usable_topic(topic)
        record, size_bytes = self._record(topic, value, key, headers, timestamp_ms)
        self._loop.driver.start()
        route = self._accumulator.routes.get(topic) or await self._wait_route(topic)
        chosen = self._partition(route, partition, record[1])
        append = partial(self._append, route, chosen, record, size_bytes)
        future = append()
        return future if future is not None else await self._when_room(topic, append)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """The same, and wait for the acknowledgement."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    @checked
    async def send_batch(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        headers: Sequence[Headers | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | Sequence[int] | None = None,
    ) -> AsyncSendBatchFuture:
        """Append many records in their order, as send() would one by one; await the future for
        the places of all.

        `keys`, `headers` and, unless it is one for all, `timestamp_ms` hold one for each value. All
        is checked before anything is appended. Waits up to max_block_ms for metadata, and again
        whenever the buffer is full: PartlySentError if that is too long.
        """
        self._check_sendable(f"produce to {topic}")
        given = GivenRecords(topic, values, keys, headers, timestamp_ms, self._options)
        return await self._send_source(topic, given, partition, has_keys=keys is not None)

    @checked
    async def send_arrow(
        self,
        topic: str,
        data: Any,
        value: str = "value",
        key: str | None = "key",
        timestamp: str | None = None,
        partition: int | None = None,
    ) -> AsyncSendBatchFuture:
        """Append the rows of a `pyarrow` table or record batch in their order, as send_batch()
        does. It needs the extra `arrow`.

        `value`, `key` and `timestamp` name columns: text or bytes, and times or milliseconds since
        1970. Rows have keys if there is a column `key` or another is named; serializers are for
        Python's values and not called.
        """
        self._check_sendable(f"produce to {topic}")
        require_arrow("send_arrow()")
        from tidelog.client.bulk.arrow_records import ArrowRecords

        limit = self._options.max_request_size
        given = ArrowRecords(
            topic, data, value=value, key=key, timestamp=timestamp, record_bytes_max=limit
        )
        return await self._send_source(topic, given, partition, has_keys=given.has_keys)

    async def _send_source(
        self, topic: str, source: Source, partition: int | None, *, has_keys: bool
    ) -> AsyncSendBatchFuture:
        self._seconds_watch.look(topic, source.oldest_ms)
        self._loop.driver.start()
        route = self._accumulator.routes.get(topic) or await self._wait_route(topic)
        choose = self._chooser(route, partition, has_keys)
        appending = Appending(pieces(source, partition, choose))

        def append() -> Batch | None:
            batch = appending.step(self._accumulator, route)
            if batch is not None:
                self._loop.driver.wake()
            return batch

        try:
            while appending.has_more():
                self._check_sendable(f"produce to {topic}")
                if append() is None:
                    await self._when_room(topic, append)
                if appending.is_piece_done:
                    # The loop has other work than a long call.
                    await asyncio.sleep(0)
        except TidelogError as error:
            if not appending.count:
                raise
            sent = AsyncSendBatchFuture(topic, appending.parts, appending.count)
            raise PartlySentError(error, sent, source.count) from error
        return AsyncSendBatchFuture(topic, appending.parts, appending.count)

    @checked
    async def flush(self, timeout: float | None = None) -> None:
        """Send everything appended before; return when all of it is done, well or not.

        Raises DEADLINE_EXCEEDED when that takes more than `timeout` seconds.
        """
        self._check_usable("flush")
        if not await self._flush(timeout):
            raise flush_timed_out(timeout, self._loop.unfinished.values())

    # Asking.

    @checked
    async def partitions_for(self, topic: str) -> set[int]:
        """The topic's partitions; waits up to max_block_ms for metadata."""
        self._check_usable(f"describe {topic}")
        self._loop.driver.start()
        route = self._accumulator.routes.get(topic) or await self._wait_route(topic)
        return set(range(route.partition_count))

    async def bootstrap_connected(self) -> bool:
        """Whether the cluster answers, or has answered this client before."""
        self._check_usable("reach the cluster")
        if not self._metadata.is_known:
            try:
                await self._reach()
            except TidelogError:
                return False
        return True

    def metrics(self) -> dict[str, float]:
        """A snapshot of counters."""
        loop = self._loop
        return self._metrics_of(len(loop.unfinished), loop.requests, loop.core.requests_sent)

    # Transactions.

    async def _transact(
        self, make: MakeCall, timeout: float | None, *, is_last: bool = False
    ) -> Token | None:
        self._check_usable("call a transaction")
        self._loop.driver.start()
        if self._loop.producing is None:
            self._loop.producing = make_producing(self._options, self._loop.core)
        deadline_ns = time.monotonic_ns() + int(self._limit_s(timeout) * 1e9)
        call = self._begin_call(is_last=is_last)
        answer = self._loop.transact(call, make(call=call, deadline_ns=deadline_ns))
        try:
            done = await answer
        except asyncio.CancelledError:
            self._loop.step(CallWithdrawn(call=call))
            raise
        if done.error is not None:
            raise done.error
        return done.token

    def _cluster(self) -> AsyncClusterCalls:
        self._loop.driver.start()
        return AsyncClusterCalls(
            self._connections,
            self._bootstrap,
            MetadataCache(),
            backoff_of(self._options),
            self._options.bootstrap_timeout_ms,
            self._options.request_timeout_ms,
        )

    async def _abort_at_close(self) -> None:
        """What is open would hold readers up until its timeout."""
        if not self._is_to_abort:
            return
        try:
            await self.abort_transaction(HASTE_S)
        except TidelogError as error:
            _log.warning("stop: %s", abort_failed(error))

    # Inside.

    async def _reach(self) -> None:
        from tidelog.client.wire import calls as wire

        answer = await self._connections.call_any(
            self._bootstrap,
            wire.GET_METADATA,
            wire.metadata_request(()),
            self._options.bootstrap_timeout_ms,
        )
        self._metadata.apply(wire.read_metadata(answer), time.monotonic_ns())

    def _record(
        self, topic: str, value: Any, key: Any, headers: Headers | None, timestamp_ms: int | None
    ) -> tuple[RecordTuple, int]:
        options = self._options
        if options.value_serializer is not None:
            value = options.value_serializer(value)
        if options.key_serializer is not None:
            key = options.key_serializer(key)
        if value is not None:
            is_serialized = options.value_serializer is not None
            value = as_bytes(value, "value", is_serialized=is_serialized)
        if key is not None:
            key = as_bytes(key, "key", is_serialized=options.key_serializer is not None)
        headers = () if headers is None else checked_headers(headers)
        size_bytes = record_size_estimate(key, value, headers)
        if size_bytes > options.max_request_size:
            raise too_large(topic, size_bytes, options.max_request_size)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        else:
            timestamp_ms = self._time_of(topic, timestamp_ms)
        return (timestamp_ms, key, value, headers), size_bytes

    def _partition(self, route: Route, partition: int | None, key: bytes | None) -> int | None:
        """As asked, by the partitioner, by the key; None: wherever there is company."""
        if partition is not None:
            partition = self._check_partition(route, partition)
        elif self._options.partitioner is not None:
            partition = self._choose(route, key)
        elif key is not None:
            partition = partition_for_key(key, route.partition_count)
        return partition

    def _append(
        self, route: Route, partition: int | None, record: RecordTuple, size_bytes: int
    ) -> AsyncSendFuture | None:
        if self._gate is not None:
            # The transaction may have ended while the topic was looked up.
            raise self._gate(f"produce to {route.name}")
        chosen = route.sticky if partition is None else partition
        batch = self._accumulator.append(route, chosen, *record, size_bytes)
        if batch is None:
            return None
        if len(batch.columns) == 1 or self._accumulator.sealed:
            # The loop must know of a new batch, and of those sealed before it.
            self._loop.driver.wake()
        return AsyncSendFuture(batch, len(batch.columns) - 1, record[0])

    async def _wait_route(self, topic: str) -> Route:
        deadline = time.monotonic() + self._options.max_block_ms / 1000
        self._loop.refused_topics.pop(topic, None)
        self._loop.step(TopicWanted(topic=topic))
        while True:
            route = self._accumulator.routes.get(topic)
            if route is not None:
                return route
            refused = self._loop.refused_topics.get(topic)
            if refused is not None and refused.is_final:
                raise refused.error
            if not await self._loop.driver.wait(deadline - time.monotonic()):
                cause = None if refused is None else refused.error
                raise self._unknown(topic, cause)
            self._check_usable(f"produce to {topic}")

    async def _when_room(self, topic: str, append: Callable[[], Appended | None]) -> Appended:
        """The buffer is full: wait until batches are done."""
        deadline = time.monotonic() + self._options.max_block_ms / 1000
        self._waits += 1
        while True:
            appended = append()
            if appended is not None:
                return appended
            if not self._loop.unfinished and not self._accumulator.sealed:
                # With everything in open batches nothing would leave before it has lingered.
                self._accumulator.seal_all()
            self._loop.driver.wake()
            if not await self._loop.driver.wait(deadline - time.monotonic()):
                raise self._full(topic, self._loop.unfinished.values())
            self._check_sendable(f"produce to {topic}")

    async def _flush(self, timeout: float | None) -> bool:
        self._accumulator.seal_all()
        batches: list[Batch] = [*self._loop.unfinished.values(), *self._accumulator.sealed]
        self._loop.driver.wake()
        try:
            async with asyncio.timeout(timeout):
                for batch in batches:
                    await wait_done(batch)
        except TimeoutError:
            return False
        return True
