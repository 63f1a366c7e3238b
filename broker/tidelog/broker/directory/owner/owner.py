"""The task that owns a data directory: its inbox, its writes, its flush rounds.

Runs a `DirectoryCore` over the Disk port. Handlers submit and await a future; a handler that is
cancelled drops its answer only, what the inbox accepted runs to its end. It must never touch a log
state outside the core's step. Stops 6, 8 and 9 of a record's walk.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Final, assert_never

import msgspec

from tidelog.broker.directory.core.core import FLUSH_INTERVAL_MS, DirectoryCore
from tidelog.broker.directory.core.messages import (
    AddPartition,
    Advanced,
    Appended,
    CutEnded,
    CutTail,
    Done,
    Effect,
    Flush,
    FlushEnded,
    Message,
    Moved,
    Refuse,
    ReleaseFiles,
    RemoveDirectory,
    RemoveFiles,
    Stopped,
    Truncate,
    TruncateEnded,
    Verify,
    Write,
    WriteEnded,
    Written,
)
from tidelog.broker.directory.core.partition import Following
from tidelog.broker.directory.core.removal import known_marks
from tidelog.broker.directory.core.trimming import starts_on_their_way
from tidelog.broker.directory.owner.cut import cut_tail
from tidelog.broker.directory.owner.files import SegmentFiles
from tidelog.broker.directory.owner.requests import QUEUED_BYTES_MAX as QUEUED_BYTES_MAX
from tidelog.broker.directory.owner.requests import OwnerRequests
from tidelog.broker.log.marks import file as marks_file
from tidelog.broker.log.marks.ballast import give_up_ballast, take_ballast
from tidelog.broker.log.marks.file import MarksFile
from tidelog.broker.log.marks.marks import MarkKind, PartitionMarks
from tidelog.broker.log.names import SegmentKey, partition_of
from tidelog.broker.log.opening.log import OpenedLog
from tidelog.ports import Append, Disk, File, FileUnusable, TaskScope, unusable
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionKey


def _not_of_one_log(error: FileUnusable) -> TidelogError:
    return TidelogError(
        ErrorCode.STORAGE_FAILED, tried=error.tried, happened=error.happened, hint=error.hint
    )


def _nobody_waits(key: PartitionKey) -> None:
    del key


def _nobody_verifies(question: Verify, owner: "DirectoryOwner") -> None:
    owner.verified(
        question,
        TidelogError(
            ErrorCode.NOT_IMPLEMENTED,
            tried=f"verify the transaction of `{question.transactional_id}`",
            happened="this node asks no coordinators of transactions",
        ),
    )


class LogEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told what becomes of the logs of a directory. Called on the loop; must not block."""

    on_advanced: Callable[[PartitionKey], None] = _nobody_waits
    """A partition's high watermark or start has moved, or it has stopped."""
    on_moved: Callable[[PartitionKey], None] = _nobody_waits
    """The log's end or its flushed offset has moved, of one of several replicas."""
    on_stopped: Callable[[PartitionKey], None] = _nobody_waits
    """The partition has stopped, by itself or with its directory."""
    on_verify: "Callable[[Verify, DirectoryOwner], None]" = _nobody_verifies
    """A coordinator of transactions is to be asked; the owner is told by `verified`."""


NOBODY_WAITS: Final = LogEvents()


