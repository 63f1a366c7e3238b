"""What a background job is told, and how what it made becomes part of a log.

The thin part between planner, worker and owner: runs one job, gives its files their names, durably,
and tells the owner. It must never rename a file over one that a log uses by then for other bytes:
what a job made for a log that changed meanwhile is thrown away. A seal and another job may work on
one log, even on one segment, at the same time: each holds what it reads, throws away names of its
own only, and finds a sidecar that was made again meanwhile by its checksums.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import msgspec

from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.housekeeping.core.background import CompactDue, ScrubDue, SealDue
from tidelog.broker.log.compaction import contract as compacting
from tidelog.broker.log.compaction.contract import CompactArguments
from tidelog.broker.log.jobs import scrub as scrubbing
from tidelog.broker.log.jobs import seal as sealing
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.names import (
    SEGMENT_SUFFIX,
    SIDECAR_SUFFIX,
    UNFINISHED_SUFFIX,
    SegmentKey,
    directory_name,
    parse_segment_name,
)
from tidelog.broker.log.reading.reader import LogReader
from tidelog.broker.log.state.log import NO_GAPS, PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.broker.log.transactions.aborted import encode_aborted
from tidelog.broker.shared.events import Counts, EventLog
from tidelog.ports import Clock, Disk, Worker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

HAND_OVER_POLL_MS: Final = 1
HAND_OVER_POLLS_MAX: Final = 5_000
"""The owner's task waits for nothing before it looks into its inbox."""


