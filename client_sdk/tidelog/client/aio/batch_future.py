"""What the asyncio send_batch() and send_arrow() return: to be awaited.

Owns waiting on the loop; all else is as with threads.
"""

from collections.abc import Generator
from typing import Any

from tidelog.client.aio.send_future import wait_done
from tidelog.client.bulk.sent import SentBatch
from tidelog.client.sync.batch_future import SendBatchFuture
from tidelog.client.sync.future import checked_timeout
from tidelog.wire.errors import ErrorCode, TidelogError


class AsyncSendBatchFuture(SendBatchFuture):
    """`await future` gives the records' places, or raises why some have none."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, SentBatch]:
        for batch in self._batches:
            yield from wait_done(batch).__await__()
        return self.get(0)

    def _wait(self, timeout: float | None) -> bool:
        if not self.is_done and checked_timeout(timeout) != 0:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried="wait for a batch of records on the loop's thread",
                happened="get() would hold up the loop that brings the acknowledgements",
                hint="await the future",
            )
        return self.is_done
