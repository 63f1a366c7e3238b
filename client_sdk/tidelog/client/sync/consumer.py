"""The synchronous consumer: the user's thread runs the core, and takes what was prefetched.

Owns its life, what it reads, and its iteration. The calls that it shares with a consumer on asyncio
are in `reading_calls`. Stop 10 of a record's walk.
"""

import sys
import time
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Self, Unpack

from tidelog.client.arguments.functions import check_plain_listener
from tidelog.client.arguments.options import ConsumerArguments
from tidelog.client.reading.consumer_base import matching
from tidelog.client.reading.consumer_parts import first_topics
from tidelog.client.shared import io_threads
from tidelog.client.shared.checked import checked
from tidelog.client.sync.fetch_loop import WAKEUP
from tidelog.client.sync.reading_calls import ReadingCalls
from tidelog.client.types.records import ConsumerRecord
from tidelog.wire.errors import TidelogError


class Consumer(ReadingCalls):
    """Reads records of topics. One thread at a time; `wakeup` may come from any.

    `for record in Consumer("topic", group_id="g", auto_offset_reset="earliest"): ...`
    """

    def __init__(self, *topics: str, **arguments: Unpack[ConsumerArguments]) -> None:
        names = first_topics("Consumer", topics)
        super().__init__("Consumer", arguments)
        self._records: Iterator[ConsumerRecord] | None = None
        if names:
            self.subscribe(names)

    # What is read.

    @checked
    def subscribe(
        self, topics: str | Iterable[str] = (), pattern: str | None = None, listener: object = None
    ) -> None:
        """Read the topics: with a group its members share their partitions, without one all of
        them are read.

        A group's pattern is RE2 and matches whole names, now and later; without a group it is
        Python's, matches the beginning of a name, and is looked at once. The listener, a
        ConsumerRebalanceListener, is told what comes and goes; it needs a group.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        with self._exclusive("subscribe"):
            if self._group is not None:
                check_plain_listener(listener)
                self._join(self._group, names, pattern, listener)
                return
            self._no_listener(listener)
            if pattern is not None:
                names += matching(pattern, self._topic_names())
            self._subscribe(names)

    # Iteration.

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
            with self._polling("iterate"):
                deadline = time.monotonic() + timeout_ms / 1000
                chunk = self._wait_chunk(deadline)
                if chunk is None:
                    return
                records, count = chunk.records_left, chunk.count_left
                if self._group is not None:
                    # It wants to see its members between max_poll_records of them.
                    count = min(count, self._options.max_poll_records)
                    records = islice(records, count)
                self._records_read += count
            yield from records

    # The rest.

    def wakeup(self) -> None:
        """Make a waiting call of another thread, or the next one, raise WakeupError."""
        self._check_usable("wake the consumer up")
        self._loop.inbox.put(WAKEUP)

    @checked
    def close(self, autocommit: bool = True, timeout_ms: int | None = None) -> None:
        """End the streams; the consumer cannot be used any more.

        With a group: what was delivered is committed (if auto-commit is on), within `timeout_ms`,
        by default 30 s; then the member leaves, so that its partitions move at once.
        """
        if self._refusal is None:
            io_threads.refuse_waiting("close a consumer")
        self._close(autocommit=autocommit, timeout_ms=timeout_ms, in_haste=False)

    def _close(self, *, autocommit: bool, timeout_ms: int | None, in_haste: bool) -> None:
        if self._refusal is not None:
            return
        # Another thread that is inside a call keeps what it reads: it is not committed here.
        is_alone = self._busy.acquire(blocking=False)
        try:
            self._say_farewell(
                autocommit=autocommit, timeout_ms=timeout_ms, in_haste=in_haste or not is_alone
            )
        finally:
            self._become_closed()
            self._loop.close()
            self._connections.close()
            if self._member is not None:
                self._member.stop()
            if is_alone:
                self._busy.release()

    def __enter__(self) -> Self:
        self._check_usable("use the consumer")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_hurried = isinstance(error, KeyboardInterrupt)
        self._close(autocommit=True, timeout_ms=None, in_haste=error is not None)

    def close_at_exit(self) -> None:
        """Nobody said that he has done with what was delivered: nothing is committed."""
        self._is_hurried = getattr(sys, "last_type", None) is KeyboardInterrupt
        self._close(autocommit=False, timeout_ms=None, in_haste=True)
