"""What others ask of a data directory's owner, and how they get their answers.

Owns the inbox and those who wait. Handlers submit and await a future; one that is cancelled drops
its answer only, what the inbox accepted runs to its end. It must never decide anything, nor leave
anybody without an answer. Stops 5 to 9 of a record's walk.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidelog.broker.directory.core.messages import (
    AddPartition,
    AppendBatch,
    Appended,
    AppendTransactional,
    CommitTo,
    Configure,
    Done,
    FailDirectory,
    FailPartition,
    FlushAll,
    Follow,
    Forget,
    Lead,
    Message,
    Refuse,
    ReleasePartition,
    RemovePartition,
    ReplaceSegments,
    RestartLog,
    RollSegment,
    SegmentSealed,
    SetFull,
    Tick,
    TrimHead,
    TruncateTail,
    Verified,
    Verify,
    VerifyTransaction,
    Written,
)
from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.opening.log import OpenedLog
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.shared.errors import fresh
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, Offset, PartitionKey


def _nobody_waits(key: PartitionKey) -> None:
    del key


QUEUED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Default of the memory budget for batches between arrival and their log."""
WAITING_SWEPT_MIN: Final = 10_000
"""So many wait before it is looked for the first time who waits in vain."""


class _Waiting(msgspec.Struct):
    """Who waits for a batch, and what it holds of the memory budget: nothing once it is written."""

    done: "asyncio.Future[Appended]"
    size_bytes: int


class _Copying(msgspec.Struct, frozen=True):
    """Who waits for copies."""

    done: "asyncio.Future[Offset]"
    end_offset: Offset | None
    """Of the last one: where the log ends behind it."""


