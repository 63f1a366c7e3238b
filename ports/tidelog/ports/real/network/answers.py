"""Answers of one listener that callers have not taken yet: bounded before they are made.

Pure but for the waiting. Theory of operation: a call that will make a large answer takes room for
it first (`AnswerRoom`) and is told how large the answer may be. What is free is shared: nobody gets
more than a part of it, a connection that has unread answers only while the listener is half empty,
and whoever finds no room waits, in turn by connection, until answers have left.

    waits ──▶ reserved (is being made) ──▶ on its way (gRPC has it) ──▶ gone (taken, or call over)

gRPC tells when an answer has passed the caller's flow control, not before; until then it holds a
copy, and Python the original: each answer counts twice. A caller that reads nothing would keep
its part for good, so connections are named whose oldest answer has been on its way for too long,
and earlier while somebody who has read everything finds no room. `network.watch` hangs up on them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.ports.network import ListenerLimits
from tidelog.wire.errors import ErrorCode, TidelogError

COPIES: Final = 2
SMALL_ANSWER_BYTES: Final = 4 * 1024
"""Smaller answers are not counted: the limits of calls bound them, and most calls cost nothing."""
ROOM_BYTES_MIN: Final = 64 * 1024
"""Less is not worth an answer: whoever cannot have it waits."""
SHARE: Final = 4
"""Nobody takes more than this part of what is free: the last ones find room as well."""
ONLY_BYTES_MAX: Final = 1024 * 1024
"""The only answer of a connection is let go up to this size even if the rest is used up."""
PRESSED_MS: Final = 5_000
"""How old an answer may become while others wait for its memory."""
NS_PER_MS: Final = 1_000_000


class Stalled(NamedTuple):
    """A connection to hang up on."""

    connection: str
    limit: str
    happened: str


class _Waiter(NamedTuple):
    wanted_bytes: int
    granted: asyncio.Future[int]


class _Connection:
    """What is held for one connection."""

    def __init__(self) -> None:
        self.held_bytes = 0
        """Reserved and on the way, copies included."""
        self.begun_ns: dict[int, int] = {}
        """Of the answers on their way, the oldest first."""


class AnswerMemory:
    """Of one listener."""

    def __init__(
        self,
        listener: str,
        limits: ListenerLimits,
        now_ns: Callable[[], int],
        note_refused: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._limits = limits
        self._now_ns = now_ns
        self._note_refused = note_refused
        self._connections: dict[str, _Connection] = {}
        self._waiting: dict[str, deque[_Waiter]] = {}
        self._numbers = 0
        self.held_bytes = 0

    def room(self, connection: str, method: str) -> "CallRoom":
        """For one call."""
        return CallRoom(self, connection, method)

    @property
    def waiting_count(self) -> int:
        """Calls that found no room yet."""
        return sum(map(len, self._waiting.values()))

    async def reserve(self, connection: str, wanted_bytes: int) -> int:
        """Wait for room; the bytes of answer that are reserved, twice over."""
        assert wanted_bytes > 0, "an answer of nothing needs no room"
        if connection not in self._waiting:
            granted = self._grant(connection, wanted_bytes)
            if granted:
                return granted
        waiter = _Waiter(wanted_bytes, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(connection, deque()).append(waiter)
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self.release(connection, waiter.granted.result())
            else:
                self._forget(connection, waiter)
            raise

    def release(self, connection: str, length_bytes: int) -> None:
        """Room for so many bytes of answer is free again."""
        found = self._connections[connection]
        found.held_bytes -= COPIES * length_bytes
        self.held_bytes -= COPIES * length_bytes
        assert found.held_bytes >= 0, "room is given back once"
        assert self.held_bytes >= 0, "the sum holds every connection's answers"
        if not found.held_bytes:
            assert not found.begun_ns, "what is on its way is held"
            del self._connections[connection]
        self._wake()

    def hold(self, connection: str, length_bytes: int) -> None:
        """Count what was not reserved."""
        self._of(connection).held_bytes += COPIES * length_bytes
        self.held_bytes += COPIES * length_bytes

    def check_room(self, method: str, connection: str, length_bytes: int) -> None:
        """Refuse an answer that nobody asked room for, if there is none."""
        limits, found = self._limits, self._connections.get(connection)
        of_connection = 0 if found is None else found.held_bytes
        wanted = COPIES * length_bytes
        is_only = not of_connection and length_bytes <= ONLY_BYTES_MAX
        # The only answer of all may have any size: else it could never be given.
        all_max = max(limits.answer_memory_bytes * (2 if is_only else 1), wanted)
        if of_connection and of_connection + wanted > limits.connection_answer_bytes:
            name = "connection_answer_bytes"
        elif self.held_bytes + wanted > all_max:
            name = "answer_memory_bytes"
        else:
            return
        self._note_refused(name)
        raise TidelogError(
            ErrorCode.INDETERMINATE,
            tried=f"answer {method}",
            happened=f"listeners.{self._listener}.limits.{name} is used up by answers that "
            "were not read; what was asked for may be done",
            hint="Read the answers that are waiting, and ask for fewer bytes at a time.",
        )

    def begin(self, connection: str) -> int:
        """An answer that is counted goes on its way; its number."""
        self._numbers += 1
        self._connections[connection].begun_ns[self._numbers] = self._now_ns()
        return self._numbers

    def end(self, connection: str, number: int, length_bytes: int) -> None:
        """The caller has it, or is gone."""
        del self._connections[connection].begun_ns[number]
        self.release(connection, length_bytes)

    def stalled(self) -> list[Stalled]:
        """Whom to hang up on: answers that are too old, and the oldest if others have to wait."""
        now_ns = self._now_ns()
        ages = {
            connection: (now_ns - next(iter(each.begun_ns.values()))) // NS_PER_MS
            for connection, each in self._connections.items()
            if each.begun_ns
        }
        limit_ms = self._limits.answer_ms_max
        found = [
            Stalled(connection, "answer_ms_max", f"an answer was not taken for {age_ms} ms")
            for connection, age_ms in ages.items()
            if age_ms >= limit_ms
        ]
        is_pressed = any(each not in self._connections for each in self._waiting)
        if not found and is_pressed and ages:
            oldest = max(ages, key=ages.__getitem__)
            if ages[oldest] >= PRESSED_MS:
                happened = f"an answer was not taken for {ages[oldest]} ms, and others wait"
                found.append(Stalled(oldest, "answer_memory_bytes", happened))
        return found

    def _of(self, connection: str) -> _Connection:
        found = self._connections.get(connection)
        if found is None:
            found = self._connections[connection] = _Connection()
        return found

    def _grant(self, connection: str, wanted_bytes: int) -> int:
        """Reserve what the connection may have now; 0: nothing."""
        limits, found = self._limits, self._connections.get(connection)
        of_connection = 0 if found is None else found.held_bytes
        free = limits.answer_memory_bytes - self.held_bytes
        kept = limits.answer_memory_bytes // 2 if of_connection else 0
        room = min(limits.connection_answer_bytes - of_connection, free - kept)
        if room < COPIES * ROOM_BYTES_MIN:
            return 0
        most = max(ROOM_BYTES_MIN, min(room, free // SHARE) // COPIES)
        granted = min(wanted_bytes, most)
        self.hold(connection, granted)
        return granted

    def _wake(self) -> None:
        """Whoever waits and finds room now: one of each connection, then the next ones."""
        while self._waiting and self._wake_some():
            pass

    def _wake_some(self) -> bool:
        """Whether anybody found room."""
        has_granted = False
        for connection in list(self._waiting):
            if self.held_bytes >= self._limits.answer_memory_bytes:
                return False
            # Whoever was asked goes to the end: the next round begins with the others.
            waiters = self._waiting.pop(connection)
            while waiters and waiters[0].granted.done():
                waiters.popleft()
            granted = self._grant(connection, waiters[0].wanted_bytes) if waiters else 0
            if granted:
                waiters.popleft().granted.set_result(granted)
                has_granted = True
            if waiters:
                self._waiting[connection] = waiters
        return has_granted

    def _forget(self, connection: str, waiter: _Waiter) -> None:
        waiters = self._waiting.get(connection)
        if waiters is None:
            return
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            del self._waiting[connection]


class CallRoom:
    """What one call has reserved, or has on its way."""

    def __init__(self, memory: AnswerMemory, connection: str, method: str) -> None:
        self._memory = memory
        self._connection = connection
        self._method = method
        self._reserved_bytes = 0
        self._on_way: tuple[int, int] | None = None

    async def take(self, wanted_bytes: int) -> int:
        """Wait for room; see `AnswerRoom`."""
        assert not self._reserved_bytes, "a call makes one answer at a time"
        self._reserved_bytes = await self._memory.reserve(self._connection, wanted_bytes)
        return self._reserved_bytes

    def give_back(self) -> None:
        """There is no answer after all."""
        if self._reserved_bytes:
            self._memory.release(self._connection, self._reserved_bytes)
            self._reserved_bytes = 0

    def send(self, length_bytes: int, *, may_refuse: bool) -> None:
        """The answer is made and goes on its way."""
        if length_bytes < SMALL_ANSWER_BYTES or self._on_way is not None:
            self.give_back()
            return
        if not self._reserved_bytes and may_refuse:
            self._memory.check_room(self._method, self._connection, length_bytes)
        # Counted before the reservation is let go: nobody else gets in between.
        self._memory.hold(self._connection, length_bytes)
        self._on_way = (self._memory.begin(self._connection), length_bytes)
        self.give_back()

    def gone(self) -> None:
        """The caller has it, or is gone."""
        if self._on_way is not None:
            number, length_bytes = self._on_way
            self._on_way = None
            self._memory.end(self._connection, number, length_bytes)
