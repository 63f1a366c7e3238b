"""Opens a partition's log after an unclean stop: chooses its files, scans, cuts a torn tail.

Thin I/O around `opening.chain` and `recovery`. It must never write to a file unless the damage is a
torn tail, nor remove one unless what stands in its place was read and found whole; from a log that
cannot be served nothing is removed at all.

    list ─▶ one small read of each sidecar ─▶ choose ─▶ prove what replaces leftovers ─┐
      remove leftovers ◀─ cut a torn tail ◀─ scan what has no sidecar, and the last ◀──┘

A sealed segment with a sidecar that can be believed is not read: its sidecar tells its offsets,
its leader epochs, and the state of producers behind it, from which the scan goes on.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.marks.marks import NO_MARKS, PartitionMarks
from tidelog.broker.log.names import SegmentKey, directory_name, parse_segment_name
from tidelog.broker.log.opening.chain import Chain, Found, Leftover, Listing, choose, tell_apart
from tidelog.broker.log.opening.files import look_at, read_producers, scan_alone, scan_segment
from tidelog.broker.log.state import recovery
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.recovery import SCAN_BYTES, Scan
from tidelog.broker.log.state.segments import Segment
from tidelog.ports import Disk, File
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

COMPACTED_GAPS_FROM: Final = 0
"""In a compacted segment offsets may skip anywhere."""


class OpenedLog(msgspec.Struct, kw_only=True):
    """A recovered log, its open files, and what recovery had to cut."""

    log: PartitionLog
    files: dict[SegmentKey, File]
    """Those that are open already; the owner opens others when they are read."""
    torn_bytes: int = 0
    active: File | None = None
    """To be flushed before anything is served or appended: what a killed process had written may
    sit in the page cache only."""
    to_seal: tuple[SegmentKey, ...] = ()
    """Sealed segments without a sidecar that can be believed: the job makes it (again)."""
    to_remove: tuple[SegmentKey, ...] = ()
    """Segments wholly below the log's start: they go once the mark that says so is durable."""
    removed: tuple[str, ...] = ()
    """Leftovers that were removed: unfinished files, sidecars of nothing, replaced segments."""
    strangers: tuple[str, ...] = ()
    """Paths in the directory that are not ours: left alone."""


async def open_log(
    disk: Disk,
    key: PartitionKey,
    leader_epoch: LeaderEpoch,
    marks: PartitionMarks | None,
    *,
    are_marks_whole: bool = True,
) -> OpenedLog:
    """The log as the files tell it; a log that cannot be served has `failure` set.

    `marks` is what the marks file tells of it, `are_marks_whole` whether it tells all that it ever
    told; None: there is no such file at all.
    """
    log = PartitionLog(key, leader_epoch)
    are_marks_whole = are_marks_whole and marks is not None
    marks = NO_MARKS if marks is None else marks
    opening = _Opening(disk, log, marks, are_marks_whole=are_marks_whole)
    try:
        await opening.open()
    except TidelogError as error:
        log.failure = error
        known = marks.flushed_offset
        if not are_marks_whole:
            # The damage was judged to lie in what was durable: with a mark that says less than
            # that, the next start would take it for a torn tail and cut it off.
            known = max(known, log.log_end_offset + 1)
        log.flushed_offset = Offset(known)
        log.log_end_offset = max(log.log_end_offset, log.flushed_offset)
        log.unopened = msgspec.structs.replace(marks, flushed_offset=known)
        return opening.opened
    log.flushed_offset = log.log_end_offset
    log.high_watermark = log.log_end_offset
    log.high_watermark_position = log.end_position()
    return opening.opened


def _check_kinds(where: str, strangers: Sequence[str]) -> None:
    """A directory in a segment's place: the log could not go on in a file of that name."""
    for name in strangers:
        if name.endswith("/") and parse_segment_name(name.rstrip("/")) is not None:
            raise recovery.corruption(
                f"{where}/{name.rstrip('/')}", 0, "it is a directory, a file of that name is gone"
            )


