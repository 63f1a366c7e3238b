"""Hangs up on callers that take no answers or finish no messages: their memory is others'.

A thread of its own looks at the sockets of one listener, and at once when the process has grown:
gRPC takes messages in on threads of its own as well, however late the event loop is. A task of the
loop hands over who is late: time is judged only while the loop turns, or whoever waited for the
loop would be blamed for it.

    loop:    every 250 ms ── who is late with answers? ── Order ──┐
    thread:  an Order, memory has grown, no Order for long ────────┴─▶ look ──▶ hang up
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tidelog.ports.clock import Clock
from tidelog.ports.real.network import sockets as network_sockets
from tidelog.ports.real.network.answers import Stalled
from tidelog.ports.real.network.callers import Callers
from tidelog.ports.real.network.memory import ListenerMemory
from tidelog.ports.real.network.pace import GROWTH_MS, LOOK_MS, NS_PER_MS, LookPace
from tidelog.ports.real.network.process_memory import ProcessMemory

_log: Final = logging.getLogger(__name__)

AGAIN_MS: Final = 5_000
"""Whoever is still there so long after having been hung up on is hung up on again."""
LOGGED_MAX: Final = 16
"""Lines of one look; the rest is one line."""
STOP_SECONDS_MAX: Final = 5.0
MS_PER_S: Final = 1_000


class Order(NamedTuple):
    """A look that the loop asks for."""

    late: Sequence[Stalled]
    """Of answers, which only the loop knows."""
    done: asyncio.Future[None]


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
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(
            target=self._work, name=f"{listener} caller watch", daemon=True
        )
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._cut_ns: dict[str, int] = {}
        """Of the thread: when who was hung up on. gRPC takes a moment to see it."""
        self._failure = ""
        """Of the thread: what the last look failed with; empty: it did not."""
        self.hung_up_count = 0

    def start(self) -> None:
        """Look from now on."""
        assert self._task is None, "it is started once"
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="caller watch")
        self._thread.start()

    async def stop(self) -> None:
        """Look no more."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._orders.put(None)
        # It looks for some milliseconds at most, and never waits for this loop.
        self._thread.join(STOP_SECONDS_MAX)

    async def look(self) -> None:
        """Once, by the thread."""
        late = self._memory.answers.stalled()
        order = Order(late, asyncio.get_running_loop().create_future())
        self._orders.put(order)
        await order.done

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_MS)
            await self.look()

    def _work(self) -> None:
        """The thread."""
        assert self._loop is not None, "it is started with the loop known"
        process = ProcessMemory()
        pace = LookPace(process.now_bytes())
        try:
            while not self._loop.is_closed() and self._turn(process, pace):
                pass
        finally:
            process.close()

    def _turn(self, process: ProcessMemory, pace: LookPace) -> bool:
        """One order, or none for a while; False: it was told to stop."""
        order = None
        with contextlib.suppress(queue.Empty):
            order = self._orders.get(timeout=GROWTH_MS / MS_PER_S)
            if order is None:
                return False
        try:
            if order is None:
                self._on_tick(process, pace)
            elif order.late or pace.may_look(self._clock.monotonic_ns()):
                self._look(order.late, process, pace, is_ordered=True)
        except Exception as error:  # noqa: BLE001 - a watch goes on, whatever a look meets
            self._note_failure(error)
        if order is not None:
            self._tell(partial(_settle, order.done))
        return True

    def _note_failure(self, error: Exception) -> None:
        """A watch that ended would be missed by nobody until memory is gone: it goes on."""
        failure = repr(error)
        if failure != self._failure:
            # The first look of a row that fails alike.
            _log.error("caller_watch_failed listener=%s", self._listener, exc_info=error)
        self._failure = failure

    def _on_tick(self, process: ProcessMemory, pace: LookPace) -> None:
        now_ns = self._clock.monotonic_ns()
        if pace.take_give_back(now_ns):
            process.give_back()
        if pace.must_look(now_ns, process.now_bytes()):
            self._look((), process, pace, is_ordered=False)

    def _look(
        self,
        late: Sequence[Stalled],
        process: ProcessMemory,
        pace: LookPace,
        *,
        is_ordered: bool,
    ) -> None:
        begun_ns, begun_work_ns = self._clock.monotonic_ns(), time.thread_time_ns()
        begun_bytes = process.now_bytes()
        try:
            if self._hang_up_late(late, begun_ns, is_timed=is_ordered):
                pace.hung_up(self._clock.monotonic_ns())
            self._failure = ""
        finally:
            pace.looked(begun_ns, begun_bytes, time.thread_time_ns() - begun_work_ns)

    def _hang_up_late(self, late: Sequence[Stalled], begun_ns: int, *, is_timed: bool) -> int:
        """How many."""
        there = self._look_at_sockets()
        self._callers.keep(there, begun_ns)
        now_ns = self._clock.monotonic_ns()
        found = [*late, *self._callers.stalled(now_ns, is_timed=is_timed)]
        self._cut_ns = {
            connection: cut_ns
            for connection, cut_ns in self._cut_ns.items()
            if now_ns - cut_ns < AGAIN_MS * NS_PER_MS
        }
        wanted = {each.connection: each for each in found if each.connection not in self._cut_ns}
        return self._hang_up(there, wanted) if wanted else 0

    def _look_at_sockets(self) -> dict[str, int]:
        """The descriptors of the connections that are there."""
        there: dict[str, int] = {}
        for descriptor in network_sockets.descriptors():
            found = network_sockets.connection_at(descriptor, self._port)
            if found is not None:
                there[found[0]] = descriptor
                self._callers.look(found[0], found[1], self._clock.monotonic_ns())
        return there

    def _hang_up(self, there: dict[str, int], wanted: dict[str, Stalled]) -> int:
        done = [
            each
            for name, each in wanted.items()
            if name in there and network_sockets.hang_up(there[name], self._port, name)
        ]
        now_ns = self._clock.monotonic_ns()
        for each in done:
            self._cut_ns[each.connection] = now_ns
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
        self._tell(partial(self._count, done))
        return len(done)

    def _count(self, done: Sequence[Stalled]) -> None:
        """On the loop, which owns the counts."""
        self.hung_up_count += len(done)
        for each in done:
            self._memory.note_refused(each.limit)

    def _tell(self, what: Callable[[], object]) -> None:
        assert self._loop is not None, "it is started with the loop known"
        # A loop that was closed without a stop wants to hear nothing.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what)


def _settle(done: asyncio.Future[None]) -> None:
    """Whoever asked may be gone."""
    if not done.done():
        done.set_result(None)
