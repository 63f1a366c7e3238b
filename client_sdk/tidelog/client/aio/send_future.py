"""What an asyncio `send` returns: a place in a batch that will know its offset, to be awaited.

Owns waiting on the loop. It is as slim as the synchronous one: all waiting goes through the batch.
"""

import asyncio
from collections.abc import Generator
from typing import Any

from tidelog.client.engine.produce.batch import Batch
from tidelog.client.sync.future import SendFuture, checked_timeout
from tidelog.client.types.records import RecordMetadata
from tidelog.wire.errors import ErrorCode, TidelogError


class AsyncSendFuture(SendFuture):
    """`await future` gives the record's place, or raises why it has none."""

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from wait_done(self._batch).__await__()
        return self.get(0)

    def _wait(self, timeout: float | None) -> Any:
        if self._batch.outcome is None and checked_timeout(timeout) != 0:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried="wait for a record on the loop's thread",
                happened="get() would hold up the loop that brings the acknowledgement",
                hint="await the future",
            )
        return self._batch.outcome


async def wait_done(batch: Batch) -> None:
    """Until the batch has its outcome; whoever is cancelled meanwhile cancels nobody else."""
    if batch.outcome is None:
        if batch.waiter is None:
            batch.waiter = asyncio.Event()
        await batch.waiter.wait()
