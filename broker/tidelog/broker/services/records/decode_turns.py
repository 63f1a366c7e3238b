"""Turns of those who have stored batches decoded by the broker: one at a time, so many waiting.

Owns how long decoding may hold up the loop: a batch of a few kilobytes can hold 64 MiB, and each
reader of it has it decoded again. Between two turns everything else runs, for as long as the last
one took. Readers that find too many before them are refused, or all of them would hold their calls
until these end.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from tidelog.wire.errors import ErrorCode, TidelogError

T = TypeVar("T")
WAITING_MAX: Final = 64


class DecodeTurns:
    """Of one broker."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0

    async def run(self, decode: Callable[[], T], *, tried: str) -> T:
        """At its turn."""
        if self._waiting >= WAITING_MAX:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=tried,
                happened=f"{self._waiting} readers wait to have their records decoded, at most "
                f"{WAITING_MAX} may",
                hint="Read with fewer at a time, or with Fetch, which leaves decoding to clients.",
            )
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            return decode()
        finally:
            # As long as it took belongs to all others: gRPC takes up one call of a method in a turn
            # of the loop, and withdraws without a word those that it has not taken up for 30 s.
            loop.call_later(loop.time() - begun, self._turn.release)
