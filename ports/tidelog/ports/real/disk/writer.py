"""The writer thread of a data directory: appends, truncates and names in order, then one flush.

    loop ── request ──> queue ──> [ all that waits: appends, truncates, … in order ]
      ^                             └─> wake the loop ─> [ one round for every flush among them ]
      └───────────────── one wake-up <───────────────────┘

While a round is in flight the next one collects in the queue, so that many who wait for
durability share it. Stop 6 of a record's walk. It must never write again after a failed flush.
"""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tidelog.ports.disk import DirectoryGone, directory_gone
from tidelog.ports.real.disk import io as disk_io
from tidelog.ports.real.disk.descriptors import Descriptors, RealFile
from tidelog.ports.real.disk.flush import Flusher, Round
from tidelog.ports.real.disk.root import Root
from tidelog.ports.real.disk.threads import Handover, Request, run
from tidelog.wire.errors import ErrorCode, TidelogError

REQUESTS_PER_ROUND_MAX: Final = 1_024
"""Writes that go ahead of a waiting flush."""

REQUESTS_QUEUED_MAX: Final = 65_536


class FlushRequest(Request):
    """A request that is done by the round, together with its like."""

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


class Writer:
    """One thread; everything that changes the directory passes through it."""

    def __init__(
        self,
        name: str,
        descriptors: Descriptors,
        flusher: Flusher,
        handover: Handover,
        *,
        root: Root,
        write_all: disk_io.WriteAll,
    ) -> None:
        self._name = name
        self._root = root
        self._write_all = write_all
        self._descriptors = descriptors
        self._flusher = flusher
        self._handover = handover
        self._failure: TidelogError | None = None
        """Why nothing is written any more."""
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"{name} writer", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Called on the loop."""
        if self._requests.qsize() >= REQUESTS_QUEUED_MAX:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=f"write in {self._name}",
                happened=f"{REQUESTS_QUEUED_MAX} writes are waiting already",
            )
        self._requests.put(request)

    def stop(self) -> None:
        """Finish what was submitted and wait for the thread's end."""
        self._requests.put(None)
        self._thread.join()

    def guard(self, work: Callable[[], object], tried: str) -> Callable[[], object]:
        """Work that is refused once a flush has failed or the directory is gone, and whose OSError
        becomes ours."""

        def guarded() -> object:
            self.check_usable(tried)
            try:
                self._check_there(tried)
                return work()
            except OSError as error:
                raise disk_io.storage_error(error, f"{tried} in {self._name}") from error

        return guarded

    def check_usable(self, tried: str) -> None:
        """Refuse after a failed flush, and in a directory that was found gone."""
        failure = self._failure
        if isinstance(failure, DirectoryGone):
            raise directory_gone(f"{tried} in {self._name}", self._name)
        if failure is not None:
            raise TidelogError(
                ErrorCode.STORAGE_FAILED,
                tried=f"{tried} in {self._name}",
                happened=f"an earlier flush failed: {failure.happened}",
            )

    def _check_there(self, tried: str) -> None:
        """Once it is found gone it stays so: what was written meanwhile may be in another one."""
        gone = self._root.find_gone(f"{tried} in {self._name}")
        if gone is not None:
            self._failure = gone
            raise gone

    @contextlib.contextmanager
    def holding(self, files: Sequence[RealFile]) -> Iterator[None]:
        """Called on the writer thread: all descriptors are had before the first byte is written.

        A file that lost its own to others is opened again; those that cannot be are told of.
        """
        missing: dict[str, OSError] = {}
        with contextlib.ExitStack() as held:
            for file in files:
                try:
                    self._descriptors.pin(file)
                except OSError as error:
                    if not disk_io.is_of_the_path(error):
                        raise
                    missing[file.path] = error
                else:
                    held.callback(self._descriptors.unpin, file)
            if missing:
                raise disk_io.files_error(f"append in {self._name}", missing)
            yield

    def append_all(self, appends: Sequence[tuple[RealFile, Sequence[disk_io.Piece]]]) -> None:
        """Called on the writer thread: all of them, or none if one of the files is at fault."""
        lengths: dict[RealFile, int] = {}
        with self.holding([file for file, _ in appends]):
            for file, pieces in appends:
                lengths.setdefault(file, file.end_bytes)
                try:
                    self.append(file, pieces)
                except OSError as error:
                    if not disk_io.is_of_the_path(error):
                        raise
                    self._take_back(lengths)
                    raise disk_io.files_error(
                        f"append in {self._name}", {file.path: error}
                    ) from error

    def _take_back(self, lengths: Mapping[RealFile, int]) -> None:
        """Nobody has seen what was written to the others: they are as long as before."""
        for file, size_bytes in lengths.items():
            if file.end_bytes != size_bytes:
                self.truncate(file, size_bytes)
            file.is_torn = False

    def append(self, file: RealFile, pieces: Sequence[disk_io.Piece]) -> None:
        """Called on the writer thread: write at the file's end."""
        if file.is_torn:
            raise TidelogError(
                ErrorCode.STORAGE_FAILED,
                tried=f"append to {file.path} in {self._name}",
                happened="an earlier append took effect in part; truncate the file first",
            )
        descriptor = self._descriptors.pin(file)
        file.is_dirty = True
        # Torn until the last byte is written: an exception leaves it so.
        file.is_torn = True
        try:
            file.end_bytes = self._write_all(descriptor, pieces, file.end_bytes)
            file.is_torn = False
        except OSError:
            file.end_bytes = os.fstat(descriptor).st_size
            raise
        finally:
            self._descriptors.unpin(file)

    def truncate(self, file: RealFile, size_bytes: int) -> None:
        """Called on the writer thread: cut the file's tail off."""
        assert 0 <= size_bytes <= file.end_bytes, "a truncation never makes a file longer"
        descriptor = self._descriptors.pin(file)
        file.is_dirty = True
        try:
            os.ftruncate(descriptor, size_bytes)
            file.end_bytes = size_bytes
            file.is_torn = False
        finally:
            self._descriptors.unpin(file)

    def _work(self) -> None:
        while True:
            batch = self._collect()
            flushes: list[FlushRequest] = []
            for request in batch:
                if isinstance(request, FlushRequest):
                    flushes.append(request)
                elif request is not None:
                    run(request)
                    self._handover.add(request)
            self._handover.wake()
            if flushes:
                self._flush(flushes)
            if batch[-1] is None:
                return

    def _collect(self) -> list[Request | None]:
        """Wait for a request, then take all that wait with it; None is the last of its batch."""
        batch = [self._requests.get()]
        while batch[-1] is not None and len(batch) < REQUESTS_PER_ROUND_MAX:
            try:
                batch.append(self._requests.get_nowait())
            except queue.Empty:
                break
        return batch

    def _flush(self, requests: list[FlushRequest]) -> None:
        """One round: what cannot be prepared fails alone, what cannot be flushed fails all."""
        round_ = Round(self._descriptors, self._flusher)
        accepted = [request for request in requests if self._prepare(round_, request)]
        try:
            round_.flush()
        except OSError as error:
            failure = disk_io.storage_error(error, f"flush {self._name}")
            self._failure = failure
            for request in accepted:
                request.failure = TidelogError(
                    ErrorCode.STORAGE_FAILED, tried=failure.tried, happened=failure.happened
                )
        finally:
            round_.release()
        for request in requests:
            self._handover.add(request)
        self._handover.wake()

    def _prepare(self, round_: Round, request: FlushRequest) -> bool:
        try:
            self.check_usable("flush")
            self._check_there("flush")
            round_.add(request.files, request.directories)
        except TidelogError as error:
            request.failure = error
        except OSError as error:
            request.failure = disk_io.storage_error(error, f"flush {self._name}")
        return request.failure is None
