"""Lets others come between the parts of a call that names very many of them.

Owns the count. Whoever pauses must bear that the node's state has changed when it goes on; a call
of ordinary size never pauses.
"""

import asyncio
from typing import Final

PARTS_A_TURN: Final = 1_000
"""Partitions of one call that are looked at, or told of, in one turn of the loop."""


class Pauses:
    """Of one piece of work."""

    def __init__(self) -> None:
        self._left = PARTS_A_TURN

    async def part_done(self) -> None:
        """Wait for the next turn where this one has had its share."""
        self._left -= 1
        if not self._left:
            self._left = PARTS_A_TURN
            await asyncio.sleep(0)
