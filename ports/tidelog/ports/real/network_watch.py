"""Hangs up on callers that take no answers or finish no messages: their memory is others'.

One task of a listener looks at both counts a few times a second; sockets are looked through only
while a caller has calls, in small pieces, and so seldom that it costs a listener with many
connections no more than one with few.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.ports.clock import Clock
from tidelog.ports.real import network_sockets
from tidelog.ports.real.network_answers import Stalled
from tidelog.ports.real.network_callers import Callers
from tidelog.ports.real.network_memory import ListenerMemory

_log: Final = logging.getLogger(__name__)

LOOK_MS: Final = 250
"""Between two looks."""
LOOK_PART: Final = 200
"""A look at the sockets may take one part in so many of the time; the next one comes later then."""
PIECE: Final = 128
"""Descriptors that are looked at in one turn of the loop."""
AGAIN_MS: Final = 5_000
"""Whoever is still there so long after having been hung up on is hung up on again."""
LOGGED_MAX: Final = 16
"""Lines of one look; the rest is one line."""
NS_PER_MS: Final = 1_000_000


class CallerWatch:
    """Of one listener."""

    def __init__(
        self, listener: str, port: int, clock: Clock, memory: ListenerMemory, callers: Callers
    ) -> None:
        self._listener = listener
        self._port = port
        self._clock = clock
        self._memory = memory
        self._callers = callers
        self._next_look_ns = 0
        self._task: asyncio.Task[None] | None = None
        self._cut_ns: dict[str, int] = {}
        """When who was hung up on: gRPC takes a moment to see it."""
        self.hung_up_count = 0

    def start(self) -> None:
        """Look from now on."""
        assert self._task is None, "it is started once"
        self._task = asyncio.get_running_loop().create_task(self._run(), name="caller watch")

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> None:
        """Once."""
        begun_ns = self._clock.monotonic_ns()
        found = self._memory.answers.stalled()
        if len(self._callers) and begun_ns >= self._next_look_ns:
            seen = await self._look_at_sockets()
            spent_ns = self._clock.monotonic_ns() - begun_ns
            self._next_look_ns = begun_ns + spent_ns * LOOK_PART
            self._callers.keep(seen)
            found += self._callers.stalled(self._clock.monotonic_ns())
        now_ns = self._clock.monotonic_ns()
        self._cut_ns = {
            connection: cut_ns
            for connection, cut_ns in self._cut_ns.items()
            if now_ns - cut_ns < AGAIN_MS * NS_PER_MS
        }
        wanted = {each.connection: each for each in found if each.connection not in self._cut_ns}
        if wanted:
            await self._hang_up(wanted)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_MS)
            await self.look()

    async def _look_at_sockets(self) -> list[str]:
        seen: list[str] = []

        def note(descriptor: int) -> None:
            found = network_sockets.connection_at(descriptor, self._port)
            if found is not None:
                seen.append(found[0])
                self._callers.look(found[0], found[1], self._clock.monotonic_ns())

        await self._each(network_sockets.descriptors(), note)
        return seen

    async def _hang_up(self, wanted: dict[str, Stalled]) -> None:
        done: list[Stalled] = []

        def cut(descriptor: int) -> None:
            found = network_sockets.connection_at(descriptor, self._port)
            if found is None or found[0] not in wanted:
                return
            if network_sockets.hang_up(descriptor, self._port, found[0]):
                done.append(wanted.pop(found[0]))
                self._cut_ns[found[0]] = self._clock.monotonic_ns()

        await self._each(network_sockets.descriptors(), cut)
        self.hung_up_count += len(done)
        for each in done:
            self._memory.note_refused(each.limit)
        for each in done[:LOGGED_MAX]:
            _log.warning(
                'caller_hung_up listener=%s address=%s limit=%s reason="%s"',
                self._listener,
                each.connection.partition(":")[2],
                each.limit,
                each.happened,
            )
        if len(done) > LOGGED_MAX:
            more = len(done) - LOGGED_MAX
            _log.warning("caller_hung_up listener=%s more=%s", self._listener, more)

    async def _each(self, numbers: Sequence[int], work: Callable[[int], None]) -> None:
        for count, number in enumerate(numbers, 1):
            work(number)
            if not count % PIECE:
                await asyncio.sleep(0)
