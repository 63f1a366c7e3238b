"""A handler for every record: tried again, then set aside as a dead letter, never lost.

Owns the loop of a consumer's handler. A record counts as done when the handler returned or its dead
letter is acknowledged; what fails in between stops the loop, and the consumer goes on from the
first record that is not done.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping

from tidelog.client.aio.consumer import AsyncConsumer
from tidelog.client.aio.handling import Stopping, check_returned, finish, store
from tidelog.client.aio.producer import AsyncProducer
from tidelog.client.shared.checked import checked
from tidelog.client.shared.retry_parts import (
    DEAD_LETTER_TIMEOUT_MS,
    POLL_MS,
    HandlerCounts,
    Progress,
    RetryPolicy,
    checked_topic,
    dead_letter_headers,
)
from tidelog.client.types.records import ConsumerRecord, TopicPartition

# threads: from tidelog.client.sync.handling import check_functions

AsyncHandle = Callable[[ConsumerRecord], Awaitable[object]]
AsyncCommit = Callable[[Mapping[TopicPartition, int]], Awaitable[object]]
"""Called after each poll with the offsets behind what is done, such as `consumer.commit`."""
AsyncSleep = Callable[[float], Awaitable[object]]


class AsyncRecordHandler:
    """Calls `handle` for each record that the consumer reads.

    `AsyncRecordHandler(consumer, handle, producer, "orders.dead", commit=consumer.commit).run()`

    Give the consumer no deserializers: what `handle` itself cannot decode then becomes a dead
    letter as well. With a group, set enable_auto_commit=False and pass commit=consumer.commit.
    Cancelling `run` leaves the record that is handled at the moment undone.
    """

    @checked
    def __init__(
        self,
        consumer: AsyncConsumer,
        handle: AsyncHandle,
        producer: AsyncProducer,
        dead_letter_topic: str,
        *,
        policy: RetryPolicy | None = None,
        commit: AsyncCommit | None = None,
        dead_letter_timeout_ms: float = DEAD_LETTER_TIMEOUT_MS,
        sleep: AsyncSleep | None = None,
    ) -> None:
        # What is known to be of the wrong kind without a call is refused before anything is read.
        # threads: check_functions(handle=handle, commit=commit, sleep=sleep)
        self._consumer = consumer
        self._handle = handle
        self._producer = producer
        self._dead_letter_topic = dead_letter_topic
        self._policy = policy or RetryPolicy()
        self._commit = commit
        self._timeout_s = dead_letter_timeout_ms / 1000
        self._stopping = Stopping()
        self._sleep: AsyncSleep = self._stopping.pause if sleep is None else sleep
        self._handled = self._retried = self._dead_letters = 0

    @property
    def counts(self) -> HandlerCounts:
        """What was done so far."""
        return HandlerCounts(
            handled=self._handled, retried=self._retried, dead_letters=self._dead_letters
        )

    @checked
    async def run(self, poll_ms: float = POLL_MS) -> None:
        """Until `stop` is called, by the handler or anybody else; raises what it cannot mend."""
        while not self._stopping.is_wanted:
            await self.run_once(poll_ms)

    @checked
    async def run_once(self, poll_ms: float = POLL_MS) -> int:
        """The records of one poll; how many of them are done."""
        found = await self._consumer.getmany(timeout_ms=poll_ms)
        progress = Progress(found)
        count = 0
        try:
            for name, records in found.items():
                for place, record in enumerate(records):
                    if not await self._do(record):
                        return count
                    is_last = place + 1 == len(records)
                    progress.note(name, record, None if is_last else records[place + 1].offset)
                    count += 1
        finally:
            # What is another member's by now is its affair: it reads from what was committed.
            assigned = self._consumer.assignment()
            for name, offset in progress.left.items():
                if name in assigned:
                    self._consumer.seek(name, offset)
            done = {name: offset for name, offset in progress.done.items() if name in assigned}
            if self._commit is not None and done:
                committing: object = self._commit(done)
                await finish(committing, "commit", "commit what is done")
        return count

    def stop(self) -> None:
        """End `run` behind the record that is being handled; one that pauses stays undone."""
        self._stopping.want()

    async def _do(self, record: ConsumerRecord) -> bool:
        """Whether it is done with; only `stop` leaves it undone without an error."""
        tries = 0
        while not self._stopping.is_wanted:
            tries += 1
            try:
                returned: object = self._handle(record)
                # asyncio only: what a coroutine raises, it raises when it is awaited
                if inspect.isawaitable(returned):
                    await returned
            except Exception as error:  # noqa: BLE001 - a supervisor of code that is not ours
                pause_ms = self._policy.pause_ms(tries, error)
                if pause_ms is None:
                    await self._set_aside(record, error, tries)
                    return True
                self._retried += 1
                pausing: object = self._sleep(pause_ms / 1000)
                await finish(pausing, "sleep", "pause between two tries")
            else:
                # Outside of the try: a handler of the wrong kind is the caller's mistake, and no
                # record may count as handled by it, nor become a dead letter.
                check_returned(returned, "handle", f"handle a record of {record.topic}")
                self._handled += 1
                return True
        return False

    async def _set_aside(self, record: ConsumerRecord, error: Exception, tries: int) -> None:
        checked_topic(self._dead_letter_topic, record)
        headers = dead_letter_headers(record, error, tries)
        await store(
            self._producer, self._dead_letter_topic, record, headers, self._timeout_s, error
        )
        self._dead_letters += 1
