"""What a table on asyncio does otherwise than one on threads: a task follows, nobody locks.

Owns the task. The text of both tables is `tidelog.client.aio.table`;
`tidelog.client.sync.following` is this for threads.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.client.aio.consumer import AsyncConsumer
from tidelog.client.shared.table_parts import TableReads


class AsyncFollowing(TableReads):
    """Reads without a lock: between two awaits of the task nobody sees half of a poll."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._changed = asyncio.Condition()
        self._follower: asyncio.Task[None] | None = None

    async def _wait_until(self, look: Callable[[], bool], timeout_s: float, _tried: str) -> bool:
        """Whether it came true in time; looks after each change."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(look)
        except TimeoutError:
            return False
        return True

    def _begin_to_follow(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = asyncio.get_running_loop()
        self._follower = loop.create_task(work(), name=f"table {self.topic}")

    async def _end_following(self, _consumer: AsyncConsumer) -> None:
        """The task has ended when it returns."""
        if self._follower is not None:
            self._follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._follower
