"""The two threads that change a data directory: one writes in order, one flushes in rounds.

    loop ── request ──> queue ──> [ all that waits: appends, truncates, … in order ] ── one wake-up
    loop ── flush ────> queue ──> [ one round for all that wait ] ───────────────────── one wake-up

While a round is in flight the next one collects in its queue, so that many who wait for durability
share it, and writes go on: who waits for no flush never waits for one. A flush covers what had
ended when it was asked for; its queue is not behind the writer's. Stop 6 of a record's walk. They
must never write again after a failed flush.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.ports.real import disk_io
from tidelog.ports.real.disk_descriptors import Descriptors, RealFile
from tidelog.ports.real.disk_flush import Flusher, Round
from tidelog.ports.real.disk_threads import Handover, Request, run
from tidelog.wire.errors import ErrorCode, TidelogError

REQUESTS_PER_TURN_MAX: Final = 1_024
"""Writes, or flushes, that are done before the loop hears of them."""

REQUESTS_QUEUED_MAX: Final = 65_536


class FlushRequest(Request):
    """A request that a round does, together with its like."""

    __slots__ = ("directories", "files")

    def __init__(
        self,
        future: "asyncio.Future[object]",
        files: Sequence[RealFile],
        directories: Sequence[str],
    ) -> None:
        super().__init__(future, lambda: None)
        self.files = files
        self.directories = directories


class _DiskThread:
    """A queue of requests and the thread that takes all that wait in it at once."""

    def __init__(self, name: str, directory: str, handover: Handover) -> None:
        self._directory = directory
        self._handover = handover
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def submit(self, request: Request) -> None:
        """Called on the loop."""
        if self._requests.qsize() >= REQUESTS_QUEUED_MAX:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=f"write in {self._directory}",
                happened=f"{REQUESTS_QUEUED_MAX} writes are waiting already",
            )
        self._requests.put(request)

    def stop(self) -> None:
        """Finish what was submitted and wait for the thread's end."""
        self._requests.put(None)
        self._thread.join()

    def _work(self) -> None:
        is_last = False
        while not is_last:
            taken = self._collect()
            is_last = taken[-1] is None
            requests = [request for request in taken if request is not None]
            if requests:
                self._do(requests)
                for request in requests:
                    self._handover.add(request)
                self._handover.wake()

    def _collect(self) -> list[Request | None]:
        """Wait for a request, then take all that wait with it; None is the last of its turn."""
        taken = [self._requests.get()]
        while taken[-1] is not None and len(taken) < REQUESTS_PER_TURN_MAX:
            try:
                taken.append(self._requests.get_nowait())
            except queue.Empty:
                break
        return taken

    def _do(self, requests: list[Request]) -> None:
        """Give each its result or failure."""
        raise NotImplementedError


class Rounds(_DiskThread):
    """The thread that flushes: what waits shares a round."""

    def __init__(
        self, directory: str, descriptors: Descriptors, flusher: Flusher, handover: Handover
    ) -> None:
        super().__init__(f"{directory} flusher", directory, handover)
        self._descriptors = descriptors
        self._flusher = flusher
        self._failure = ""
        self._thread.start()

    def check_usable(self, tried: str) -> None:
        """Refuse after a failed flush; called on any thread."""
        if self._failure:
            raise TidelogError(
                ErrorCode.STORAGE_FAILED,
                tried=f"{tried} in {self._directory}",
                happened=f"an earlier flush failed: {self._failure}",
            )

    def _do(self, requests: list[Request]) -> None:
        """One round: what cannot be prepared fails alone, what cannot be flushed fails all."""
        round_ = Round(self._descriptors, self._flusher)
        accepted = [request for request in requests if self._prepare(round_, request)]
        try:
            round_.flush()
        except OSError as error:
            failure = disk_io.storage_error(error, f"flush {self._directory}")
            self._failure = failure.happened
            for request in accepted:
                request.failure = TidelogError(
                    ErrorCode.STORAGE_FAILED, tried=failure.tried, happened=failure.happened
                )
        finally:
            round_.release()

    def _prepare(self, round_: Round, request: Request) -> bool:
        assert isinstance(request, FlushRequest), "only flushes are done in rounds"
        try:
            self.check_usable("flush")
            round_.add(request.files, request.directories)
        except TidelogError as error:
            request.failure = error
        except OSError as error:
            request.failure = disk_io.storage_error(error, f"flush {self._directory}")
        return request.failure is None


class Writer(_DiskThread):
    """The thread that writes: everything that changes the directory passes through it."""

    def __init__(
        self, directory: str, descriptors: Descriptors, rounds: Rounds, handover: Handover
    ) -> None:
        super().__init__(f"{directory} writer", directory, handover)
        self._descriptors = descriptors
        self._rounds = rounds
        self._thread.start()

    def guard(self, work: Callable[[], object], tried: str) -> Callable[[], object]:
        """Work that is refused once a flush has failed, and whose OSError becomes ours."""

        def guarded() -> object:
            self._rounds.check_usable(tried)
            try:
                return work()
            except OSError as error:
                raise disk_io.storage_error(error, f"{tried} in {self._directory}") from error

        return guarded

    def append(self, file: RealFile, pieces: Sequence[disk_io.Piece]) -> None:
        """Called on the writer thread: write at the file's end."""
        if file.is_torn:
            raise TidelogError(
                ErrorCode.STORAGE_FAILED,
                tried=f"append to {file.path} in {self._directory}",
                happened="an earlier append took effect in part; truncate the file first",
            )
        descriptor = self._descriptors.pin(file)
        # Torn until the last byte is written: an exception leaves it so.
        file.is_torn = True
        try:
            file.end_bytes = disk_io.write_all(descriptor, pieces, file.end_bytes)
            file.is_torn = False
        except OSError:
            file.end_bytes = os.fstat(descriptor).st_size
            raise
        finally:
            self._let_go(file)

    def truncate(self, file: RealFile, size_bytes: int) -> None:
        """Called on the writer thread: cut the file's tail off."""
        assert 0 <= size_bytes <= file.end_bytes, "a truncation never makes a file longer"
        descriptor = self._descriptors.pin(file)
        try:
            os.ftruncate(descriptor, size_bytes)
            file.end_bytes = size_bytes
            file.is_torn = False
        finally:
            self._let_go(file)

    def _let_go(self, file: RealFile) -> None:
        # Only now: a round that began meanwhile has called it clean, and covers it in part.
        file.is_dirty = True
        self._descriptors.unpin(file)

    def _do(self, requests: list[Request]) -> None:
        for request in requests:
            run(request)
