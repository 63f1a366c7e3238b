"""What a record handler on threads does otherwise than one on asyncio: it calls plain functions.

Owns the refusal of async functions, which nobody would await. The text of both handlers is
`tidelog.client.aio.retry`; `tidelog.client.aio.handling` is this for asyncio.
"""

import threading

from tidelog.client.arguments.functions import plain_function, refuse_awaitable
from tidelog.client.sync.producer import Producer
from tidelog.client.types.records import ConsumerRecord, Headers


def check_functions(**given: object) -> None:
    """Refuses async functions as far as one sees it without calling them."""
    for name, function in given.items():
        if function is not None:
            plain_function(function, "make a RecordHandler", name, ", or use AsyncRecordHandler")


def check_returned(returned: object, name: str, tried: str) -> None:
    """Refuses what an async function has returned: nothing of it has run."""
    refuse_awaitable(returned, name, tried)


finish = check_returned
"""A plain function that has returned has done its work."""


class Stopping:
    """Whether the loop is to end, and the pauses in it."""

    def __init__(self) -> None:
        self._wanted = threading.Event()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody said so, on whichever thread."""
        return self._wanted.is_set()

    def want(self) -> None:
        """The loop ends as soon as it looks, and a pause at once."""
        self._wanted.set()

    def pause(self, seconds: float) -> None:
        """Between two tries."""
        self._wanted.wait(seconds)


def store(
    producer: Producer,
    topic: str,
    record: ConsumerRecord,
    headers: Headers,
    timeout_s: float,
    _error: Exception,
) -> None:
    """Waits until the dead letter is acknowledged; the future says what has not come in time."""
    producer.send(topic, record.value, record.key, headers).get(timeout_s)
