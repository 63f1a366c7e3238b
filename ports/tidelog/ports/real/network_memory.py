"""What one listener holds of its callers' messages: counted, bounded, refused by name.

Pure but for the waiting. Requests count from their arrival until their handler is done with them,
answers of calls until the caller has taken them: a caller that reads nothing gets no more. Streams
need no count of answers: a send there waits until the caller reads.
"""

import asyncio
from typing import Final

from tidelog.ports.network import ListenerLimits
from tidelog.wire.errors import ErrorCode, TidelogError

SMALL_ANSWER_BYTES: Final = 64 * 1024
"""Smaller answers are not counted: the limits of calls bound them, and most calls cost nothing."""


class ListenerMemory:
    """Of one listener."""

    def __init__(self, listener: str, limits: ListenerLimits) -> None:
        self._listener = listener
        self._limits = limits
        self.request_bytes = 0
        self.answer_bytes = 0
        self.refused: dict[str, int] = {}
        """Calls and answers, by the limit that was used up."""
        self._answers_of: dict[str, int] = {}
        self._has_room = asyncio.Event()

    @property
    def refused_count(self) -> int:
        """All of them."""
        return sum(self.refused.values())

    def _note_refused(self, limit: str) -> None:
        self.refused[limit] = self.refused.get(limit, 0) + 1

    @property
    def has_room(self) -> bool:
        """Whether one more request may come in; a single one may pass the limit."""
        return self.request_bytes < self._limits.request_memory_bytes

    async def wait_room(self) -> None:
        """Until more may be read from a stream: its caller's sending waits meanwhile."""
        while not self.has_room:
            self._has_room.clear()
            await self._has_room.wait()

    def admit(self, method: str, connection: str, length_bytes: int) -> None:
        """Count a call's request, or refuse the call before anything is done."""
        limits = self._limits
        if not self.has_room:
            name, value = "request_memory_bytes", limits.request_memory_bytes
        elif self.answer_bytes >= limits.answer_memory_bytes:
            name, value = "answer_memory_bytes", limits.answer_memory_bytes
        elif self._answers_of.get(connection, 0) >= limits.connection_answer_bytes:
            name, value = "connection_answer_bytes", limits.connection_answer_bytes
        else:
            self.take(length_bytes)
            return
        self._note_refused(name)
        raise TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED,
            tried=f"call {method}",
            happened=f"listeners.{self._listener}.limits.{name} = {value} is used up",
            hint="Read the answers that are waiting, or try again later.",
        )

    def take(self, length_bytes: int) -> None:
        """Count a message that has arrived."""
        self.request_bytes += length_bytes

    def give_back(self, length_bytes: int) -> None:
        """Its handler is done with it."""
        self.request_bytes -= length_bytes
        assert self.request_bytes >= 0, "a request is given back once"
        if self.has_room:
            self._has_room.set()

    def hold_answer(self, method: str, connection: str, length_bytes: int) -> None:
        """Count an answer that is on its way, or refuse to hold it."""
        limits = self._limits
        of_connection = self._answers_of.get(connection, 0) + length_bytes
        # The only answer on its way may have any size: else it could never be given.
        is_over = of_connection > max(limits.connection_answer_bytes, length_bytes)
        is_all_over = self.answer_bytes + length_bytes > max(
            limits.answer_memory_bytes, length_bytes
        )
        if is_over or is_all_over:
            name = "connection_answer_bytes" if is_over else "answer_memory_bytes"
            self._note_refused(name)
            raise TidelogError(
                ErrorCode.INDETERMINATE,
                tried=f"answer {method}",
                happened=f"listeners.{self._listener}.limits.{name} is used up by answers that "
                "were not read; what was asked for may be done",
                hint="Read the answers that are waiting, and ask for fewer bytes at a time.",
            )
        self._answers_of[connection] = of_connection
        self.answer_bytes += length_bytes

    def let_answer_go(self, connection: str, length_bytes: int) -> None:
        """The caller has it, or is gone."""
        self.answer_bytes -= length_bytes
        left = self._answers_of[connection] - length_bytes
        assert left >= 0, "an answer is let go once"
        assert self.answer_bytes >= 0, "the sum holds every connection's answers"
        if left:
            self._answers_of[connection] = left
        else:
            del self._answers_of[connection]
