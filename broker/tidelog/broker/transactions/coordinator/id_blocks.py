"""Producer ids for the coordinators of this broker, a few at a time.

Owns what is left of a block that the controller gave this broker. Coordinators share it: each asks
for a few, and those left over when one is thrown away are never used. It must never give an id
twice, and gives them in ascending order. However long the controller cannot be reached, whoever
waits goes on waiting: a coordinator works on without ids as long as nobody needs one.
"""

import asyncio
from typing import Final, Protocol

from tidelog.ports import Clock
from tidelog.wire.errors import TidelogError

FETCH_MS: Final = 5_000
"""How long one attempt may take."""
RETRY_MS: Final = 500
"""Between attempts."""


class ProducerIdBlock(Protocol):
    """Ids that are this broker's own, one after the other."""

    @property
    def first_producer_id(self) -> int:
        """The first."""
        ...

    @property
    def count(self) -> int:
        """How many."""
        ...


class ProducerIdSource(Protocol):
    """The way to the active controller."""

    async def fetch(self, timeout_ms: int) -> ProducerIdBlock:
        """A block that nobody else has; a typed error if none is to be had in that time."""
        ...


class ProducerIdBlocks:
    """One a broker."""

    def __init__(self, source: ProducerIdSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._next = 0
        self._left = 0
        self._turn = asyncio.Lock()
        """Held while a block is fetched: two would hand theirs out in the order of answers."""

    async def take(self, count: int) -> tuple[int, int]:
        """The first of some ids, and how many they are: at most so many, and at least one."""
        assert count > 0, "somebody asks for no ids"
        async with self._turn:
            while not self._left:
                await self._fetch()
            first, granted = self._next, min(count, self._left)
            self._next += granted
            self._left -= granted
            return first, granted

    async def _fetch(self) -> None:
        try:
            block = await self._source.fetch(FETCH_MS)
        except TidelogError:
            # It has no way to the controller now; the node tells of that elsewhere.
            await self._clock.sleep(RETRY_MS)
            return
        assert block.first_producer_id >= self._next, "a block was given twice"
        self._next, self._left = block.first_producer_id, block.count
