"""The one task that writes to the quorum's storage: persist batches mostly, then other jobs.

Owns the order of everything durable. It must never report an effect as flushed that is not, nor
run two writes at a time. A full disk stops nothing: the same batch is tried again until there is
room, and nothing is acknowledged meanwhile. Any other failure is final.

    persist(effect) ──► [batch up to the first ResetLog] ──► storage.perform ──► on_done
    submit(job)     ──► [one at a time, when no effect waits, ──► the submitter's future
                         or after some batches that went before it]
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.metadata_quorum.quorum.inbox import Restored
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.port import QuorumStorage
from tidelog.metadata_quorum.quorum.waiting import again, settle
from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.inputs import Persisted
from tidelog.ports import Clock
from tidelog.wire.errors import ErrorCode, TidelogError

_T = TypeVar("_T")

_Job = Callable[[TidelogError | None], Awaitable[TidelogError | None]]
"""Does the work, or with an error only tells its submitter; returns what failed."""


class StorageTask:
    """`run` is the task; `persist` and `submit` are called by the runner's other tasks."""

    def __init__(
        self,
        storage: QuorumStorage,
        clock: Clock,
        limits: QuorumLimits,
        *,
        on_done: Callable[[Persisted | Restored], None],
        on_full: Callable[[TidelogError, int], None],
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._limits = limits
        self._on_done = on_done
        self._on_full = on_full
        self._effects: deque[Persist | ResetLog] = deque()
        self._jobs: deque[_Job] = deque()
        self._passed_over = 0
        """Batches that went before the oldest job."""
        self._news = asyncio.Event()
        self._is_ending = False
        self.full_error: TidelogError | None = None
        """Set while the disk refuses for want of space."""
        self._is_settled = True
        self.resets = 0
        """Snapshots of leaders that took the log's place."""
        self.flushes = 0
        self.effects_done = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._effects and not self._jobs

    def persist(self, effect: Persist | ResetLog) -> None:
        """Queue an effect; bounded by what the core has unflushed."""
        self._effects.append(effect)
        self._news.set()

    async def submit(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Run a write when its turn comes; it goes on although the caller is cancelled."""
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        async def job(error: TidelogError | None) -> TidelogError | None:
            if error is not None:
                settle(future, again(error))
                return None
            if future.cancelled():
                return None
            try:
                settle(future, await work())
            except TidelogError as failure:
                settle(future, failure)
                return failure
            return None

        self._jobs.append(job)
        self._news.set()
        return await future

    def end(self) -> None:
        """Finish what is queued, then return from `run`."""
        self._is_ending = True
        self._news.set()

    async def run(self) -> TidelogError | None:
        """Until `end`, or the failure that stops the quorum here for good, which is returned."""
        while True:
            if self._effects and not self._is_job_due():
                self._passed_over += len(self._jobs) > 0
                failure = await self._perform(self._take_batch())
            elif self._jobs:
                self._passed_over = 0
                failure = await self._jobs.popleft()(None)
                if failure is not None and not is_final(failure):
                    failure = None
            elif not self._is_settled and (self._is_ending or await self._is_quiet()):
                failure = await self._settle()
            elif self._is_settled and self._is_ending:
                return None
            else:
                await self._wait_news()
                continue
            if failure is not None:
                return failure

    def _is_job_due(self) -> bool:
        """A leader that is never idle would else save no snapshot, and its log grow for ever."""
        return bool(self._jobs) and self._passed_over >= self._limits.batches_before_job_max

    async def _wait_news(self) -> None:
        if self._is_settled and not self._effects and not self._jobs and not self._is_ending:
            self._news.clear()
            await self._news.wait()

    async def _is_quiet(self) -> bool:
        """Whether nothing comes for a while."""
        self._news.clear()
        try:
            async with asyncio.timeout(self._limits.settle_after_ms / 1_000):
                await self._news.wait()
        except TimeoutError:
            return True
        return False

    async def _settle(self) -> TidelogError | None:
        """Tell what was performed last from a torn tail; a full disk lets that wait."""
        self._is_settled = True
        try:
            await self._storage.settle()
        except TidelogError as error:
            return error if is_final(error) else None
        return None

    async def fail_jobs(self, error: TidelogError) -> None:
        """Nothing will be written any more: tell who waits."""
        self._effects.clear()
        while self._jobs:
            await self._jobs.popleft()(error)

    def _take_batch(self) -> list[Persist | ResetLog]:
        batch: list[Persist | ResetLog] = []
        while self._effects:
            batch.append(self._effects.popleft())
            if isinstance(batch[-1], ResetLog):
                break
        return batch

    async def _perform(self, batch: list[Persist | ResetLog]) -> TidelogError | None:
        """Flush the batch and say so; a full disk is waited for, however long it takes."""
        attempts = 0
        while True:
            try:
                await self._storage.perform(batch)
                done = await self._report(batch[-1])
            except TidelogError as error:
                if error.code is not ErrorCode.STORAGE_FULL or self._is_ending:
                    return error
                self.full_error = error
                attempts += 1
                self._on_full(error, attempts)
                await self._clock.sleep(self._limits.full_disk_retry_ms)
                continue
            self.full_error = None
            self._is_settled = False
            self.flushes += 1
            self.effects_done += len(batch)
            self._on_done(done)
            return None

    async def _report(self, last: Persist | ResetLog) -> Persisted | Restored:
        if isinstance(last, Persist):
            return Persisted(sequence=last.sequence)
        self.resets += 1
        state = await self._storage.load_state(last.snapshot)
        return Restored(sequence=last.sequence, snapshot=last.snapshot, state=tuple(state))


def is_final(error: TidelogError) -> bool:
    """Whether storage will accept nothing after this."""
    return error.code in (ErrorCode.STORAGE_FAILED, ErrorCode.CLOSED)
