"""The task that keeps a data directory's house: looks, plans, and has it done.

Owns nothing but the times between looks. It must never change a log by itself: what changes one is
a message to the directory's owner. What fails is counted, told and tried again after a pause; a
segment that is damaged, or cannot be read again and again, stops its partition.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, assert_never

import msgspec

from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.housekeeping.core.background import (
    Background,
    CompactDue,
    JobDue,
    Moment,
    ScrubDue,
    SealDue,
    Target,
    target_of,
)
from tidelog.broker.housekeeping.core.free_space import FreeSpace
from tidelog.broker.housekeeping.core.held import Held, HeldLog
from tidelog.broker.housekeeping.core.limits import DEFAULT_HOUSEKEEPING_LIMITS, HousekeepingLimits
from tidelog.broker.housekeeping.core.retention import ActiveSegments, Due, plan_retention
from tidelog.broker.housekeeping.jobs import Jobs, is_there
from tidelog.broker.log.marks.ballast import SIZE_BYTES
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.reading.reader import LogReader
from tidelog.broker.shared.events import Counts, Description, EventLog
from tidelog.broker.shared.node_time import HouseTime
from tidelog.ports import Clock, DirectoryGone, Disk, TaskScope, Worker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

LOGS_PER_TURN: Final = 200
"""Looked at without a pause: others come between."""
IDLE_MS: Final = 1_000
"""The longest pause between two questions for a job that is due."""
_NS_PER_MS: Final = 1_000_000
CUT_POLL_MS: Final = 10
"""Between two looks whether a log's tail is still being cut."""


