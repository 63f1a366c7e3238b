"""The synchronous producer, stop 1 of a record's walk: send() appends, a thread does the rest.

Owns the user's side of the accumulator: checks, serialisation, blocking for room. One small lock is
taken per record, and the I/O thread is woken at most once per batch.
"""

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from tidelog.client.arguments.kinds import topic as checked_topic
from tidelog.client.arguments.options import ProducerArguments, ProducerOptions
from tidelog.client.arguments.records import as_bytes, checked_headers, too_large
from tidelog.client.bulk.appending import Appending
from tidelog.client.bulk.arrow_extra import require_arrow
from tidelog.client.bulk.pieces import pieces
from tidelog.client.bulk.records import GivenRecords, Source
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.produce.accumulator import Route
from tidelog.client.engine.produce.batch import Batch
from tidelog.client.engine.produce.messages import TopicWanted
from tidelog.client.engine.transaction.messages import CallDone, CallWithdrawn, Token
from tidelog.client.shared import io_threads
from tidelog.client.shared.checked import checked
from tidelog.client.shared.client_parts import backoff_of
from tidelog.client.sync.batch_future import PartlySentError, SendBatchFuture
from tidelog.client.sync.cluster_calls import ClusterCalls
from tidelog.client.sync.connections import Connections
from tidelog.client.sync.future import SendFuture, wait_done
from tidelog.client.sync.produce_loop import WAKE, ProduceLoop, Shared, Stop
from tidelog.client.sync.transaction import HASTE_S
from tidelog.client.sync.transaction_calls import TransactionCalls
from tidelog.client.types.records import Headers
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
_EXIT_TIMEOUT_S: Final = 5.0
_OVERHEAD_BYTES: Final = record_size_estimate(None, None, ())
_NO_HEADERS: Final = ()
Appended = TypeVar("Appended")
"""What stands for a record, or for many, that are in a batch."""


