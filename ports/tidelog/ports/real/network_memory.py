"""What one listener holds of its callers' messages: counted, bounded, refused by name.

Pure but for the waiting. Requests count from their arrival until their handler is done with them;
answers are `network_answers`' business.
"""

import asyncio
from collections.abc import Callable

from tidelog.ports.network import ListenerLimits
from tidelog.ports.real.network_answers import AnswerMemory
from tidelog.wire.errors import ErrorCode, TidelogError


class ListenerMemory:
    """Of one listener."""

    def __init__(
        self, listener: str, limits: ListenerLimits, now_ns: Callable[[], int] = lambda: 0
    ) -> None:
        self._listener = listener
        self._limits = limits
        self.request_bytes = 0
        self.refused: dict[str, int] = {}
        """Calls, answers and connections, by the limit that was used up."""
        self.answers = AnswerMemory(listener, limits, now_ns, self.note_refused)
        self._has_room = asyncio.Event()

    @property
    def refused_count(self) -> int:
        """All of them."""
        return sum(self.refused.values())

    @property
    def answer_bytes(self) -> int:
        """What answers take that are being made or on their way, copies included."""
        return self.answers.held_bytes

    def note_refused(self, limit: str) -> None:
        """Count what was refused for the limit."""
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

    def admit(self, method: str) -> None:
        """Refuse a call before its message is read, if there is no room for it."""
        if self.has_room:
            return
        name, value = "request_memory_bytes", self._limits.request_memory_bytes
        self.note_refused(name)
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