class Housekeeper:
    """One a data directory. `run()` is its task."""

    def __init__(
        self,
        owner: DirectoryOwner,
        disk: Disk,
        worker: Worker,
        clock: Clock,
        time: HouseTime,
        held: Held,
        *,
        sealer: Worker,
        events: EventLog,
        limits: HousekeepingLimits = DEFAULT_HOUSEKEEPING_LIMITS,
    ) -> None:
        self._owner = owner
        self._disk = disk
        self._clock = clock
        self._held = held
        self._events = events
        self._limits = limits
        self._time = time
        self._active = ActiveSegments()
        self._space = FreeSpace(limits)
        self._background = Background(limits, self._space)
        self._under_way: dict[Target, JobDue] = {}
        """At most a seal, and one job of the others."""
        self.counts = Counts()
        self._jobs = Jobs(
            owner,
            disk,
            worker,
            clock,
            sealer=sealer,
            reader=LogReader(owner, on_damaged=self.seal_again),
            bytes_per_second=limits.bytes_per_second,
            counts=self.counts,
            events=events,
        )

    async def run(self) -> None:
        """Until cancelled, or until the directory has failed."""
        await self._look_at_space()
        async with TaskScope() as scope:
            scope.start(self._watch_space(), name="free space")
            scope.start(self._work(self._background.next_seal), name="seals")
            scope.start(self._work(self._background.next_upkeep), name="compaction and scrubbing")
            while self._owner.failure is None:
                await self._check()
                await self._clock.sleep(self._limits.check_interval_ms)
            scope.cancel()

    def seal_again(self, key: SegmentKey) -> None:
        """A reader found the segment's sidecar damaged: it is made again."""
        self._events.warning("sidecar_damaged", path=key.sidecar_path)
        self._background.seal_again(key)

    @property
    def unsettled(self) -> Collection[PartitionKey]:
        """Logs with a compaction that was given up between the names of its files and their place
        in the log: the next start has to look what is there."""
        return self._jobs.unsettled

    def describe(self) -> Description:
        """How it stands."""
        return Description(
            counts=msgspec.structs.asdict(self.counts),
            is_full=self._space.is_full,
            free_bytes=self._space.free_bytes,
            seals_waiting=self._background.seals_waiting,
            compactions_waiting=self._background.compactions_waiting,
            compactions_postponed=self._background.compactions_postponed,
            pauses=len(self._background.retries),
            scrub_share_seen=self._background.scrubbing.share_seen,
            job=", ".join(f"{_word(job)} {job.log_key}" for job in self._under_way.values()),
        )

    async def _check(self) -> None:
        """Look at every log once: do what retention wants, note what is due in the background."""
        keys = list(self._held)
        now = self._now()
        self._background.begin_survey()
        for place, key in enumerate(keys):
            held = self._held.get(key)
            if held is not None:
                await self._keep(held, now)
                self._background.survey(held, now)
            if place % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await asyncio.sleep(0)
        self._background.end_survey(self._held)
        self._active.keep(lambda key: key in self._held)
        self.counts.checks += 1

    def _now(self) -> Moment:
        return Moment(
            wall_ms=self._time.wall_ms(),
            ticks_ms=self._clock.monotonic_ns() // _NS_PER_MS,
            may_expire=self._time.may_expire,
        )

    async def _keep(self, held: HeldLog, now: Moment) -> None:
        log = held.log
        due = plan_retention(
            log,
            held.settings,
            now_ms=now.wall_ms,
            may_expire=now.may_expire,
            active_since_ms=self._active.since(log, now.wall_ms),
        )
        if due.is_roll:
            self._owner.roll(log.key)
            self.counts.rolls += 1
        # A follower's log begins where its leader's does, whatever this machine's clock says.
        is_trim = due.trim_to is not None and log.decides_its_start
        if is_trim and not self._is_being_compacted(log.key):
            await self._trim(held, due)

    async def _trim(self, held: HeldLog, due: Due) -> None:
        assert due.trim_to is not None, "there is something to trim"
        try:
            await self._owner.trim(held.log, due.trim_to)
        except TidelogError as error:
            if error.code is ErrorCode.NOT_LEADER:
                # It led when this was planned: now it is for another one to decide.
                return
            # The next check wants it again.
            self.counts.trims_failed += 1
            self._events.warning("retention_failed", partition=held.log.key, error=error)
            return
        self.counts.trims += 1
        self.counts.trimmed_bytes += due.trimmed_bytes
        self._events.info(
            "retention",
            partition=held.log.key,
            log_start_offset=due.trim_to,
            trimmed_bytes=due.trimmed_bytes,
        )

    def _is_being_compacted(self, key: PartitionKey) -> bool:
        """Trimmed now, what the compaction makes would be for nothing; there are more checks."""
        return any(
            isinstance(job, CompactDue) and job.log_key == key for job in self._under_way.values()
        )

    async def _watch_space(self) -> None:
        while True:
            await self._clock.sleep(self._limits.free_check_interval_ms)
            await self._look_at_space()

    async def _look_at_space(self) -> None:
        try:
            free_bytes = await self._disk.free_bytes()
        except DirectoryGone as error:
            # Nothing need be written for it to be noticed.
            self._owner.fail_directory(error)
            return
        except TidelogError as error:
            self._events.warning("free_space_unknown", directory=self._disk.name, error=error)
            return
        has_changed = self._space.observe(free_bytes)
        if self._space.has_room_for_ballast(SIZE_BYTES):
            await self._owner.take_ballast()
        if not has_changed:
            return
        is_full = self._space.is_full
        self.counts.times_full += is_full
        self._owner.set_full(is_full=is_full)
        told = {"directory": self._disk.name, "free_bytes": free_bytes}
        if is_full:
            self._events.error("space_low", **told, floor_bytes=self._limits.free_bytes_min)
        else:
            self._events.info("space_regained", **told)

    async def _work(self, next_job: Callable[[Held, Moment], JobDue | None]) -> None:
        """One job of its kind after the other; a pause when there is none."""
        while True:
            job = next_job(self._held, self._now())
            if job is None:
                await self._clock.sleep(min(self._limits.check_interval_ms, IDLE_MS))
                continue
            if self._owner.is_being_cut(job.log_key):
                # A cut waits until nobody holds what it takes away: what a job begun now makes
                # would be for nothing, and the next one would hold it again.
                await self._clock.sleep(CUT_POLL_MS)
                continue
            try:
                await self._perform(job)
            except TidelogError as error:
                if error.code is ErrorCode.CLOSED:
                    return
                self._on_job_failed(job, error)
            finally:
                self._under_way.pop(target_of(job), None)

    async def _perform(self, job: JobDue) -> None:
        held = self._held.get(job.log_key)
        if held is None:
            return
        self._under_way[target_of(job)] = job
        match job:
            case SealDue():
                await self._seal(held, job)
            case CompactDue():
                await self._compact(held, job)
            case ScrubDue():
                await self._scrub(held, job)
            case _:
                assert_never(job)
        self._background.retries.on_success(target_of(job))

    async def _seal(self, held: HeldLog, job: SealDue) -> None:
        sealed = await self._jobs.seal(held.log, job)
        if sealed.summary is not None:
            self._background.sealed(job.segment.key)
            return
        assert job.before is not None, f"{job.segment.key.path}: what comes before it is damaged"
        self.seal_again(job.before.key)
        raise _waits_for_sidecar(f"seal {job.segment.key.path}", sealed.previous_damage)

    async def _compact(self, held: HeldLog, job: CompactDue) -> None:
        result = await self._jobs.compact(held.log, job)
        if result.damaged_sidecar is not None:
            self.seal_again(result.damaged_sidecar)
            raise _waits_for_sidecar(f"compact {job.log_key}", result.damage)
        self._events.info(
            "compacted",
            partition=job.log_key,
            segments=len(job.arguments.segments),
            records_read=result.records_read,
            records_kept=result.records_kept,
            bytes_read=result.bytes_read,
            bytes_written=result.bytes_written,
        )

    async def _scrub(self, held: HeldLog, job: ScrubDue) -> None:
        # Whatever comes of it, the round goes on: one bad segment holds up no other.
        self._background.scrubbing.done(job.segment)
        found = await self._jobs.scrub(held.log, job)
        if not is_there(held.log, job.segment):
            return
        if found.segment_damage is not None:
            damage = found.segment_damage
            raise TidelogError(
                ErrorCode.STORAGE_CORRUPT,
                tried=f"scrub {self._disk.name}/{damage.path}",
                happened=damage.happened,
            )
        if found.sidecar_damage is not None:
            self.seal_again(job.segment.key)

    def _on_job_failed(self, job: JobDue, error: TidelogError) -> None:
        """Damage stops the partition; anything else is tried again, but for what is gone."""
        held = self._held.get(job.log_key)
        is_cut = self._owner.is_being_cut(job.log_key)
        if held is None or is_cut or not _is_current(held, job):
            self._background.retries.on_success(target_of(job))
            return
        self.counts.jobs_failed += 1
        failures = self._background.retries.on_failure(target_of(job), self._now().ticks_ms)
        is_damaged = error.code is ErrorCode.STORAGE_CORRUPT
        is_unusable = error.code is ErrorCode.STORAGE_FAILED and (
            failures >= self._limits.failures_max
        )
        self._events.error(
            "background_job_failed",
            job=_word(job),
            partition=job.log_key,
            failures=failures,
            error=error,
        )
        if is_damaged or is_unusable:
            self.counts.partitions_failed += 1
            self._owner.fail(job.log_key, error)


def _waits_for_sidecar(tried: str, happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.STORAGE_FAILED,
        tried=tried,
        happened=happened,
        hint="The damaged sidecar is made again first; nothing is to be done.",
    )


def _is_current(held: HeldLog, job: JobDue) -> bool:
    """Whether the log still has what the job was for."""
    if isinstance(job, CompactDue):
        return held.log.failure is None
    return is_there(held.log, job.segment)


def _word(job: JobDue) -> str:
    match job:
        case SealDue():
            return "seal"
        case CompactDue():
            return "compact"
        case ScrubDue():
            return "scrub"
        case _:
            assert_never(job)
