"""Bugs that the suite of the partition log must find: in core, recovery, compaction, reads, jobs.

Each is one that a log has had, or nearly had while this one was written. A substitute stands in for
a function of the broker for the time of a run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidelog.broker.directory.core import flushing, trimming, writing
from tidelog.broker.directory.core.messages import AppendBatch, TrimHead
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.housekeeping.jobs import Jobs
from tidelog.broker.log.compaction import cleaning
from tidelog.broker.log.compaction.cleaning import Rules
from tidelog.broker.log.index import SparseIndex
from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.opening import directory as open_directory
from tidelog.broker.log.opening.checkpoint import consume_checkpoint
from tidelog.broker.log.opening.clean_checkpoint import NAME, CleanLog
from tidelog.broker.log.opening.log import _Opening
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.reading import reader as read
from tidelog.broker.log.reading.verify import Walk
from tidelog.broker.log.state import recovery
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.recovery import Scan
from tidelog.broker.log.state.segments import Segment
from tidelog.chaos.sim.planted import Plant, Substitution
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.ports import Append, Disk, File
from tidelog.wire.batch import BatchHeader, DecodedRecord
from tidelog.wire.batch.layout import Buffer
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionKey


def acknowledge_before_flush() -> Substitution:
    """Every append is answered when it is written, as if nobody awaited the flush."""
    original = writing.on_append

    def on_append(state: DirectoryState, append: AppendBatch) -> None:
        original(state, msgspec.structs.replace(append, is_flush_awaited=False))

    return Substitution(writing, "on_append", on_append)


def forget_a_directory_flush() -> Substitution:
    """Files are flushed, the names of new ones are not."""
    original = flushing.begin_flush

    def begin_flush(state: DirectoryState) -> None:
        state.dirty_directories = {}
        original(state)

    return Substitution(flushing, "begin_flush", begin_flush)


def retry_a_failed_flush() -> Substitution:
    """The adapter flushes once more: the kernel has marked the pages clean and says yes."""
    original = SimulatedDisk.flush

    async def flush(
        self: SimulatedDisk, files: Sequence[File], *, directories: Sequence[str] = ()
    ) -> None:
        try:
            await original(self, files, directories=directories)
        except TidelogError as error:
            if error.code is not ErrorCode.STORAGE_FAILED or not self._medium.is_failed:
                raise
            self._medium.is_failed = self._medium.owes_failure = False

    return Substitution(SimulatedDisk, "flush", flush)


def keep_the_index_of_a_cut_segment() -> Substitution:
    """The last segment is shorter after a cut, its index is not."""
    original = PartitionLog.cut

    def cut(
        self: PartitionLog,
        last: Segment | None,
        producers: ProducerState,
        offset: Offset,
        **further: Any,
    ) -> None:
        before = {segment.key: segment.index for segment in self.segments}
        original(self, last, producers, offset, **further)
        if last is not None and before.get(last.key) is not None:
            last.index = before[last.key]

    return Substitution(PartitionLog, "cut", cut)


def take_a_torn_tail_for_corruption() -> Substitution:
    """Whatever is wrong at the end of a log stops it."""

    async def end_at_damage(
        self: _Opening, file: File, segment: Segment, scan: Scan, *, was_flushed: bool
    ) -> None:
        del was_flushed
        raise recovery.corruption(f"{self._disk.name}/{file.path}", segment.size_bytes, scan.damage)

    return Substitution(_Opening, "_end_at_damage", end_at_damage)


def truncate_a_corrupt_entry() -> Substitution:
    """Damage in what was flushed is cut off, as if a crash had torn it."""

    async def end_at_damage(
        self: _Opening, file: File, segment: Segment, scan: Scan, *, was_flushed: bool
    ) -> None:
        del scan, was_flushed
        await self._disk.truncate(file, segment.size_bytes)

    return Substitution(_Opening, "_end_at_damage", end_at_damage)


def recover_past_a_torn_batch() -> Substitution:
    """Recovery believes lengths and counts, and does not compare checksums."""

    def verify_nothing(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
        del buffer, header, position

    return Substitution(recovery, "verify_checksum", verify_nothing)


def drop_the_last_value_of_a_key() -> Substitution:
    """Compaction keeps what is newer than the latest."""

    def kept(header: BatchHeader, records: Sequence[DecodedRecord], rules: Rules) -> list[bool]:
        del header
        latest = rules.offsets.latest([record[3] or b"" for record in records])
        return [
            key is not None and offset > last
            for (offset, _, _, key, _, _), last in zip(records, latest, strict=True)
        ]

    return Substitution(cleaning, "_kept", kept)


def drop_a_live_tombstone() -> Substitution:
    """Compaction takes every tombstone for one whose time is over."""
    original = cleaning._kept

    def kept(header: BatchHeader, records: Sequence[DecodedRecord], rules: Rules) -> list[bool]:
        found = original(header, records, rules)
        return [
            is_kept and record[4] is not None
            for is_kept, record in zip(found, records, strict=True)
        ]

    return Substitution(cleaning, "_kept", kept)


def lose_producers_at_a_roll() -> Substitution:
    """A new segment begins with nobody known."""
    original = PartitionLog.seal_active

    def seal_active(self: PartitionLog) -> None:
        original(self)
        self.producers = ProducerState()

    return Substitution(PartitionLog, "seal_active", seal_active)


def index_the_time_of_one_batch() -> Substitution:
    """An index entry holds the time of the batch before it, not the highest of all before."""
    original = SparseIndex.add

    def add(self: SparseIndex, base_offset: int, byte_position: int, max_timestamp: int) -> None:
        original(self, base_offset, byte_position, max_timestamp)
        self.max_timestamp = max_timestamp

    return Substitution(SparseIndex, "add", add)


def remove_before_the_mark() -> Substitution:
    """A trim is done at once; nothing durable says where the log begins."""

    def on_trim(state: DirectoryState, trim: TrimHead) -> None:
        log = state.partitions[trim.key].log
        offset = min(trim.offset, log.high_watermark)
        state.doom(trim.key, log.trim(Offset(offset), log.leader_epoch))
        trimming.remove_doomed(state)
        state.done(trim.token, log.log_start_offset)

    return Substitution(trimming, "on_trim", on_trim)


def take_a_trim_back() -> Substitution:
    """Of two trims under way the one that was asked for last marks the log's start."""
    original = trimming.on_trim

    def on_trim(state: DirectoryState, trim: TrimHead) -> None:
        partition = state.partitions.get(trim.key)
        if partition is not None:
            partition.trim_offset = Offset(0)
        original(state, trim)

    return Substitution(trimming, "on_trim", on_trim)


