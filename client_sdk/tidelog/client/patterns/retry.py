"""A handler for every record: tried again, then set aside as a dead letter, never lost.

Owns the loop of a synchronous consumer's handler. A record counts as done when the handler returned
or its dead letter is acknowledged; what fails in between stops the loop, and the consumer goes on
from the first record that is not done.
"""

import threading
from collections.abc import Callable, Mapping

from tidelog.client.arguments.functions import plain_function, refuse_awaitable
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
from tidelog.client.sync.consumer import Consumer
from tidelog.client.sync.producer import Producer
from tidelog.client.types.records import ConsumerRecord, TopicPartition

Handle = Callable[[ConsumerRecord], object]
Commit = Callable[[Mapping[TopicPartition, int]], object]
"""Called after each poll with the offsets behind what is done, such as `consumer.commit`."""
Sleep = Callable[[float], object]


class RecordHandler:
    """Calls `handle` for each record that the consumer reads.

    `RecordHandler(consumer, handle, producer, "orders.dead", commit=consumer.commit).run()`

    Give the consumer no deserializers: what `handle` itself cannot decode then becomes a dead
    letter as well. With a group, set enable_auto_commit=False and pass commit=consumer.commit.
    """

    @checked
    def __init__(
        self,
        consumer: Consumer,
        handle: Handle,
        producer: Producer,
        dead_letter_topic: str,
        *,
        policy: RetryPolicy | None = None,
        commit: Commit | None = None,
        dead_letter_timeout_ms: float = DEAD_LETTER_TIMEOUT_MS,
        sleep: Sleep | None = None,
    ) -> None:
        for name, given in (("handle", handle), ("commit", commit), ("sleep", sleep)):
            if given is not None:
                plain_function(given, "make a RecordHandler", name, ", or use AsyncRecordHandler")
        self._consumer = consumer
        self._handle = handle
        self._producer = producer
        self._dead_letter_topic = dead_letter_topic
        self._policy = policy or RetryPolicy()
        self._commit = commit
        self._timeout_s = dead_letter_timeout_ms / 1000
        self._stopped = threading.Event()
        self._sleep: Sleep = self._stopped.wait if sleep is None else sleep
        """Pauses between tries; by default a pause that `stop` ends."""
        self._handled = self._retried = self._dead_letters = 0

    @property
    def counts(self) -> HandlerCounts:
        """What was done so far."""
        return HandlerCounts(
            handled=self._handled, retried=self._retried, dead_letters=self._dead_letters
        )

    @checked
    def run(self, poll_ms: float = POLL_MS) -> None:
        """Until `stop` is called, by the handler or another thread; raises what it cannot mend."""
        while not self._stopped.is_set():
            self.run_once(poll_ms)

    @checked
    def run_once(self, poll_ms: float = POLL_MS) -> int:
        """The records of one poll; how many of them are done."""
        found = self._consumer.poll(poll_ms)
        progress = Progress(found)
        count = 0
        try:
            for name, records in found.items():
                for place, record in enumerate(records):
                    if not self._do(record):
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
                refuse_awaitable(self._commit(done), "commit", "commit what is done")
        return count

    def stop(self) -> None:
        """End `run` behind the record that is being handled; one that pauses stays undone."""
        self._stopped.set()

    def _do(self, record: ConsumerRecord) -> bool:
        """Whether it is done with; only `stop` leaves it undone without an error."""
        tries = 0
        while not self._stopped.is_set():
            tries += 1
            try:
                returned = self._handle(record)
            except Exception as error:  # noqa: BLE001 - a supervisor of code that is not ours
                pause_ms = self._policy.pause_ms(tries, error)
                if pause_ms is None:
                    self._set_aside(record, error, tries)
                    return True
                self._retried += 1
                refuse_awaitable(self._sleep(pause_ms / 1000), "sleep", "pause between two tries")
            else:
                # Of an async function nothing has run: no record counts as handled by it.
                refuse_awaitable(returned, "handle", f"handle a record of {record.topic}")
                self._handled += 1
                return True
        return False

    def _set_aside(self, record: ConsumerRecord, error: Exception, tries: int) -> None:
        checked_topic(self._dead_letter_topic, record)
        headers = dead_letter_headers(record, error, tries)
        self._producer.send(self._dead_letter_topic, record.value, record.key, headers).get(
            self._timeout_s
        )
        self._dead_letters += 1