class Jobs:
    """Of one directory; at most one seal runs at a time, and beside it one other."""

    def __init__(
        self,
        owner: DirectoryOwner,
        disk: Disk,
        worker: Worker,
        clock: Clock,
        *,
        sealer: Worker,
        reader: LogReader,
        bytes_per_second: int,
        counts: Counts,
        events: EventLog,
    ) -> None:
        self._owner = owner
        self._disk = disk
        self._worker = worker
        self._sealer = sealer
        self._reader = reader
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._counts = counts
        self._events = events
        self.unsettled: dict[PartitionKey, None] = {}
        """Logs in whose directory a compacted segment may have its name that they do not know."""

    async def seal(self, log: PartitionLog, due: SealDue) -> sealing.Sealed:
        """Write the segment's sidecar and hand it over; without a summary: nothing was done."""
        segment, before = due.segment, due.before
        unfinished = sealing.unfinished_path(segment.key)
        cut_count = log.cut_count
        with ExitStack() as pins:
            self._pin(pins, [segment] if before is None else [before, segment])
            is_named = False
            try:
                arguments = sealing.encode_arguments(_seal_arguments(log, due))
                sealed = sealing.decode_result(await self._run_seal(arguments))
                is_overtaken = self._is_overtaken(log, cut_count) or not is_there(log, segment)
                if sealed.summary is None or is_overtaken:
                    return sealed
                if sealed.are_producers_forgotten:
                    self._events.warning("producers_forgotten", path=segment.key.sidecar_path)
                await self._disk.rename(unfinished, segment.key.sidecar_path)
                is_named = True
                await self._flush_names(log.key)
            finally:
                if not is_named:
                    await self._remove_unfinished(log.key, [unfinished])
        if is_there(log, segment) and segment.summary != sealed.summary:
            self._owner.sealed(segment.key, sealed.summary, cut_count=cut_count)
            await self._wait_taken(
                lambda: segment.summary == sealed.summary or not is_there(log, segment),
                f"seal {segment.key.path}",
            )
        self._counts.seals += 1
        self._counts.sidecars_made_again += due.is_again
        return sealed

    async def compact(self, log: PartitionLog, due: CompactDue) -> compacting.CompactResult:
        """Rewrite a part of the log and swap it in, each group durable before the next; nothing is
        done if the result names a damaged sidecar."""
        keys = [each.key for each in due.arguments.segments]
        segments = [segment for segment in log.segments if segment.key in keys]
        cut_count = log.cut_count
        unfinished: dict[str, None] | None = None
        with ExitStack() as pins:
            self._pin(pins, segments)
            try:
                arguments = compacting.encode_arguments(await self._with_aborted(log, due))
                data = await self._run(compacting.COMPACT_JOB, arguments)
                result = compacting.decode_result(data)
                unfinished = dict.fromkeys(_unfinished_paths(result))
                await self._swap_in(log, result, cut_count, unfinished)
            finally:
                await self._remove_unfinished(log.key, unfinished, due)
        self._counts.compactions += result.damaged_sidecar is None
        self._counts.compaction_bytes_read += result.bytes_read
        self._counts.compaction_bytes_written += result.bytes_written
        return result

    async def _with_aborted(self, log: PartitionLog, due: CompactDue) -> CompactArguments:
        """What is told of the aborted transactions lies in segments behind as well."""
        segments = due.arguments.segments
        begin_offset, end_offset = segments[0].base_offset, segments[-1].next_offset
        aborted = await self._reader.aborted_between(log, begin_offset, end_offset)
        return msgspec.structs.replace(due.arguments, aborted=encode_aborted(aborted))

    async def scrub(self, log: PartitionLog, due: ScrubDue) -> scrubbing.Scrubbed:
        """Hold a segment against its digests."""
        segment = due.segment
        arguments = scrubbing.ScrubArguments(
            segment=segment.key,
            is_contiguous=_is_contiguous(log, segment),
            leader_epoch_max=log.leader_epoch,
        )
        with self._owner.reading(segment.key):
            encoded = scrubbing.encode_arguments(arguments)
            found = scrubbing.decode_result(await self._run(scrubbing.SCRUB_JOB, encoded))
        self._counts.scrubs += 1
        self._counts.scrubbed_bytes += segment.size_bytes
        return found

    async def _swap_in(
        self,
        log: PartitionLog,
        result: compacting.CompactResult,
        cut_count: int,
        unfinished: dict[str, None],
    ) -> None:
        """Group by group; what has got its name is `unfinished` no more."""
        for replacement in result.replacements:
            made = replacement.made.key
            present = {segment.key for segment in log.segments}
            is_whole = all(key in present for key in replacement.removed)
            if log.failure is not None or not is_whole or self._is_overtaken(log, cut_count):
                # Trimmed or cut meanwhile: what stands for it would bring records back.
                self._counts.compactions_given_up += 1
                return
            self.unsettled[log.key] = None
            await self._disk.rename(replacement.unfinished_sidecar_path, made.sidecar_path)
            # Once the segment is in place, this is the name that a seal makes its sidecar again by.
            del unfinished[replacement.unfinished_sidecar_path]
            # From here on the new segment counts.
            await self._disk.rename(replacement.unfinished_log_path, made.path)
            del unfinished[replacement.unfinished_log_path]
            await self._flush_names(log.key)
            self._owner.replace(
                log.key, replacement.removed, (replacement.made,), cut_count=cut_count
            )
            await self._wait_taken(
                partial(self._is_settled, log, made),
                f"put {made.path} in place",
            )
            del self.unsettled[log.key]

    def _is_overtaken(self, log: PartitionLog, cut_count: int) -> bool:
        """Whether the log's tail is being cut, or was since the job began: then a segment of the
        same name may hold other bytes than the job has read."""
        return log.cut_count != cut_count or self._owner.is_being_cut(log.key)

    def _is_settled(self, log: PartitionLog, made: SegmentKey) -> bool:
        """Whether the log has the segment, or never will: while its tail is cut nothing is put in
        place, and the cut waits for what this job holds."""
        return _is_in_place(log, made) or self._owner.is_being_cut(log.key)

    async def _wait_taken(self, is_taken: Callable[[], bool], tried: str) -> None:
        """What was handed over shows in the log soon; else it would be done a second time."""
        for _ in range(HAND_OVER_POLLS_MAX):
            if is_taken():
                return
            await self._clock.sleep(HAND_OVER_POLL_MS)
        raise TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=tried,
            happened="the directory's owner did not take it over "
            f"within {HAND_OVER_POLL_MS * HAND_OVER_POLLS_MAX} ms",
        )

    async def _run_seal(self, arguments: bytes) -> bytes:
        # Seals keep pace with appends, whatever those do: until it is sealed a segment's index
        # lies in memory. So they have no limit, and wait for no other job.
        return await self._sealer.run(sealing.SEAL_JOB, arguments, disk=self._disk)

    async def _run(self, job: str, arguments: bytes) -> bytes:
        return await self._worker.run(
            job, arguments, disk=self._disk, bytes_per_second=self._bytes_per_second
        )

    async def _flush_names(self, key: PartitionKey) -> None:
        await self._disk.flush([], directories=[directory_name(key)])

    async def _remove_unfinished(
        self, key: PartitionKey, paths: Iterable[str] | None, due: CompactDue | None = None
    ) -> None:
        """Room is short when a job fails for want of it: what it left goes now, not at a start.
        None: what the compaction `due` may have made."""
        # The directory's own failure is told by whatever is done in it next.
        with contextlib.suppress(TidelogError):
            directory = directory_name(key)
            present = [f"{directory}/{name}" for name in await self._disk.list(directory)]
            if paths is None:
                assert due is not None, "a seal knows its name"
                made = [path for path in present if _may_be_made_by(due, path)]
            else:
                made = [path for path in paths if path in present]
            for path in made:
                await self._disk.remove(path)

    def _pin(self, pins: ExitStack, segments: Sequence[Segment]) -> None:
        for segment in segments:
            pins.enter_context(self._owner.reading(segment.key))