def serve_beyond_the_watermark() -> Substitution:
    """A read ends where the log does."""

    def bound_of(log: PartitionLog, upper_bound: int | None) -> int:
        return log.log_end_offset if upper_bound is None else upper_bound

    return Substitution(read, "_bound_of", bound_of)


def serve_without_verifying() -> Substitution:
    """What lies on the disk is what was written."""

    def verify(self: Walk) -> None:
        del self

    return Substitution(Walk, "verify", verify)


def forget_the_flush_of_a_swap() -> Substitution:
    """What a job has made gets its names, and they are not flushed before the old ones go."""

    async def flush_names(self: Jobs, key: PartitionKey) -> None:
        del self, key

    return Substitution(Jobs, "_flush_names", flush_names)


def leave_the_checkpoint() -> Substitution:
    """What a clean stop has left is read, and stays for the next start."""

    async def read_and_leave(
        disk: Disk, names: Sequence[str]
    ) -> tuple[Mapping[PartitionKey, CleanLog], TidelogError | None]:
        if NAME not in names:
            return await consume_checkpoint(disk, names)
        file = await disk.open(NAME)
        data = await disk.read(file, 0, file.size_bytes)
        await disk.close(file)
        found = await consume_checkpoint(disk, names)
        file = await disk.open(NAME, create=True)
        await disk.append([Append(file, [data])])
        await disk.flush([file], directories=[""])
        await disk.close(file)
        return found

    return Substitution(open_directory, "consume_checkpoint", read_and_leave)


def keep_epochs_of_a_cut_tail() -> Substitution:
    """A cut leaves the leader epochs that nothing is left of."""

    def truncate(self: LeaderEpochs, log_end_offset: int) -> None:
        del self, log_end_offset

    return Substitution(LeaderEpochs, "truncate", truncate)


def _plant(make: object, *expected: str) -> Plant:
    assert callable(make), "a plant is made by a function"
    return Plant(make=make, expected=frozenset(expected))


PLANTED: Final[Mapping[str, Plant]] = {
    "acknowledge_before_flush": _plant(acknowledge_before_flush, "not_flushed", "lost_write"),
    "drop_a_live_tombstone": _plant(drop_a_live_tombstone, "lost_tombstone", "resurrected"),
    "drop_the_last_value_of_a_key": _plant(drop_the_last_value_of_a_key, "compacted"),
    "forget_a_directory_flush": _plant(
        forget_a_directory_flush, "not_flushed", "lost_write", "mark_not_durable"
    ),
    "forget_the_flush_of_a_swap": _plant(
        forget_the_flush_of_a_swap, "lost_head", "lost_write", "false_corruption", "compacted"
    ),
    "index_the_time_of_one_batch": _plant(
        index_the_time_of_one_batch, "index_differs", "time_lookup", "max_timestamp"
    ),
    "keep_epochs_of_a_cut_tail": _plant(keep_epochs_of_a_cut_tail, "epochs_differ"),
    "keep_the_index_of_a_cut_segment": _plant(keep_the_index_of_a_cut_segment, "index_differs"),
    "leave_the_checkpoint": _plant(leave_the_checkpoint, "stale_checkpoint", "lost_write"),
    "lose_producers_at_a_roll": _plant(
        lose_producers_at_a_roll, "producers_differ", "rebuilt_producers"
    ),
    "recover_past_a_torn_batch": _plant(
        recover_past_a_torn_batch, "wrong_bytes", "from_nowhere", "false_corruption"
    ),
    "remove_before_the_mark": _plant(
        remove_before_the_mark, "lost_head", "falling_start", "false_corruption"
    ),
    "retry_a_failed_flush": _plant(
        retry_a_failed_flush, "not_flushed", "mark_not_durable", "lost_write"
    ),
    "serve_beyond_the_watermark": _plant(
        serve_beyond_the_watermark, "beyond_watermark", "not_flushed"
    ),
    "serve_without_verifying": _plant(serve_without_verifying, "wrong_bytes"),
    "take_a_torn_tail_for_corruption": _plant(take_a_torn_tail_for_corruption, "false_corruption"),
    "take_a_trim_back": _plant(take_a_trim_back, "lost_head", "falling_start"),
    "truncate_a_corrupt_entry": _plant(
        truncate_a_corrupt_entry, "lost_write", "false_corruption", "segment_gap"
    ),
}
"""By name; for the runner's `--planted` and the tests."""
