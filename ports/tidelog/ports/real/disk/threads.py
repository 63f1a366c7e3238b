"""The threads of a data directory and the way back to the event loop.

A thread finishes many requests and wakes the loop once: the wake-up costs more than a small write.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

READERS: Final = 4
"""Threads that wait for the disk at once, per data directory."""


class Request:
    """Work for another thread, and the future on the loop that waits for its end."""

    __slots__ = ("discard", "failure", "future", "result", "work")

    def __init__(
        self,
        future: "asyncio.Future[object]",
        work: Callable[[], object],
        discard: Callable[[object], None] | None = None,
    ) -> None:
        self.future = future
        self.work = work
        self.discard = discard
        """Takes the result of a request whose task was cancelled, so that nothing leaks."""
        self.result: object = None
        self.failure: BaseException | None = None


class Handover:
    """Finished requests on their way to the loop: one wake-up for all that are ready by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._finished: deque[Request] = deque()
        self._is_waking = False

    def add(self, request: Request) -> None:
        """Called by any thread; `wake` follows."""
        self._finished.append(request)

    def wake(self) -> None:
        """Called by any thread after its last `add`."""
        if self._is_waking or not self._finished:
            return
        self._is_waking = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            # The loop was closed under us: nobody waits any more.
            self._finished.clear()

    def _deliver(self) -> None:
        # Cleared first: what is added from now on wakes the loop again.
        self._is_waking = False
        while self._finished:
            request = self._finished.popleft()
            if request.future.done():
                if request.discard is not None and request.failure is None:
                    request.discard(request.result)
            elif request.failure is not None:
                request.future.set_exception(request.failure)
            else:
                request.future.set_result(request.result)


class ReaderPool:
    """Threads for what may wait for the disk and needs no order: reads, openings, listings."""

    def __init__(self, name: str, handover: Handover, count: int = READERS) -> None:
        self._handover = handover
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name} reader {number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, request: Request) -> None:
        """Called on the loop."""
        self._requests.put(request)

    def stop(self) -> None:
        """Finish what was submitted and wait for the threads' end."""
        for _ in self._threads:
            self._requests.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            run(request)
            self._handover.add(request)
            self._handover.wake()


def run(request: Request) -> None:
    """Do a request's work and keep its outcome, whatever it is: a thread must not die of it."""
    try:
        request.result = request.work()
    except BaseException as error:  # noqa: BLE001
        request.failure = error