class OwnerRequests:
    """What a directory's owner is asked for; `DirectoryOwner` does it."""

    def __init__(self, *, queued_bytes_max: int) -> None:
        self._inbox: list[Message] = []
        self._news = asyncio.Event()
        self._waiting: dict[int, _Waiting] = {}
        self._copying: dict[int, _Copying] = {}
        self._asking: dict[int, asyncio.Future[Offset]] = {}
        self._asked_for_turn: list[asyncio.Future[None]] = []
        self._next_token = 0
        self._queued_bytes_max = queued_bytes_max
        self._is_stopping = False
        self.queued_bytes = 0
        """Batches between arrival and their log: queued, or being written."""
        self._swept_at = WAITING_SWEPT_MIN

    def _keep_files(self, opened: OpenedLog) -> None:
        raise NotImplementedError

    def add(
        self,
        opened: OpenedLog,
        settings: TopicSettings,
        *,
        is_sole: bool = True,
        is_opened_at_work: bool = False,
    ) -> None:
        """Serve a recovered or new partition; one that is not the only replica follows at first."""
        self._keep_files(opened)
        self._tell(
            AddPartition(
                log=opened.log,
                settings=settings,
                is_sole=is_sole,
                leftovers=opened.to_remove,
                is_opened_at_work=is_opened_at_work,
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

    def follower_at(self, at: FollowerAt) -> None:
        """Where a follower stands; ignored in another leader epoch, and of one that no commit waits
        for."""
        assert at.flushed_offset <= at.log_end_offset, f"{at} has flushed what it lacks"
        self._tell(at)

    def turn(self) -> "asyncio.Future[None]":
        """Done once all that was told before has taken effect. Never, if `run` has ended."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked_for_turn.append(done)
        self._news.set()
        return done

    def commit_to(self, message: CommitTo) -> None:
        """The leader's high watermark, of a log that goes on as this one: what is here is committed
        up to it, and what comes as it comes."""
        self._tell(message)

    async def change(self, order: TrimHead | TruncateTail | RestartLog) -> Offset:
        """Have a log trimmed, cut or emptied; where it begins then, or ends, once that is durable.

        A trim is refused with NOT_LEADER where the replica follows, unless the leader of its
        `start_epoch` has decided it. A cut is refused below the high watermark unless `is_unclean`,
        with FENCED_LEADER_EPOCH by one that leads others, or when another leader epoch begins
        before anything is cut; as long as the log's `is_being_cut` is set nobody may be told where
        it ends. Only one that follows lets its log go on elsewhere, be it below its start.
        """
        return await self._asked(lambda token: msgspec.structs.replace(order, token=token))

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
                    is_continued=number > 1,
                )
            )
            position, expected = end, header.next_offset
        assert position == len(data), f"{log.key}: {len(data)} bytes, the headers tell {position}"
        return done

    def submit(
        self,
        log: PartitionLog,
        batch: bytes,
        header: BatchHeader,
        *,
        is_flush_awaited: bool,
        append_time_ms: int,
        hangs_from: int = -1,
    ) -> "asyncio.Future[Appended]":
        """Queue a checked batch; refused at once if the memory budget is spent.

        A batch that is alone passes whatever its size: refused, it never would be stored. One of a
        transaction is refused in its turn, unless its transaction was verified; so is a marker that
        does not fit, and one of a transaction that hangs (`hangs_from`) and begins elsewhere. A
        marker that is there already is answered with an offset at or above it.
        """
        append, done = self._accepted(
            log, batch, header, is_flush_awaited, append_time_ms, hangs_from
        )
        self._tell(append)
        return done

    def submit_transactional(
        self,
        log: PartitionLog,
        batch: bytes,
        header: BatchHeader,
        *,
        transactional_id: str,
        timeout_ms: int,
        is_flush_awaited: bool,
        append_time_ms: int,
    ) -> "asyncio.Future[Appended]":
        """As `submit`, for a batch of a transaction of which it is not known whether it is
        verified: it is queued once it is. The coordinator may be asked for `timeout_ms`."""
        append, done = self._accepted(log, batch, header, is_flush_awaited, append_time_ms)
        self._tell(
            AppendTransactional(
                append=append, transactional_id=transactional_id, timeout_ms=timeout_ms
            )
        )
        return done

    async def verify_transaction(
        self,
        log: PartitionLog,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
    ) -> None:
        """Return once the log is a part of the transaction: a batch of it, without a sequence, that
        is submitted now is refused only if the transaction ends before its turn."""
        await self._asked(
            lambda token: VerifyTransaction(
                token=token,
                key=log.key,
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                timeout_ms=timeout_ms,
            )
        )

    def verified(self, question: Verify, error: TidelogError | None) -> None:
        """What a coordinator has answered."""
        self._tell(
            Verified(
                key=question.key,
                producer_id=question.producer_id,
                ticket=question.ticket,
                error=error,
            )
        )

    def _accepted(
        self,
        log: PartitionLog,
        batch: bytes,
        header: BatchHeader,
        is_flush_awaited: bool,
        append_time_ms: int,
        hangs_from: int = -1,
    ) -> "tuple[AppendBatch, asyncio.Future[Appended]]":
        if self._is_stopping:
            self._refuse_when_stopping(f"append to {log.key}")
        size_bytes = len(batch)
        if self.queued_bytes and self.queued_bytes + size_bytes > self._queued_bytes_max:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=f"append to {log.key}",
                happened=f"{self.queued_bytes} bytes wait to be stored, "
                f"the limit produce.queued_bytes_max is {self._queued_bytes_max}",
            )
        token = self._new_token()
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting[token] = _Waiting(done, size_bytes)
        self.queued_bytes += size_bytes
        append = AppendBatch(
            token=token,
            key=log.key,
            batch=batch,
            header=header,
            is_flush_awaited=is_flush_awaited,
            append_time_ms=append_time_ms,
            hangs_from=hangs_from,
        )
        return append, done

    def _sweep(self) -> None:
        """Drop those who wait for a commit and are heard by nobody: their clients were told that
        the time is over, or are gone. Those who are heard are bounded by the limits of calls; these
        would be by nothing, as long as followers lack that are in sync still.
        """
        forgotten = frozenset(
            token
            for token, each in self._waiting.items()
            if not each.size_bytes and each.done.cancelled()
        )
        if forgotten:
            self._inbox.append(Forget(tokens=forgotten))

    def _note_swept(self) -> None:
        # Next at twice of what is left: each is looked at a few times, however many there are.
        self._swept_at = max(WAITING_SWEPT_MIN, 2 * len(self._waiting))

    async def trim(self, log: PartitionLog, offset: Offset) -> Offset:
        """Make the log begin at the offset, by this replica's own deciding."""
        return await self.change(TrimHead(key=log.key, offset=offset))

    async def truncate(
        self, log: PartitionLog, offset: Offset, *, is_unclean: bool = False
    ) -> Offset:
        """Make the log end at the offset."""
        return await self.change(TruncateTail(key=log.key, offset=offset, is_unclean=is_unclean))

    async def remove(self, key: PartitionKey, *, kept_as: str = "") -> None:
        """Serve the partition no more and remove its files, or give them another name."""
        await self._asked(lambda token: RemovePartition(token=token, key=key, kept_as=kept_as))

    async def release(self, key: PartitionKey) -> None:
        """Serve a partition that has stopped no more: its files are closed, and stay."""
        await self._asked(lambda token: ReleasePartition(token=token, key=key))

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

    def fail(
        self,
        key: PartitionKey,
        error: TidelogError,
        *,
        kept_apart_at: LeaderEpoch | None = None,
    ) -> None:
        """Stop the partition: it is damaged, or its leader lacks what is committed here."""
        self._tell(FailPartition(key=key, error=error, kept_apart_at=kept_apart_at))

    def fail_directory(self, error: TidelogError) -> None:
        """Stop all of them: the directory is gone."""
        self._tell(FailDirectory(error=error))

    def set_full(self, *, is_full: bool) -> None:
        """Refuse appends from now on, or take them again."""
        self._tell(SetFull(is_full=is_full))

    def tick(self, now_ms: int) -> None:
        """Monotonic time has passed; to be called a few times a flush interval."""
        self._tell(Tick(now_ms=now_ms))

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
        # Whoever finds something in the inbox finds the owner woken.
        if not self._inbox:
            self._news.set()
        self._inbox.append(message)

    def _done(self, effect: Done) -> None:
        asking = self._asking.pop(effect.token)
        if not asking.done():
            asking.set_result(effect.offset)

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

    def _appended(self, effect: Appended) -> None:
        if self._copying and effect.token in self._copying:
            copying = self._copying.pop(effect.token)
            if copying.end_offset is not None and not copying.done.done():
                copying.done.set_result(copying.end_offset)
            return
        waiting = self._release(effect.token)
        if not waiting.done.done():
            waiting.done.set_result(effect)

    def _written(self, effect: Written) -> None:
        """The share of the budget is free: a commit that does not come, of a partition whose
        followers are gone, must not keep it from the others of the directory."""
        waiting = self._waiting[effect.token]
        assert waiting.size_bytes, "a share is given back once"
        self._give_back(waiting)

    def _give_back(self, waiting: _Waiting) -> None:
        self.queued_bytes -= waiting.size_bytes
        assert self.queued_bytes >= 0, "a batch is counted once"
        waiting.size_bytes = 0

    def _release(self, token: int) -> _Waiting:
        waiting = self._waiting.pop(token)
        self._give_back(waiting)
        return waiting
