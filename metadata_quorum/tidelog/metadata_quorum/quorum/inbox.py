"""What waits for the core: messages of members, requests and completions of this node, in order.

Owns the only way in; one task takes. It must never lose anything but members' messages, which
Raft can do without.
"""

import asyncio

import msgspec

from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.raft.inputs import Input
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.metadata_quorum.raft.types import Snapshot


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """A `ResetLog` lies flushed; the state machine has to load this before the core hears of it."""

    sequence: int
    snapshot: Snapshot
    state: tuple[bytes, ...]


Item = Message | Input | Restored

MESSAGE_TYPES = (
    AppendRequest,
    AppendResponse,
    VoteRequest,
    VoteResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
)


class Inbox:
    """Filled by anybody, emptied by the runner's task."""

    def __init__(self, limits: QuorumLimits) -> None:
        self._limits = limits
        self._items: list[Item] = []
        self._messages = 0
        self._message_bytes = 0
        self._news = asyncio.Event()
        self.messages_lost = 0

    def put_message(self, message: Message, size_bytes: int) -> bool:
        """A member's message; False: there is no room, it is lost."""
        has_room = (
            self._messages < self._limits.messages_waiting_max
            and self._message_bytes + size_bytes <= self._limits.message_bytes_waiting_max
        )
        if not has_room:
            self.messages_lost += 1
            return False
        self._messages += 1
        self._message_bytes += size_bytes
        self._items.append(message)
        self._news.set()
        return True

    def put(self, item: Input | Restored) -> None:
        """A request, bounded by those who wait for answers, or a completion, by its effect."""
        self._items.append(item)
        self._news.set()

    def put_first(self, item: Input) -> None:
        """A request that comes before those of callers who are not awake yet."""
        self._items.insert(0, item)
        self._news.set()

    def wake(self) -> None:
        """Let the task look again although nothing came: time has passed."""
        self._news.set()

    async def wait(self) -> None:
        """Until something is there, or `wake`."""
        await self._news.wait()

    def take(self) -> list[Item]:
        """All that is there, oldest first."""
        items = self._items
        self._items = []
        self._messages = 0
        self._message_bytes = 0
        self._news.clear()
        return items
