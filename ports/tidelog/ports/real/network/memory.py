"""What one listener holds of its callers' messages: counted, bounded, refused by name.

Pure but for the waiting. Requests count from their arrival until their handler is done with them,
by their bytes and by what is made of them;
answers are `network.answers`' business.
"""

import asyncio
from collections.abc import Callable

from tidelog.ports.network import ListenerLimits
from tidelog.ports.real.network.answers import AnswerMemory
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
        if not self.has_room:
            raise self._refusal(method)

    def check_room(self, method: str, held_bytes: int, more_bytes: int) -> None:
        """Refuse what a call that holds so much would make of its message, if others hold too much
        beside it."""
        others_bytes = self.request_bytes - held_bytes
        limit_bytes = self._limits.request_memory_bytes
        if others_bytes and self.request_bytes + more_bytes > limit_bytes:
            raise self._refusal(method)

    def _refusal(self, method: str) -> TidelogError:
        name, value = "request_memory_bytes", self._limits.request_memory_bytes
        self.note_refused(name)
        return TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED,
            tried=f"call {method}",
            happened=f"listeners.{self._listener}.limits.{name} = {value} is used up",
            hint="Read the answers that are waiting, or try again later.",
        )

    def room(self, method: str, *, may_refuse: bool) -> "MessageRoom":
        """For what is made of the messages of one call; a stream's are never refused, it waits
        before it reads the next."""
        return MessageRoom(self, method, may_refuse=may_refuse)

    def take(self, length_bytes: int) -> None:
        """Count a message that has arrived."""
        self.request_bytes += length_bytes

    def give_back(self, length_bytes: int) -> None:
        """Its handler is done with it."""
        self.request_bytes -= length_bytes
        assert self.request_bytes >= 0, "a request is given back once"
        if self.has_room:
            self._has_room.set()


class MessageRoom:
    """One message of a call and what is made of it, from its arrival until it is done with."""

    def __init__(self, memory: ListenerMemory, method: str, *, may_refuse: bool) -> None:
        self._memory = memory
        self._method = method
        self._may_refuse = may_refuse
        self._held_bytes = 0

    def arrive(self, length_bytes: int) -> None:
        """A message came."""
        self._memory.take(length_bytes)
        self._held_bytes += length_bytes

    def take(self, more_bytes: int) -> None:
        """See `RequestRoom`; a single message may pass the limit."""
        if self._may_refuse and more_bytes:
            self._memory.check_room(self._method, self._held_bytes, more_bytes)
        self.arrive(more_bytes)

    def give_back(self) -> None:
        """The message is done with."""
        held_bytes, self._held_bytes = self._held_bytes, 0
        if held_bytes:
            self._memory.give_back(held_bytes)