class _Opening:
    """One log while it is opened."""

    def __init__(
        self, disk: Disk, log: PartitionLog, marks: PartitionMarks, *, are_marks_whole: bool
    ) -> None:
        self._disk = disk
        self._log = log
        self._are_marks_whole = are_marks_whole
        self._marks = marks
        self._where = f"{disk.name}/{directory_name(log.key)}"
        self._listing = tell_apart(log.key, [])
        self._removing: list[str] = []
        self.opened = OpenedLog(log=log, files={})
        # Also of a log that cannot be served: marks that are made anew are written from these.
        log.gaps_from = Offset(self._marks.gaps_from)
        log.log_start_offset = log.log_end_offset = Offset(self._marks.log_start_offset)
        log.log_start_epoch = LeaderEpoch(self._marks.log_start_epoch)

    async def open(self) -> None:
        """All steps; see the module."""
        log, opened = self._log, self.opened
        directory = directory_name(log.key)
        self._listing = tell_apart(log.key, await self._disk.list(directory))
        _check_kinds(self._where, self._listing.strangers)
        opened.strangers = tuple(f"{directory}/{name}" for name in self._listing.strangers)
        chain = await self._choose()
        self._check_head(chain)
        for place, found in enumerate(chain.segments):
            is_last = place == len(chain.segments) - 1
            if found.summary is not None and not is_last:
                self._take_sealed(found)
            else:
                await self._scan(found, is_last=is_last)
        self._begin_at_log_start(chain)
        if not chain.segments and log.log_end_offset < self._marks.flushed_offset:
            raise self._has_no_files()
        if log.log_end_offset < self._marks.flushed_offset:
            raise recovery.corruption(
                self._where,
                log.end_position()[1],
                f"it ends at offset {log.log_end_offset}, {self._marks.flushed_offset} was flushed",
            )
        await self._remove_leftovers(chain, self._listing)

    def _has_no_files(self) -> TidelogError:
        start, end = self._log.log_start_offset, self._marks.flushed_offset
        return TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried=f"recover {self._where}",
            happened=f"it has no segment's file, and offsets {start} to {end} were flushed: "
            "somebody has removed, renamed or replaced it",
            hint="If another broker has a replica, it is copied from there by itself. Else stop "
            "the node, put the directory back as it was, or from a backup, and start the node.",
        )

    # -- which files -----------------------------------------------------------------------------

    async def _choose(self) -> Chain:
        """Choose until all that the choice rests on is proven; each turn believes one file less."""
        found = [
            await look_at(
                self._disk,
                key,
                self._log.leader_epoch,
                has_sidecar=key in self._listing.sidecars,
            )
            for key in self._listing.segments
        ]
        while True:
            chain = choose(found, self._marks.log_start_offset)
            doubtful = await self._doubtful(chain)
            if doubtful is None:
                return chain
            found = [
                Found(key=each.key, next_offset=each.next_offset) if each is doubtful else each
                for each in found
            ]

    async def _doubtful(self, chain: Chain) -> Found | None:
        """A segment whose sidecar must not be believed, as far as this choice depends on it."""
        for leftover in chain.leftovers:
            for stand_in in _stand_ins(chain, leftover):
                end, damage = await scan_alone(
                    self._disk,
                    stand_in.key,
                    self._log.leader_epoch,
                    self._gaps_from(stand_in.key),
                )
                if stand_in.summary is not None and end != stand_in.next_offset:
                    if stand_in.key.generation:
                        return stand_in
                    raise recovery.corruption(
                        f"{self._disk.name}/{stand_in.key.path}", 0, damage or f"it ends at {end}"
                    )
        for before, after in pairwise(chain.segments):
            is_scanned = after is chain.segments[-1] or not after.is_proven
            if is_scanned and before.summary is not None:
                producers = await read_producers(self._disk, before.summary)
                if producers is None:
                    return before
        return None

    def _gaps_from(self, key: SegmentKey) -> int:
        return COMPACTED_GAPS_FROM if key.generation else self._marks.gaps_from

    def _check_head(self, chain: Chain) -> None:
        log_start_offset = self._marks.log_start_offset
        log = self._log
        if not chain.segments:
            return
        first = chain.segments[0].key
        if first.base_offset > log_start_offset:
            raise recovery.corruption(
                self._where,
                0,
                f"its first segment begins at offset {first.base_offset}, not {log_start_offset}",
            )
        log.log_end_offset = first.base_offset

    # -- what is in them -------------------------------------------------------------------------

    def _take_sealed(self, found: Found) -> None:
        """A segment of which the sidecar tells all."""
        log, summary = self._log, found.summary
        assert summary is not None, f"{found.key.path} has no sidecar to be taken from"
        self._check_chain(found.key)
        where = f"{self._disk.name}/{found.key.path}"
        epochs = LeaderEpochs(summary.leader_epochs)
        if not log.leader_epochs.latest <= epochs.latest <= log.leader_epoch:
            raise recovery.corruption(
                where,
                0,
                f"its leader epoch is {epochs.latest}, "
                f"not from {log.leader_epochs.latest} to {log.leader_epoch}",
            )
        self._seal_before()
        log.segments.append(Segment.from_summary(summary))
        log.leader_epochs = epochs
        log.log_end_offset = Offset(summary.next_offset)

    def _check_chain(self, key: SegmentKey) -> None:
        if key.base_offset != self._log.log_end_offset:
            raise recovery.corruption(
                f"{self._disk.name}/{key.path}",
                0,
                f"it begins at offset {key.base_offset}, "
                f"the one before ends at {self._log.log_end_offset}",
            )

    def _seal_before(self) -> None:
        """What lies before another segment is sealed."""
        segments = self._log.segments
        if segments and not segments[-1].is_sealed:
            self._log.seal_active()

    async def _scan(self, found: Found, *, is_last: bool) -> None:
        """Read a segment whole: the last one, or one without a sidecar to be believed."""
        log, key = self._log, found.key
        self._check_chain(key)
        if log.segments and log.segments[-1].summary is not None:
            producers = await read_producers(self._disk, log.segments[-1].summary)
            assert producers is not None, "it was read while the segments were chosen"
            log.know_producers(producers)
        file = await self._disk.open(key.path)
        self.opened.files[key] = file
        segment = log.begin_segment(key)
        scan = Scan(leader_epoch_max=log.leader_epoch, gaps_from=self._gaps_from(key))
        await scan_segment(self._disk, file, log, scan)
        if segment.size_bytes < file.size_bytes:
            was_flushed = not is_last or found.is_proven or key.generation > 0
            await self._end_at_damage(file, segment, scan, was_flushed=was_flushed)
        if is_last:
            self.opened.active = file
            await self._seal_last(found, segment)
        else:
            self.opened.to_seal += (key,)

    async def _seal_last(self, found: Found, segment: Segment) -> None:
        """The last segment of the log may have been sealed as well."""
        summary = found.summary
        if summary is not None:
            if summary.next_offset != segment.next_offset:
                raise recovery.corruption(
                    f"{self._disk.name}/{found.key.path}",
                    segment.size_bytes,
                    f"it ends at offset {segment.next_offset}, "
                    f"its sidecar says {summary.next_offset}",
                )
            self._log.seal_active()
            segment.take_summary(summary)
            # It also knows of what was trimmed before it.
            self._log.leader_epochs = LeaderEpochs(summary.leader_epochs)
            producers = await read_producers(self._disk, summary)
            if producers is not None:
                self._log.know_producers(producers)
        elif found.key.generation:
            self._log.seal_active()
            self.opened.to_seal += (found.key,)

    async def _end_at_damage(
        self, file: File, segment: Segment, scan: Scan, *, was_flushed: bool
    ) -> None:
        """Cut a torn tail; anything else is corruption."""
        where = f"{self._disk.name}/{file.path}"
        log = self._log
        if was_flushed or log.log_end_offset < self._marks.flushed_offset:
            raise recovery.corruption(where, segment.size_bytes, scan.damage)
        if not self._are_marks_whole:
            behind = await self._find_whole_batch(file, segment.size_bytes + 1)
            if behind is not None:
                raise recovery.corruption(
                    where, segment.size_bytes, f"{scan.damage}; the batch at byte {behind} is whole"
                )
        self.opened.torn_bytes += file.size_bytes - segment.size_bytes
        await self._disk.truncate(file, segment.size_bytes)

    async def _find_whole_batch(self, file: File, start: int) -> int | None:
        """The first undamaged later batch at or behind `start`; reads overlap by the largest."""
        while start < file.size_bytes:
            data = await self._disk.read(file, start, SCAN_BYTES)
            for candidate in recovery.candidates(data, 0):
                if recovery.is_whole_batch(data, candidate, self._log.log_end_offset):
                    return start + candidate
            start += SCAN_BYTES // 2
        return None

    # -- what is left over -----------------------------------------------------------------------

    def _begin_at_log_start(self, chain: Chain) -> None:
        """Take the log's start over; what lies wholly below it goes later."""
        log, log_start_offset = self._log, self._marks.log_start_offset
        below = [each.key for each in chain.below]
        if log.log_end_offset < log_start_offset:
            # Only of what was trimmed something is left: the log is empty.
            below += [segment.key for segment in log.segments]
            log.segments.clear()
            log.log_end_offset = Offset(log_start_offset)
            self.opened.active = None
            self.opened.to_seal = ()
        log.leader_epochs.trim(log_start_offset)
        self.opened.to_remove = tuple(sorted(below))

    async def _remove_leftovers(self, chain: Chain, listing: Listing) -> None:
        """Drop what stands for nothing, once the names of what does are durable."""
        directory = directory_name(self._log.key)
        kept = {segment.key for segment in self._log.segments if segment.summary is not None}
        kept.update(key for key in self.opened.to_seal)
        kept.update(self.opened.to_remove)
        paths = [f"{directory}/{name}" for name in listing.unfinished]
        paths += [key.sidecar_path for key in listing.sidecars if key not in kept]
        paths += [leftover.found.key.path for leftover in chain.leftovers]
        if not paths:
            return
        await self._disk.flush([], directories=["", directory])
        for path in paths:
            await self._disk.remove(path)
        self.opened.removed = tuple(paths)


def _stand_ins(chain: Chain, leftover: Leftover) -> list[Found]:
    """The segments that hold what the leftover held."""
    start, end = leftover.found.key.base_offset, leftover.found.next_offset
    return [
        each
        for each in chain.segments
        if each is leftover.stand_in
        or (start <= each.key.base_offset and (end is None or each.key.base_offset < end))
    ]
