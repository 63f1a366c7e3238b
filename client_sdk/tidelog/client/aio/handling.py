"""What a record handler on asyncio does otherwise than one on threads: it awaits.

Owns the awaits of what a handler's own functions return. The text of both handlers is
`tidelog.client.aio.retry`; `tidelog.client.sync.handling` is this for threads.
"""

import asyncio
import inspect
from collections.abc import Awaitable

from tidelog.client.aio.producer import AsyncProducer
from tidelog.client.errors import ArgumentTypeError
from tidelog.client.shared.retry_parts import not_set_aside
from tidelog.client.types.records import ConsumerRecord, Headers


def check_awaitable(found: object, name: str) -> Awaitable[object]:
    """What a function of the caller's returned, if it was an asynchronous one."""
    if inspect.isawaitable(found):
        return found
    raise ArgumentTypeError(
        tried=f"await what {name} returned",
        happened=f"{name} is no async function: it returned {type(found).__name__}",
        hint=f"pass an async function as {name}, or use RecordHandler",
    )


def check_returned(returned: object, name: str, _tried: str) -> None:
    """Refuses what a plain function has returned: it would count as done before it is."""
    check_awaitable(returned, name)


async def finish(returned: object, name: str, _tried: str) -> None:
    """Waits until the function has done its work."""
    await check_awaitable(returned, name)


class Stopping:
    """Whether the loop is to end, and the pauses in it."""

    def __init__(self) -> None:
        self.is_wanted = False

    def want(self) -> None:
        """The loop ends as soon as it looks."""
        self.is_wanted = True

    async def pause(self, seconds: float) -> None:
        """Between two tries; cancelling the loop ends it, `stop` does not."""
        await asyncio.sleep(seconds)


async def store(
    producer: AsyncProducer,
    topic: str,
    record: ConsumerRecord,
    headers: Headers,
    timeout_s: float,
    error: Exception,
) -> None:
    """Waits until the dead letter is acknowledged; the time is of sending it as well."""
    try:
        async with asyncio.timeout(timeout_s):
            await producer.send_and_wait(topic, record.value, record.key, headers)
    except TimeoutError:
        raise not_set_aside(topic, record, timeout_s) from error