def _unfinished_paths(result: compacting.CompactResult) -> list[str]:
    return [
        path
        for each in result.replacements
        for path in (each.unfinished_sidecar_path, each.unfinished_log_path)
    ]


def _may_be_made_by(due: CompactDue, path: str) -> bool:
    """Whether a compaction that has put nothing in place may have left it: its segments begin where
    old ones do, in generations that the log does not have. A seal's sidecar is of one it has."""
    name = path.rpartition("/")[2]
    if not name.endswith(UNFINISHED_SUFFIX):
        return False
    stem = name.removesuffix(UNFINISHED_SUFFIX)
    if stem.endswith(SIDECAR_SUFFIX):
        stem = stem.removesuffix(SIDECAR_SUFFIX) + SEGMENT_SUFFIX
    parsed = parse_segment_name(stem)
    return parsed is not None and any(
        parsed[0] == each.base_offset and parsed[1] > each.generation
        for each in due.arguments.segments
    )


def is_there(log: PartitionLog, segment: Segment) -> bool:
    """Whether the log still holds this segment, sealed, and has not stopped."""
    return (
        log.failure is None and segment.is_sealed and any(each is segment for each in log.segments)
    )


def _is_in_place(log: PartitionLog, key: SegmentKey) -> bool:
    """Whether the log has the segment, or was trimmed past it, or has stopped."""
    if log.failure is not None or not log.segments:
        return True
    is_past = log.segments[0].base_offset > key.base_offset
    return is_past or any(each.key == key for each in log.segments)


def _is_contiguous(log: PartitionLog, segment: Segment) -> bool:
    """Whether its offsets have no gaps: it was appended here, not compacted here or elsewhere."""
    if segment.is_compacted:
        return False
    return log.gaps_from == NO_GAPS or segment.next_offset <= log.gaps_from


def _seal_arguments(log: PartitionLog, due: SealDue) -> sealing.SealArguments:
    segment, summary = due.segment, due.segment.summary
    return sealing.SealArguments(
        segment=segment.key,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        previous=None if due.before is None else due.before.key,
        producers_before=segment.producers_before or b"",
        is_contiguous=_is_contiguous(log, segment),
        leader_epoch_max=log.leader_epoch,
        cleaned_below=0 if summary is None else summary.cleaned_below,
        leader_epochs=_history_at_end(log, segment) if segment.is_compacted else None,
        replaces=() if summary is None else summary.replaces,
    )


def _history_at_end(log: PartitionLog, segment: Segment) -> tuple[EpochStart, ...]:
    """Leader epochs up to a compacted segment's end. Where its sidecar is lost, those behind it
    have told the log more than the batches that are left would."""
    if segment.summary is not None:
        return segment.summary.leader_epochs
    epochs = log.leader_epochs.copy()
    epochs.truncate(segment.next_offset)
    return epochs.starts