class DirectoryOwner(OwnerRequests):
    """One a data directory. `run()` is the owning task."""

    def __init__(
        self,
        disk: Disk,
        marks: MarksFile,
        events: LogEvents = NOBODY_WAITS,
        *,
        queued_bytes_max: int = QUEUED_BYTES_MAX,
        flush_interval_ms: int = FLUSH_INTERVAL_MS,
    ) -> None:
        super().__init__(queued_bytes_max=queued_bytes_max)
        self._disk = disk
        self._marks = marks
        self._core = DirectoryCore(flush_interval_ms=flush_interval_ms)
        self._files = SegmentFiles(disk)
        self._has_ballast = False
        self.no_room: TidelogError | None = None
        """Why the last write found no room on the disk; None: it did. For operators."""
        self._has_failed = asyncio.Event()
        self.cut_count = 0
        """Tails cut off, and logs emptied, since the start."""
        self._retired: list[File] = []
        """Replaced marks files: open, they would keep their bytes on the disk."""
        self.on_advanced = events.on_advanced
        """To be replaced by none but a simulation that looks at once as well."""
        self._on_moved = events.on_moved
        self._on_stopped = events.on_stopped
        self._on_verify = events.on_verify

    @property
    def failure(self) -> TidelogError | None:
        """Why the directory stopped, if it did."""
        return self._core.state.failure

    async def wait_failed(self) -> None:
        """Until the directory stops because its disk has failed; an orderly stop is none."""
        await self._has_failed.wait()

    @property
    def duplicates_answered(self) -> int:
        """Batches that were sent again and answered as the first time, since the start."""
        return self._core.state.duplicates_answered

    def leader_watermark(self, key: PartitionKey) -> Offset:
        """The leader's high watermark as far as a follower has heard of it; else 0."""
        partition = self._core.state.partitions.get(key)
        role = None if partition is None else partition.role
        return role.leader_watermark if isinstance(role, Following) else Offset(0)

    def _keep_files(self, opened: OpenedLog) -> None:
        self._files.update(opened.files)

    async def take_ballast(self) -> None:
        """There is plenty of room: hold a little of it back for trims of a full disk."""
        if not self._has_ballast:
            self._has_ballast = await take_ballast(self._disk)

    @contextlib.contextmanager
    def reading(self, segment: SegmentKey) -> Iterator[None]:
        """As long as this is open the segment's files stay, also if it is trimmed or replaced."""
        with self._files.reading(segment):
            yield

    def unserved_marks(self, key: PartitionKey) -> PartitionMarks:
        """What is known of a partition that lies here and is not served."""
        return self._marks.unserved(key)

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
                self._take_turn(scope)
                if self._is_stopping and not self._inbox and self._core.is_idle:
                    return

    def _take_turn(self, scope: TaskScope) -> None:
        """All that was told is taken in, and what it leads to is begun."""
        is_sweep = len(self._waiting) >= self._swept_at
        if is_sweep:
            self._sweep()
        messages, self._inbox = self._inbox, []
        effects = self._core.step(messages)
        for message in messages:
            if isinstance(message, CutEnded):
                self._files.end_cut(message.key)
            elif isinstance(message, AddPartition):
                self._marks.note_served(message.log.key)
        if self._core.state.failure is not None:
            self._has_failed.set()
        for effect in effects:
            self._perform(effect, scope)
        if is_sweep:
            self._note_swept()
        turns, self._asked_for_turn = self._asked_for_turn, []
        for turn in turns:
            if not turn.done():
                turn.set_result(None)

    def _end(self, message: Message, scope: TaskScope) -> None:
        """A child of the owning task has done what it was started for: the turn that takes this in
        is taken at once, which saves those who wait a round of the event loop."""
        self._inbox.append(message)
        self._take_turn(scope)
        if self._is_stopping:
            self._news.set()

    def _perform(self, effect: Effect, scope: TaskScope) -> None:
        match effect:
            case Appended():
                self._appended(effect)
            case Written():
                self._written(effect)
            case Advanced():
                self.on_advanced(effect.key)
            case Moved():
                self._on_moved(effect.key)
            case Stopped():
                self._on_stopped(effect.key)
            case Verify():
                self._on_verify(effect, self)
            case Done():
                self._done(effect)
            case Refuse():
                self._refuse(effect)
            case Write():
                scope.start(self._write(effect, scope), name="write")
            case Flush():
                scope.start(self._flush(effect, scope), name="flush")
            case Truncate():
                scope.start(self._truncate(effect, scope), name="truncate")
            case CutTail():
                self._files.begin_cut(effect.key)
                scope.start(self._cut(effect, scope), name="cut")
            case RemoveFiles():
                scope.start(self._remove(effect), name="remove")
            case RemoveDirectory():
                scope.start(self._remove_directory(effect), name="remove")
            case ReleaseFiles():
                self._marks.keep_one(effect.key, effect.marks)
                scope.start(self._release_files(effect), name="release")
            case _:
                assert_never(effect)

    async def _write(self, effect: Write, scope: TaskScope) -> None:
        failure, unusable = None, dict[PartitionKey, TidelogError]()
        try:
            unusable = await self._append_or_make_room(effect)
            self._marks.take_in()
        except TidelogError as error:
            failure = error
        is_full = failure is not None and failure.code is ErrorCode.STORAGE_FULL
        self.no_room = failure if is_full else None
        self._end(WriteEnded(error=failure, unusable=unusable), scope)

    async def _append_or_make_room(self, effect: Write) -> dict[PartitionKey, TidelogError]:
        """A trim that does not fit could never free the room that it lacks."""
        try:
            return await self._append(effect)
        except TidelogError as error:
            is_trim = any(mark.kind is MarkKind.LOG_START for mark in effect.marks)
            if error.code is not ErrorCode.STORAGE_FULL or not is_trim:
                raise
            self._has_ballast = False
            if not await give_up_ballast(self._disk):
                raise
            await self._cut_back([(each.segment, each.byte_position) for each in effect.writes])
            return await self._append(effect)

    async def _append(self, effect: Write) -> dict[PartitionKey, TidelogError]:
        """The partitions that were left out, because their files are not as they were."""
        appends, unusable = [], dict[PartitionKey, TidelogError]()
        for each in effect.writes:
            file = self._files.find(each.segment)
            if file is None or file.size_bytes != each.byte_position:
                try:
                    file = await self._files.for_write(each)
                except FileUnusable as error:
                    await self._check_there(error)
                    unusable[each.segment.partition] = error
                    continue
            appends.append(Append(file, each.pieces))
        if self._marks.is_long:
            replaced = self._marks
            self._marks = await replaced.made_anew(self._known())
            self._retired += [replaced.file, replaced.starts]
        if effect.marks:
            appends += self._marks.append(effect.marks)
        while appends:
            try:
                await self._disk.append(appends)
                break
            except FileUnusable as error:
                # Nothing was written, and what is gone was open a moment ago.
                unusable |= await self._unusable(error)
                appends = [each for each in appends if partition_of(each.file.path) not in unusable]
        return unusable

    async def _unusable(self, error: FileUnusable) -> dict[PartitionKey, TidelogError]:
        """The partitions of which files are at fault; raises if the directory's own are."""
        await self._check_there(error)
        found = dict[PartitionKey, TidelogError]()
        for path in error.paths:
            key = partition_of(path)
            if key is None:
                raise _not_of_one_log(error)
            found.setdefault(key, unusable(error, f"use {self._disk.name}", [path]))
        if not found:
            raise _not_of_one_log(error)
        return found

    async def _check_there(self, error: FileUnusable) -> None:
        """One file may be gone; where all are, the disk has been taken away from under us."""
        if marks_file.NAME not in await self._disk.list():
            raise _not_of_one_log(error)

    def _known(self) -> dict[PartitionKey, PartitionMarks]:
        # A trim that waits for its mark to be flushed has written it to the file that goes.
        starts = starts_on_their_way(self._core.state)
        known = {}
        for key, partition in self._core.state.partitions.items():
            known[key] = marks = known_marks(partition)
            if key in starts:
                start, epoch = starts[key]
                known[key] = msgspec.structs.replace(
                    marks, log_start_offset=start, log_start_epoch=epoch
                )
        return known

    async def _flush(self, effect: Flush, scope: TaskScope) -> None:
        failure, unusable = None, dict[PartitionKey, TidelogError]()
        try:
            unusable = await self._make_durable(effect)
        except TidelogError as error:
            failure = error
        self._end(FlushEnded(error=failure, unusable=unusable), scope)
        if failure is None:
            await self._close_retired()

    async def _make_durable(self, effect: Flush) -> dict[PartitionKey, TidelogError]:
        """The partitions of which a file is gone: they are left out, the others are flushed."""
        # A segment that a full disk refused to make has no file, and nothing to be flushed.
        found = [self._files.find(segment) for segment in effect.segments]
        files = [file for file in found if file is not None]
        if effect.with_marks:
            files += self._marks.to_flush()
        directories = list(effect.directories)
        unusable = dict[PartitionKey, TidelogError]()
        while True:
            try:
                await self._disk.flush(files, directories=directories)
            except FileUnusable as error:
                unusable |= await self._unusable(error)
                files = [each for each in files if partition_of(each.path) not in unusable]
                directories = [each for each in directories if partition_of(each) not in unusable]
            else:
                return unusable

    async def _close_retired(self) -> None:
        """Between two flushes: one in flight may hold a marks file that was replaced meanwhile."""
        retired, self._retired = self._retired, []
        for file in retired:
            # Nothing in it is needed any more.
            with contextlib.suppress(TidelogError):
                await self._disk.close(file)

    async def _truncate(self, effect: Truncate, scope: TaskScope) -> None:
        failure = None
        try:
            await self._cut_back(effect.lengths)
        except TidelogError as error:
            failure = error
        self._end(TruncateEnded(error=failure), scope)

    async def _cut_back(self, lengths: Sequence[tuple[SegmentKey, int]]) -> None:
        await self._marks.cut_back()
        for segment, size_bytes in lengths:
            # Also at its old length: a file that an append failed on takes no other before.
            if (file := self._files.find(segment)) is not None:
                await self._disk.truncate(file, size_bytes)

    async def _cut(self, effect: CutTail, scope: TaskScope) -> None:
        try:
            cut = await cut_tail(self._disk, self._files, effect)
        except FileUnusable as error:
            ended = CutEnded(key=effect.key, error=error, is_of_one_log=True)
        except TidelogError as error:
            ended = CutEnded(key=effect.key, error=error)
        else:
            self.cut_count += 1
            ended = CutEnded(key=effect.key, cut=cut)
        self._end(ended, scope)

    async def _remove(self, effect: RemoveFiles) -> None:
        # What a removal leaves behind is removed by the next start; a broken disk shows elsewhere.
        with contextlib.suppress(TidelogError):
            await self._files.remove(effect.segments, effect.sidecars)

    async def _release_files(self, effect: ReleaseFiles) -> None:
        await self._answer(effect.token, self._files.close_all(effect.key))

    async def _remove_directory(self, effect: RemoveDirectory) -> None:
        await self._answer(
            effect.token, self._files.remove_directory(effect.key, kept_as=effect.kept_as)
        )

    async def _answer(self, token: int, work: Coroutine[object, object, None]) -> None:
        asking = self._asking.pop(token)
        try:
            await work
        except TidelogError as error:
            if not asking.done():
                asking.set_exception(error)
        else:
            if not asking.done():
                asking.set_result(Offset(0))