class Producer(TransactionCalls):
    """Sends records to topics. Safe to share between threads.

    `with Producer(bootstrap_servers="localhost:9192") as producer: producer.send("t", b"value")`
    """

    def __init__(self, **arguments: Unpack[ProducerArguments]) -> None:
        super().__init__("Producer", arguments)
        # Of the instance: send() reads them for each record.
        self._shared = Shared(self._accumulator)
        self._lock = self._shared.lock
        self._append = self._accumulator.append
        self._routes = self._accumulator.routes
        self._serialize_key = self._options.key_serializer
        self._serialize_value = self._options.value_serializer
        self._partitioner = self._options.partitioner
        self._record_bytes_max = self._options.max_request_size
        self._loop: ProduceLoop | None = None

    # Sending.

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Append a record; blocks up to max_block_ms for metadata or room in the buffer."""
        if topic.__class__ is not str or self._gate is not None:
            topic = self._usable_topic(topic)
        if self._serialize_value is not None:
            value = self._serialize_value(value)
        if self._serialize_key is not None:
            key = self._serialize_key(key)
        size_bytes = _OVERHEAD_BYTES
        if value is not None:
            if value.__class__ is not bytes:
                value = as_bytes(value, "value", is_serialized=self._serialize_value is not None)
            size_bytes += len(value)
        if key is not None:
            if key.__class__ is not bytes:
                key = as_bytes(key, "key", is_serialized=self._serialize_key is not None)
            size_bytes += len(key)
        if headers is not None:
            headers = checked_headers(headers)
            size_bytes += record_size_estimate(None, None, headers) - _OVERHEAD_BYTES
        else:
            headers = _NO_HEADERS
        if size_bytes > self._record_bytes_max:
            raise too_large(topic, size_bytes, self._record_bytes_max)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        else:
            timestamp_ms = self._time_of(topic, timestamp_ms)
        route = self._routes.get(topic) or self._wait_route(topic)
        if partition is not None or self._partitioner is not None:
            partition = self._placed(route, partition, key)
        elif key is not None:
            partition = partition_for_key(key, route.partition_count)
        # By hand: the with statement costs twice as much per record.
        self._lock.acquire()
        try:
            batch = route.open[route.sticky if partition is None else partition]
            if batch is not None and not headers:
                # What `append` does where there is room: the call alone is a tenth of a send().
                size_after = batch.size_bytes + size_bytes
                if size_after <= batch.checkpoint_bytes:
                    batch.size_bytes = size_after
                    columns = batch.columns
                    columns.timestamps.append(timestamp_ms)
                    columns.keys.append(key)
                    index = len(columns.values)
                    columns.values.append(value)
                    return SendFuture(batch, index, timestamp_ms)
        finally:
            self._lock.release()
        record = (timestamp_ms, key, value, headers)
        return self._send_by_append(route, partition, record, size_bytes)

    @checked
    def send_batch(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        headers: Sequence[Headers | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | Sequence[int] | None = None,
    ) -> SendBatchFuture:
        """Append many records in their order, as send() would one by one: one future for all.

        `keys`, `headers` and, unless it is one for all, `timestamp_ms` hold one for each value. All
        is checked before anything is appended. Blocks up to max_block_ms for metadata, and again
        whenever the buffer is full: PartlySentError if that is too long.
        """
        self._check_sendable(f"produce to {topic}")
        given = GivenRecords(topic, values, keys, headers, timestamp_ms, self._options)
        return self._send_source(topic, given, partition, has_keys=keys is not None)

    @checked
    def send_arrow(
        self,
        topic: str,
        data: Any,
        value: str = "value",
        key: str | None = "key",
        timestamp: str | None = None,
        partition: int | None = None,
    ) -> SendBatchFuture:
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
        return self._send_source(topic, given, partition, has_keys=given.has_keys)

    def _send_source(
        self, topic: str, source: Source, partition: int | None, *, has_keys: bool
    ) -> SendBatchFuture:
        self._seconds_watch.look(topic, source.oldest_ms)
        route = self._routes.get(topic) or self._wait_route(topic)
        choose = self._chooser(route, partition, has_keys)
        appending = Appending(pieces(source, partition, choose))

        def append() -> Batch | None:
            self._check_sendable(f"produce to {topic}")  # Under the lock, as in `_send_by_append`.
            batch = appending.step(self._accumulator, route)
            if batch is not None:
                self._wake_for(batch)
            return batch

        try:
            while appending.has_more():
                self._check_sendable(f"produce to {topic}")
                with self._lock:
                    batch = append()
                if batch is None:
                    self._when_room(topic, append)
        except TidelogError as error:
            if not appending.count:
                raise
            sent = SendBatchFuture(topic, appending.parts, appending.count)
            raise PartlySentError(error, sent, source.count) from error
        return SendBatchFuture(topic, appending.parts, appending.count)

    def _placed(self, route: Route, partition: int | None, key: bytes | None) -> int:
        """The partition that the caller names or the user's partitioner chooses."""
        if partition is None:
            return self._choose(route, key)
        return self._check_partition(route, partition)

    @checked
    def flush(self, timeout: float | None = None) -> None:
        """Send everything appended before; return when all of it is done, well or not.

        Raises DEADLINE_EXCEEDED when that takes more than `timeout` seconds.
        """
        self._check_usable("flush")
        if self._unfinished_count:
            io_threads.refuse_waiting("flush")
        if not self._flush(timeout):
            raise flush_timed_out(timeout, list(self._shared.unfinished.values()))

    @checked
    def close(self, timeout: float | None = None) -> None:
        """Flush, then end. What is not done after `timeout` seconds fails.

        Inside a callback of this producer nothing is waited for: what is not done fails.
        """
        loop = self._loop
        is_on_loop = loop is not None and loop.thread is threading.current_thread()
        if self._refusal is None and not is_on_loop and self._unfinished_count:
            io_threads.refuse_waiting("close a producer that has records to send")
        self._close(lambda: self._flush(timeout))

    def _close(self, flush: Callable[[], object]) -> None:
        if self._refusal is not None:
            return
        self._abort_at_close()
        self._become_closed()
        loop = self._loop
        if loop is None:
            return
        is_on_loop = loop.thread is threading.current_thread()
        try:
            if is_on_loop:
                self._flush(0)
            else:
                flush()
        finally:
            loop.inbox.put(Stop(error=closed_before_sent("close")))
            if not is_on_loop:
                loop.thread.join(_EXIT_TIMEOUT_S)

    def _flush_in_haste(self) -> None:
        """After Ctrl-C: as long as one batch after the other is done, for a few seconds."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        left = self._unfinished_count
        while not self._flush(FLUSH_IN_HASTE_S):
            before, left = left, self._unfinished_count
            if left >= before or time.monotonic() >= deadline:
                return

    @property
    def _unfinished_count(self) -> int:
        with self._lock:
            accumulator = self._accumulator
            return sum(map(len, (self._shared.unfinished, accumulator.sealed, accumulator.open)))

    def __enter__(self) -> Self:
        self._check_usable("use the producer")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._close(self._flush_in_haste)
        else:
            self.close()

    # Asking.

    @checked
    def partitions_for(self, topic: str) -> set[int]:
        """The topic's partitions; waits up to max_block_ms for metadata."""
        self._check_usable(f"describe {topic}")
        return set(range(self._wait_route(topic).partition_count))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster answers, or has answered this client before."""
        self._check_usable("reach the cluster")
        if self._metadata.is_known:
            return True
        io_threads.refuse_waiting("reach the cluster")
        from tidelog.client.wire import calls as wire

        connections = Connections(self._options.client_id, self._security)
        try:
            connections.call_any(
                self._bootstrap,
                wire.GET_METADATA,
                wire.metadata_request(()),
                self._options.bootstrap_timeout_ms,
            )
        except TidelogError:
            return False
        finally:
            connections.close()
        return True

    def metrics(self) -> dict[str, float]:
        """A snapshot of counters."""
        loop = self._loop
        with self._lock:
            return self._metrics_of(
                len(self._shared.unfinished),
                None if loop is None else loop.requests,
                0 if loop is None else loop.core.requests_sent,
            )

    # Inside.

    def _wake_for(self, batch: Batch) -> None:
        """Under the lock: the I/O thread must know of a new batch, or of those sealed before it."""
        shared = self._shared
        if shared.is_wake_pending:
            return
        if self._accumulator.sealed or self._accumulator.due_ns(batch) < shared.planned_ns:
            shared.is_wake_pending = True
            self._running_loop().inbox.put(WAKE)

    # Transactions.

    def _transact(
        self, make: MakeCall, timeout: float | None, *, is_last: bool = False
    ) -> Token | None:
        tried = "call a transaction"
        self._check_usable(tried)
        self._check_may_wait(tried)
        deadline_ns = time.monotonic_ns() + int(self._limit_s(timeout) * 1e9)
        answer: queue.SimpleQueue[CallDone | TidelogError] = queue.SimpleQueue()
        with self._lock:
            loop = self._running_loop()
            if loop.producing is None:
                loop.producing = make_producing(self._options, loop.core)
            call = self._begin_call(is_last=is_last)
            loop.calls[call] = answer
            loop.inbox.put(make(call=call, deadline_ns=deadline_ns))
        try:
            done = self._wait_answer(answer, tried)
        except BaseException:
            loop.inbox.put(CallWithdrawn(call=call))
            raise
        if done.error is not None:
            raise done.error
        return done.token

    def _check_may_wait(self, tried: str) -> None:
        io_threads.refuse_waiting(tried)

    def _wait_answer(
        self, answer: "queue.SimpleQueue[CallDone | TidelogError]", tried: str
    ) -> CallDone:
        """It comes at the latest at the call's deadline, unless the I/O thread is not there."""
        while True:
            try:
                found = answer.get(timeout=1.0)
            except queue.Empty:
                self._check_usable(tried)
                continue
            if isinstance(found, TidelogError):
                raise found
            return found

    def _cluster(self) -> ClusterCalls:
        with self._lock:
            connections = self._running_loop().connections
        return cluster_calls_of(self._options, self._bootstrap, connections)

    def _abort_at_close(self) -> None:
        """What is open would hold readers up until its timeout."""
        loop = self._loop
        is_on_loop = loop is not None and loop.thread is threading.current_thread()
        if not self._is_to_abort or is_on_loop:
            return
        try:
            self.abort_transaction(HASTE_S)
        except TidelogError as error:
            _log.warning("close: %s", abort_failed(error))

    def _running_loop(self) -> ProduceLoop:
        """Under the lock."""
        if self._loop is None:
            self._loop = self._make_loop()
            self._loop.thread.start()
        return self._loop

    def _make_loop(self) -> ProduceLoop:
        return ProduceLoop(
            self._loop_settings(),
            make_core(self._options, self._metadata),
            self._shared,
            Connections(self._options.client_id, self._security),
            self._become_closed,
            self._follow,
        )

    def _wait_route(self, topic: str) -> Route:
        """The topic's route; asks the cluster and waits if it is not known."""
        checked_topic(topic, "produce", "topic")
        shared = self._shared
        deadline = time.monotonic() + self._options.max_block_ms / 1000
        with shared.changed:
            route = self._routes.get(topic)
            if route is not None:
                return route
            io_threads.refuse_waiting(f"look up topic {topic}")
            shared.refused_topics.pop(topic, None)
            loop = self._running_loop()
            loop.inbox.put(TopicWanted(topic=topic))
            while True:
                route = self._routes.get(topic)
                if route is not None:
                    return route
                refused = shared.refused_topics.get(topic)
                if refused is not None and refused.is_final:
                    raise refused.error
                left = deadline - time.monotonic()
                if left <= 0 or self._refusal is not None:
                    self._check_usable(f"produce to {topic}")
                    cause = None if refused is None else refused.error
                    raise self._unknown(topic, cause)
                shared.changed.wait(min(left, 1.0))

    def _send_by_append(
        self, route: Route, partition: int | None, record: RecordTuple, size_bytes: int
    ) -> SendFuture:
        """The accumulator decides: a batch to open, more memory for it, or one to seal."""

        def append() -> SendFuture | None:
            # Under the lock: thread or transaction may have ended since send() looked.
            self._check_sendable(f"produce to {route.name}")
            chosen = route.sticky if partition is None else partition
            batch = self._append(route, chosen, *record, size_bytes)
            if batch is None:
                return None
            index = len(batch.columns) - 1
            if not index:
                self._wake_for(batch)
            return SendFuture(batch, index, record[0])

        with self._lock:
            future = append()
        return future or self._when_room(route.name, append)

    def _when_room(self, topic: str, append: Callable[[], Appended | None]) -> Appended:
        """The buffer is full: wait until batches are done."""
        shared = self._shared
        deadline = time.monotonic() + self._options.max_block_ms / 1000
        with shared.changed:
            self._waits += 1
            while True:
                appended = append()
                if appended is not None:
                    return appended
                io_threads.refuse_waiting(f"produce to {topic} while the buffer is full")
                self._seal_one_for_room()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._full(topic, shared.unfinished.values())
                shared.changed.wait(min(left, 1.0))
                self._check_sendable(f"produce to {topic}")

    def _seal_one_for_room(self) -> None:
        """With everything in open batches nothing would ever leave before it has lingered."""
        shared = self._shared
        if not shared.unfinished and not self._accumulator.sealed and self._accumulator.open:
            self._accumulator.seal_all()
        if self._accumulator.sealed and not shared.is_wake_pending:
            shared.is_wake_pending = True
            self._running_loop().inbox.put(WAKE)

    def _flush(self, timeout: float | None) -> bool:
        loop = self._loop
        if loop is None:
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        shared = self._shared
        with self._lock:
            self._accumulator.seal_all()
            batches = [*shared.unfinished.values(), *self._accumulator.sealed]
            if not shared.is_wake_pending:
                shared.is_wake_pending = True
                loop.inbox.put(WAKE)
        for batch in batches:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not wait_done(batch, left):
                return False
        return True

    def become_forked(self) -> None:
        """Every record that is still on its way fails: its fate is the parent's affair."""
        super().become_forked()
        assert self._refusal is not None, "a forked client refuses every use"
        error = self._refusal("produce")
        # No lock: its holder may not exist in this process, and nobody else runs yet.
        sealed = (*self._shared.unfinished.values(), *self._accumulator.sealed)
        for batch in (*sealed, *self._accumulator.open.values()):
            batch.outcome = error

    def close_at_exit(self) -> None:
        """Send what was appended, for a few seconds."""
        loop = self._loop
        if loop is None or not loop.thread.is_alive():
            return
        if getattr(sys, "last_type", None) is KeyboardInterrupt:
            self._close(self._flush_in_haste)
        else:
            self.close(_EXIT_TIMEOUT_S)


def cluster_calls_of(
    options: ProducerOptions, bootstrap: tuple[str, ...], connections: Connections
) -> ClusterCalls:
    """For calls in the user's own time, with metadata of their own: the core's are its thread's."""
    return ClusterCalls(
        connections,
        bootstrap,
        MetadataCache(),
        backoff_of(options),
        options.bootstrap_timeout_ms,
        options.request_timeout_ms,
    )
