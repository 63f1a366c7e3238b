"""A handler for every record on asyncio: tried again, then set aside, never lost.

Owns the loop of an asyncio consumer's handler; its rules are those of
`tidelog.client.patterns.retry`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping

from tidelog.client.aio.consumer import AsyncConsumer
from tidelog.client.aio.producer import AsyncProducer
from tidelog.client.errors import ArgumentTypeError
from tidelog.client.shared.checked import checked
from tidelog.client.shared.retry_parts import (
    DEAD_LETTER_TIMEOUT_MS,
    POLL_MS,
    HandlerCounts,
    Progress,
    RetryPolicy,
    checked_topic,
    dead_letter_headers,
    not_set_aside,
)
from tidelog.client.types.records import ConsumerRecord, TopicPartition

AsyncHandle = Callable[[ConsumerRecord], Awaitable[object]]
AsyncCommit = Callable[[Mapping[TopicPartition, int]], Awaitable[object]]
AsyncSleep = Callable[[float], Awaitable[object]]


def check_awaitable(found: object, name: str) -> Awaitable[object]:
    """What a function of the caller's returned, if it was an asynchronous one."""
    if inspect.isawaitable(found):
        return found
    raise ArgumentTypeError(
        tried=f"await what {name} returned",
        happened=f"{name} is no async function: it returned {type(found).__name__}",
        hint=f"pass an async function as {name}, or use RecordHandler",
    )


class AsyncRecordHandler:
    """Awaits `handle` for each record that the consumer reads; see `tidelog.client.RecordHandler`.

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
        sleep: AsyncSleep = asyncio.sleep,
    ) -> None:
        self._consumer = consumer
        self._handle = handle
        self._producer = producer
        self._dead_letter_topic = dead_letter_topic
        self._policy = policy or RetryPolicy()
        self._commit = commit
        self._timeout_s = dead_letter_timeout_ms / 1000
        self._sleep = sleep
        self._is_stopped = False
        self._handled = self._retried = self._dead_letters = 0

    @property
    def counts(self) -> HandlerCounts:
        """What was done so far."""
        return HandlerCounts(
            handled=self._handled, retried=self._retried, dead_letters=self._dead_letters
        )

    @checked
    async def run(self, poll_ms: float = POLL_MS) -> None:
        """Until `stop` is called; raises what cannot be mended."""
        while not self._is_stopped:
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
                await check_awaitable(committing, "commit")
        return count

    def stop(self) -> None:
        """End `run` behind the record that is being handled; one that pauses stays undone."""
        self._is_stopped = True

    async def _do(self, record: ConsumerRecord) -> bool:
        """Whether it is done with; only `stop` leaves it undone without an error."""
        tries = 0
        while not self._is_stopped:
            tries += 1
            try:
                waiting: object = self._handle(record)
                if inspect.isawaitable(waiting):
                    await waiting
            except Exception as error:  # noqa: BLE001 - a supervisor of code that is not ours
                pause_ms = self._policy.pause_ms(tries, error)
                if pause_ms is None:
                    await self._set_aside(record, error, tries)
                    return True
                self._retried += 1
                pausing: object = self._sleep(pause_ms / 1000)
                await check_awaitable(pausing, "sleep")
            else:
                # Else it would be tried again and set aside, though it has done its work.
                check_awaitable(waiting, "handle")
                self._handled += 1
                return True
        return False

    async def _set_aside(self, record: ConsumerRecord, error: Exception, tries: int) -> None:
        checked_topic(self._dead_letter_topic, record)
        headers = dead_letter_headers(record, error, tries)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._producer.send_and_wait(
                    self._dead_letter_topic, record.value, record.key, headers
                )
        except TimeoutError:
            raise not_set_aside(self._dead_letter_topic, record, self._timeout_s) from error
        self._dead_letters += 1
