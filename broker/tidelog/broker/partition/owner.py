"""The task that owns a data directory: its inbox, its writes, its flush rounds.

Runs a `DirectoryCore` over the Disk port. Handlers submit and await a future; a handler that is
cancelled drops its answer only, what the inbox accepted runs to its end. It must never touch a log
state outside the core's step. Stops 6, 8 and 9 of a record's walk.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, assert_never

import msgspec

from tidelog.broker.errors import fresh
from tidelog.broker.log.marks import MarkKind, PartitionMarks
from tidelog.broker.log.names import PartitionKey, SegmentKey
from tidelog.broker.log.open_log import OpenedLog
from tidelog.broker.log.sidecar import Summary
from tidelog.broker.log.state import PartitionLog
from tidelog.broker.partition.ballast import give_up_ballast, take_ballast
from tidelog.broker.partition.core import FLUSH_INTERVAL_MS, DirectoryCore
from tidelog.broker.partition.core_trim import starts_on_their_way
from tidelog.broker.partition.marks_file import MarksFile
from tidelog.broker.partition.messages import (
    Acknowledge,
    AddPartition,
    Advanced,
    AppendBatch,
    CommitTo,
    Configure,
    CutEnded,
    CutTail,
    Done,
    Effect,
    FailPartition,
    Flush,
    FlushAll,
    FlushEnded,
    Follow,
    FollowerAt,
    Lead,
    Message,
    Moved,
    Refuse,
    RemoveDirectory,
    RemoveFiles,
    RemovePartition,
    ReplaceSegments,
    RestartLog,
    RollSegment,
    SegmentSealed,
    SetFull,
    Tick,
    TrimHead,
    Truncate,
    TruncateEnded,
    TruncateTail,
    Write,
    WriteEnded,
)
from tidelog.broker.partition.owner_cut import cut_tail
from tidelog.broker.partition.owner_files import SegmentFiles
from tidelog.broker.partition.rounds import Partition
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.ports import Append, Disk, File, TaskScope
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, Offset

QUEUED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Default of the memory budget for batches between arrival and acknowledgement."""


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """Where a batch went."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int
    leader_epoch: int


class _Waiting(msgspec.Struct, frozen=True):
    """Who waits for a batch, and what it holds of the memory budget."""

    done: "asyncio.Future[Appended]"
    log: PartitionLog
    size_bytes: int


class _Copying(msgspec.Struct, frozen=True):
    """Who waits for copies."""

    done: "asyncio.Future[Offset]"
    end_offset: Offset | None
    """Of the last one: where the log ends behind it."""


def _nobody_waits(key: PartitionKey) -> None:
    del key


class DirectoryOwner:
    """One a data directory. `run()` is the owning task."""

    def __init__(
        self,
        disk: Disk,
        marks: MarksFile,
        *,
        on_advanced: Callable[[PartitionKey], None],
        on_moved: Callable[[PartitionKey], None] | None = None,
        queued_bytes_max: int = QUEUED_BYTES_MAX,
        flush_interval_ms: int = FLUSH_INTERVAL_MS,
    ) -> None:
        self._disk = disk
        self._marks = marks
        self._core = DirectoryCore(flush_interval_ms=flush_interval_ms)
        self._files = SegmentFiles(disk)
        self._has_ballast = False
        self._retired: list[File] = []
        """Replaced marks files: open, they would keep their bytes on the disk."""
        self._inbox: list[Message] = []
        self._news = asyncio.Event()
        self._waiting: dict[int, _Waiting] = {}
        self._copying: dict[int, _Copying] = {}
        self._asking: dict[int, asyncio.Future[Offset]] = {}
        self._asked_for_turn: list[asyncio.Future[None]] = []
        self._next_token = 0
        self._on_advanced = on_advanced
        self._on_moved = on_moved or _nobody_waits
        self._queued_bytes_max = queued_bytes_max
        self._is_stopping = False
        self.queued_bytes = 0
        """Batches between arrival and acknowledgement."""

    @property
    def failure(self) -> TidelogError | None:
        """Why the directory stopped, if it did."""
        return self._core.failure

    def add(self, opened: OpenedLog, settings: TopicSettings, *, is_sole: bool = True) -> None:
        """Serve a recovered or new partition; one that is not the only replica follows at first."""
        self._files.update(opened.files)
        self._tell(
            AddPartition(
                log=opened.log, settings=settings, is_sole=is_sole, leftovers=opened.to_remove
            )
        )

    def lead(
        self,
        log: PartitionLog,
        leader_epoch: LeaderEpoch,
        *,
        others: tuple[BrokerId, ...],
        in_sync_count: int,
        is_sole: bool | None = None,
    ) -> None:
        """Lead from now on, or others are in sync within the epoch.

        `others` are those that a commit waits for: the in-sync set without this broker, and those
        that are about to join it. `in_sync_count` is the size of the set as it is, this broker
        included. `is_sole`: whether it is the partition's only replica; None: as it was, but for
        one with others.
        """
        self._tell(
            Lead(
                key=log.key,
                leader_epoch=leader_epoch,
                others=others,
                in_sync_count=in_sync_count,
                is_sole=is_sole,
            )
        )

    def follow(self, log: PartitionLog, leader_epoch: LeaderEpoch) -> None:
        """Follow from now on. Who waits is refused with NOT_LEADER, or with INDETERMINATE if the
        batch is written already."""
        self._tell(Follow(key=log.key, leader_epoch=leader_epoch))

    def follower_at(
        self,
        key: PartitionKey,
        broker_id: BrokerId,
        leader_epoch: LeaderEpoch,
        *,
        log_end_offset: Offset,
        flushed_offset: Offset,
    ) -> None:
        """Where a follower stands; ignored in another leader epoch, and of one that no commit waits
        for."""
        assert flushed_offset <= log_end_offset, f"{key}: broker {broker_id} flushed what it lacks"
        self._tell(
            FollowerAt(
                key=key,
                broker_id=broker_id,
                leader_epoch=leader_epoch,
                log_end_offset=log_end_offset,
                flushed_offset=flushed_offset,
            )
        )

    def turn(self) -> "asyncio.Future[None]":
        """Done once all that was told before has taken effect. Never, if `run` has ended."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked_for_turn.append(done)
        self._news.set()
        return done

    def commit_to(self, key: PartitionKey, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        """The leader's high watermark, of a log that goes on as this one: what is here is committed
        up to it, and what comes as it comes."""
        self._tell(CommitTo(key=key, leader_epoch=leader_epoch, offset=offset))

    def append_copy(
        self,
        log: PartitionLog,
        batches: bytes | memoryview,
        headers: Sequence[BatchHeader],
        *,
        behind: Offset | None = None,
    ) -> "asyncio.Future[Offset]":
        """Append batches as the leader stores them, one behind the other; done once they are
        written, with the log's end behind them.

        They are refused, one and all those behind it, where the log does not end at `behind`: a
        copy that comes late would else be taken for one behind a gap. None: what fits by its
        offset. The budget for queued batches does not count copies: a session bounds them.
        """
        self._refuse_when_stopping(f"append a copy to {log.key}")
        assert headers, f"{log.key}: a copy of no batch"
        done: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        data = memoryview(batches)
        position, expected = 0, -1 if behind is None else behind
        for number, header in enumerate(headers, 1):
            end = position + header.size_bytes
            token = self._new_token()
            self._copying[token] = _Copying(
                done, header.next_offset if number == len(headers) else None
            )
            self._tell(
                AppendBatch(
                    token=token,
                    key=log.key,
                    batch=data[position:end],
                    header=header,
                    is_flush_awaited=False,
                    append_time_ms=-1,
                    is_replica=True,
                    behind=expected,
                )
            )
            position, expected = end, header.next_offset
        assert position == len(data), f"{log.key}: {len(data)} bytes, the headers tell {position}"
        return done

    async def restart_at(self, log: PartitionLog, offset: Offset) -> Offset:
        """Empty the log of a follower, and let it go on at the offset, be it below its start."""
        return await self._asked(lambda token: RestartLog(token=token, key=log.key, offset=offset))

    def submit(
        self,
        log: PartitionLog,
        batch: bytes,
        header: BatchHeader,
        *,
        is_flush_awaited: bool,
        append_time_ms: int,
    ) -> "asyncio.Future[Appended]":
        """Queue a checked batch; refused at once if the memory budget is spent.

        A batch that is alone passes whatever its size: refused, it never would be stored.
        """
        self._refuse_when_stopping(f"append to {log.key}")
        if self.queued_bytes and self.queued_bytes + len(batch) > self._queued_bytes_max:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=f"append to {log.key}",
                happened=f"{self.queued_bytes} bytes wait to be stored, "
                f"the limit produce.queued_bytes_max is {self._queued_bytes_max}",
            )
        token = self._new_token()
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting[token] = _Waiting(done, log, len(batch))
        self.queued_bytes += len(batch)
        self._tell(
            AppendBatch(
                token=token,
                key=log.key,
                batch=batch,
                header=header,
                is_flush_awaited=is_flush_awaited,
                append_time_ms=append_time_ms,
            )
        )
        return done

    async def trim(self, log: PartitionLog, offset: Offset) -> Offset:
        """Make the log begin at the offset; returns where it begins once that is durable."""
        return await self._asked(lambda token: TrimHead(token=token, key=log.key, offset=offset))

    async def truncate(
        self, log: PartitionLog, offset: Offset, *, is_unclean: bool = False
    ) -> Offset:
        """Make the log end at the offset; returns where it ends once that is durable."""
        return await self._asked(
            lambda token: TruncateTail(
                token=token, key=log.key, offset=offset, is_unclean=is_unclean
            )
        )

    async def remove(self, key: PartitionKey) -> None:
        """Serve the partition no more and remove its files."""
        await self._asked(lambda token: RemovePartition(token=token, key=key))

    def configure(self, key: PartitionKey, settings: TopicSettings) -> None:
        """The partition's topic has other settings from now on."""
        self._tell(Configure(key=key, settings=settings))

    def roll(self, key: PartitionKey) -> None:
        """Seal the active segment, unless it is empty."""
        self._tell(RollSegment(key=key))

    def sealed(self, key: SegmentKey, summary: Summary, *, cut_count: int | None = None) -> None:
        """The segment's sidecar has its name, durably; `cut_count` was the log's before the job."""
        self._tell(SegmentSealed(key=key, summary=summary, cut_count=cut_count))

    def replace(
        self,
        key: PartitionKey,
        removed: tuple[SegmentKey, ...],
        made: tuple[Summary, ...],
        *,
        cut_count: int | None = None,
    ) -> None:
        """A compaction is committed: the files of `made` have their names, durably."""
        self._tell(ReplaceSegments(key=key, removed=removed, made=made, cut_count=cut_count))

    def fail(self, key: PartitionKey, error: TidelogError) -> None:
        """Stop the partition: damage was found in it."""
        self._tell(FailPartition(key=key, error=error))

    def set_full(self, *, is_full: bool) -> None:
        """Refuse appends from now on, or take them again."""
        self._tell(SetFull(is_full=is_full))

    async def take_ballast(self) -> None:
        """There is plenty of room: hold a little of it back for trims of a full disk."""
        if not self._has_ballast:
            self._has_ballast = await take_ballast(self._disk)

    def tick(self, now_ms: int) -> None:
        """Monotonic time has passed; to be called a few times a flush interval."""
        self._tell(Tick(now_ms=now_ms))

    @contextlib.contextmanager
    def reading(self, segment: SegmentKey) -> Iterator[None]:
        """As long as this is open the segment's files stay, also if it is trimmed or replaced."""
        with self._files.reading(segment):
            yield

    def is_being_cut(self, key: PartitionKey) -> bool:
        """What a job has made of the log gets no name meanwhile. One that holds a segment by
        `reading` and has found this False may give names: a cut waits until it lets go."""
        return self._files.is_being_cut(key)

    async def read(self, segment: SegmentKey, byte_position: int, length_bytes: int) -> bytes:
        """Bytes of a segment; a caller stays below the high watermark and holds the segment by
        `reading` from the moment on at which it found it in the log."""
        file = self._files.find(segment) or await self._files.opened(segment)
        return await self._disk.read(file, byte_position, length_bytes)

    async def read_sidecar(
        self, segment: SegmentKey, byte_position: int, length_bytes: int
    ) -> bytes:
        """Bytes of a sealed segment's sidecar, held like the segment. Opened for this only: what
        readers need often of it they keep, and a file that is removed leaves no descriptor."""
        file = await self._disk.open(segment.sidecar_path)
        try:
            return await self._disk.read(file, byte_position, length_bytes)
        finally:
            await self._disk.close(file)

    async def run(self) -> None:
        """The owning task: until `stop`, and until everything accepted is answered."""
        async with TaskScope() as scope:
            while True:
                await self._news.wait()
                self._news.clear()
                messages, self._inbox = self._inbox, []
                effects = self._core.step(messages)
                for message in messages:
                    if isinstance(message, CutEnded):
                        self._files.end_cut(message.key)
                for effect in effects:
                    self._perform(effect, scope)
                turns, self._asked_for_turn = self._asked_for_turn, []
                for turn in turns:
                    if not turn.done():
                        turn.set_result(None)
                if self._is_stopping and not self._inbox and self._core.is_idle:
                    return

    def stop(self) -> None:
        """Accept no more; `run` returns after what was accepted."""
        self._is_stopping = True
        self._tell(FlushAll())

    def _refuse_when_stopping(self, tried: str) -> None:
        if self._is_stopping:
            raise TidelogError(ErrorCode.UNAVAILABLE, tried=tried, happened="the node is stopping")

    def _new_token(self) -> int:
        self._next_token += 1
        return self._next_token

    async def _asked(self, message: Callable[[int], Message]) -> Offset:
        """Tell the core and wait for its answer; a caller that is cancelled drops it only."""
        self._refuse_when_stopping("change a log")
        token = self._new_token()
        answer: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        self._asking[token] = answer
        self._tell(message(token))
        return await answer

    def _tell(self, message: Message) -> None:
        self._inbox.append(message)
        self._news.set()

    def _perform(self, effect: Effect, scope: TaskScope) -> None:
        match effect:
            case Acknowledge():
                self._acknowledge(effect)
            case Done():
                asking = self._asking.pop(effect.token)
                if not asking.done():
                    asking.set_result(effect.offset)
            case Refuse():
                self._refuse(effect)
            case Advanced():
                self._on_advanced(effect.key)
            case Moved():
                self._on_moved(effect.key)
            case Write():
                scope.start(self._write(effect), name="write")
            case Flush():
                scope.start(self._flush(effect), name="flush")
            case Truncate():
                scope.start(self._truncate(effect), name="truncate")
            case CutTail():
                self._files.begin_cut(effect.key)
                scope.start(self._cut(effect), name="cut")
            case RemoveFiles():
                scope.start(self._remove(effect), name="remove")
            case RemoveDirectory():
                scope.start(self._remove_directory(effect), name="remove")
            case _:
                assert_never(effect)

    def _refuse(self, effect: Refuse) -> None:
        done: asyncio.Future[Offset] | asyncio.Future[Appended]
        if effect.token in self._asking:
            done = self._asking.pop(effect.token)
        elif effect.token in self._copying:
            done = self._copying.pop(effect.token).done
        else:
            done = self._release(effect.token).done
        if not done.done():
            done.set_exception(fresh(effect.error))

    def _acknowledge(self, effect: Acknowledge) -> None:
        if effect.token in self._copying:
            copying = self._copying.pop(effect.token)
            if copying.end_offset is not None and not copying.done.done():
                copying.done.set_result(copying.end_offset)
            return
        waiting = self._release(effect.token)
        if waiting.done.done():
            return
        waiting.done.set_result(
            Appended(
                base_offset=effect.base_offset,
                append_time_ms=effect.append_time_ms,
                log_start_offset=waiting.log.log_start_offset,
                leader_epoch=waiting.log.leader_epoch,
            )
        )

    def _release(self, token: int) -> _Waiting:
        waiting = self._waiting.pop(token)
        self.queued_bytes -= waiting.size_bytes
        assert self.queued_bytes >= 0, "a batch is counted once"
        return waiting

    async def _write(self, effect: Write) -> None:
        try:
            await self._append_or_make_room(effect)
        except TidelogError as error:
            self._tell(WriteEnded(error=error))
        else:
            self._marks.take_in()
            self._tell(WriteEnded())

    async def _append_or_make_room(self, effect: Write) -> None:
        """A trim that does not fit could never free the room that it lacks."""
        try:
            await self._append(effect)
        except TidelogError as error:
            is_trim = any(mark.kind is MarkKind.LOG_START for mark in effect.marks)
            if error.code is not ErrorCode.STORAGE_FULL or not is_trim:
                raise
            self._has_ballast = False
            if not await give_up_ballast(self._disk):
                raise
            await self._cut_back([(each.segment, each.byte_position) for each in effect.writes])
            await self._append(effect)

    async def _append(self, effect: Write) -> None:
        appends = [Append(await self._files.for_write(each), each.pieces) for each in effect.writes]
        if self._marks.is_long:
            replaced = self._marks
            self._marks = await replaced.made_anew(self._known())
            self._retired += [replaced.file, replaced.starts]
        if effect.marks:
            appends += self._marks.append(effect.marks)
        await self._disk.append(appends)

    def _known(self) -> dict[PartitionKey, PartitionMarks]:
        # A trim that waits for its mark to be flushed has written it to the file that goes.
        starts = starts_on_their_way(self._core)
        return {
            key: PartitionMarks(
                flushed_offset=partition.log.flushed_offset,
                log_start_offset=starts.get(key, partition.log.log_start_offset),
                committed_offset=_committed(partition),
                gaps_from=partition.log.gaps_from,
            )
            for key, partition in self._core.partitions.items()
        }

    async def _flush(self, effect: Flush) -> None:
        # A segment that a full disk refused to make has no file, and nothing to be flushed.
        found = [self._files.find(segment) for segment in effect.segments]
        files = [file for file in found if file is not None]
        if effect.with_marks:
            files += self._marks.to_flush()
        try:
            await self._disk.flush(files, directories=effect.directories)
        except TidelogError as error:
            self._tell(FlushEnded(error=error))
        else:
            self._tell(FlushEnded())
            await self._close_retired()

    async def _close_retired(self) -> None:
        """Between two flushes: one in flight may hold a marks file that was replaced meanwhile."""
        retired, self._retired = self._retired, []
        for file in retired:
            # Nothing in it is needed any more.
            with contextlib.suppress(TidelogError):
                await self._disk.close(file)

    async def _truncate(self, effect: Truncate) -> None:
        try:
            await self._cut_back(effect.lengths)
        except TidelogError as error:
            self._tell(TruncateEnded(error=error))
        else:
            self._tell(TruncateEnded())

    async def _cut_back(self, lengths: Sequence[tuple[SegmentKey, int]]) -> None:
        await self._marks.cut_back()
        for segment, size_bytes in lengths:
            # Also at its old length: a file that an append failed on takes no other before.
            if (file := self._files.find(segment)) is not None:
                await self._disk.truncate(file, size_bytes)

    async def _cut(self, effect: CutTail) -> None:
        try:
            cut = await cut_tail(self._disk, self._files, effect)
        except TidelogError as error:
            self._tell(CutEnded(key=effect.key, error=error))
        else:
            self._tell(CutEnded(key=effect.key, cut=cut))

    async def _remove(self, effect: RemoveFiles) -> None:
        # What a removal leaves behind is removed by the next start; a broken disk shows elsewhere.
        with contextlib.suppress(TidelogError):
            await self._files.remove(effect.segments, effect.sidecars)

    async def _remove_directory(self, effect: RemoveDirectory) -> None:
        asking = self._asking.pop(effect.token)
        try:
            await self._files.remove_directory(effect.key)
        except TidelogError as error:
            if not asking.done():
                asking.set_exception(error)
        else:
            if not asking.done():
                asking.set_result(Offset(0))


def _committed(partition: Partition) -> int:
    """What a mark may say of the high watermark: no more than a cut on its way leaves."""
    log = partition.log
    if partition.role is None:
        return 0
    return (
        log.high_watermark if partition.cut is None else min(log.high_watermark, log.flushed_offset)
    )
