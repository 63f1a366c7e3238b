"""One lane to one leader: the stream, the requests, and what becomes of what comes.

The thin part around `FollowerSession`: a task for the lane's life opens streams, one behind the
other; while one is open, one task sends and one receives. It must never keep batches to itself that
were taken in: they go to the owner at once, and the leader's bound on unconfirmed answers is what
limits them. A stream that breaks, or is silent for too long, is followed by another. Stop 7 of a
record's walk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from tidelog.broker.directory.core.messages import CommitTo, RestartLog, TrimHead, TruncateTail
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.follower.partition import (
    AppendCopies,
    FollowerEffect,
    MoveTo,
    StopHeadless,
)
from tidelog.broker.replication.follower.session import FollowerSession
from tidelog.broker.replication.shared.messages import FetchAsk, Followed, Lane
from tidelog.broker.replication.tasks.fetch_context import FetchContext
from tidelog.broker.replication.tasks.wire import REPLICA_FETCH, decode_answer, encode_ask
from tidelog.ports import Stream, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, Offset, PartitionKey

if TYPE_CHECKING:
    pass

_NS_PER_MS: Final = 1_000_000


class FetchLane:
    """`run()` for the broker's life; `follow` and `unfollow` as the metadata change."""

    def __init__(
        self,
        context: FetchContext,
        leader_id: BrokerId,
        lane: Lane,
        on_move: Callable[[FetchLane, MoveTo], None],
    ) -> None:
        self._context = context
        self.leader_id = leader_id
        self.lane = lane
        self._on_move = on_move
        self.session = FollowerSession(self, context.limits)
        self._news = asyncio.Event()
        self._heard_ms = 0
        self._has_answered = False
        self._is_probe_due = False
        self._is_probed = False
        self._wakes_at_ms: int | None = None
        self._epoch = BrokerEpoch(-1)
        """Of this broker, as the present stream has told it."""
        self._scope: TaskScope | None = None
        self.trouble: TidelogError | None = None
        """Why the last stream ended; None while one is answered."""

    # -- what is followed --------------------------------------------------------------------------

    def follow(self, key: PartitionKey, followed: Followed) -> None:
        """Pull the partition on this lane from now on, or under another epoch."""
        self.session.follow(key, followed)
        self._news.set()

    def unfollow(self, key: PartitionKey) -> None:
        """Pull it here no more."""
        self.session.unfollow(key)
        self._news.set()

    def on_moved(self, key: PartitionKey) -> None:
        """Log end or flushed offset have moved."""
        self.session.on_moved(key)
        self._news.set()

    def on_advanced(self, key: PartitionKey) -> None:
        """The watermark has moved, or the partition stopped."""
        self._perform(self.session.on_advanced(key))

    def wake(self) -> None:
        """Something may be named that could not be."""
        self._news.set()

    # -- see `FollowerView` ------------------------------------------------------------------------

    def log(self, key: PartitionKey) -> PartitionLog | None:
        """See `FollowerView`."""
        replica = self._context.replica(key)
        return None if replica is None else replica.log

    def is_settled(self, key: PartitionKey) -> bool:
        """See `FollowerView`."""
        return self._context.is_settled(key)

    def is_flush_sync(self, key: PartitionKey) -> bool:
        """See `FollowerView`."""
        replica = self._context.replica(key)
        return replica is not None and replica.settings.is_flush_sync

    def is_in_sync(self, key: PartitionKey) -> bool:
        """See `FollowerView`."""
        return self._context.is_in_sync(key)

    # -- the lane's life ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with TaskScope() as scope:
                self._scope = scope
                await self._stream_again_and_again()
        finally:
            self._scope = None

    async def _stream_again_and_again(self) -> None:
        """A stream behind the other, with pauses that grow while no leader answers."""
        limits = self._context.limits
        pause_ms = limits.retry_ms
        while True:
            while not self.session.partitions:
                self._news.clear()
                await self._news.wait()
            self._has_answered = False
            try:
                await self._talk()
                self.trouble = None
            except TidelogError as error:
                self.trouble = error
            self.session.reset()
            pause_ms = min(limits.retry_ms_max, 2 * pause_ms)
            if self._has_answered:
                pause_ms = limits.retry_ms
            await self._context.clock.sleep(pause_ms)

    async def _talk(self) -> None:
        """One stream, until it breaks or there is nothing to pull."""
        address = self._context.address_of(self.leader_id)
        if address is None:
            raise _left(f"the cluster address of broker {self.leader_id} is not known")
        stream = self._context.network.stream(address, REPLICA_FETCH)
        self._heard_ms, self._is_probed = self._context.now_ms(), False
        self._epoch = self._context.broker_epoch()
        try:
            async with TaskScope() as scope:
                scope.start(self._receive(stream), name="copies from a leader")
                scope.start(self._watch_silence(), name="silence of a leader")
                await self._send(stream)
                scope.cancel()
        finally:
            stream.cancel()

    async def _send(self, stream: Stream) -> None:
        session = self.session
        is_first = True
        while session.partitions or not session.is_start_due:
            self._news.clear()
            ask = self._next_ask()
            if ask is not None:
                if is_first:
                    ask, is_first = self._introduced(ask), False
                await stream.send(encode_ask(ask))
            elif not session.partitions:
                return
            else:
                await self._news.wait()

    def _next_ask(self) -> FetchAsk | None:
        context, session = self._context, self.session
        now_ms = context.now_ms()
        may_confirm = True
        if self.lane is Lane.CATCH_UP:
            throttle = context.throttle()
            session.max_bytes = throttle.answer_bytes(context.limits.answer_bytes_max)
            wait_ns = throttle.wait_ns(context.clock.monotonic_ns())
            may_confirm = wait_ns == 0
            if wait_ns:
                self._wake_at(now_ms + 1 + wait_ns // _NS_PER_MS)
        if session.is_start_due:
            return session.start(context.next_session_id())
        ask = session.next_request(now_ms, may_confirm=may_confirm)
        if ask is None and self._is_probe_due:
            ask = session.probe()
        if ask is not None:
            self._is_probe_due = False
        if (retry_ms := session.next_retry_ms()) is not None:
            self._wake_at(retry_ms)
        return ask

    def _introduced(self, ask: FetchAsk) -> FetchAsk:
        """The first request of a stream says whose it is."""
        context = self._context
        return msgspec.structs.replace(
            ask,
            cluster_id=context.cluster_id,
            broker_id=context.broker_id,
            broker_epoch=self._epoch,
            lane=self.lane,
        )

    async def _receive(self, stream: Stream) -> None:
        context, session = self._context, self.session
        while True:
            data = await stream.receive()
            if data is None:
                raise _left(f"broker {self.leader_id} ended the stream")
            now_ms = self._heard_ms = context.now_ms()
            self._is_probed = False
            self._has_answered = True
            context.copied_bytes[self.lane] += len(data)
            if self.lane is Lane.CATCH_UP:
                context.throttle().spend(len(data), context.clock.monotonic_ns())
            self._perform(session.on_answer(decode_answer(data), now_ms))
            self._news.set()

    async def _watch_silence(self) -> None:
        """A leader may be gone without a word: ask, and give it up if it does not answer.

        Under another broker epoch this one is heard only on a new stream.
        """
        limits = self._context.limits
        while True:
            await self._context.clock.sleep(limits.probe_ms // 2)
            if self._context.broker_epoch() != self._epoch:
                raise _left(f"broker {self._context.broker_id} has registered anew")
            silent_ms = self._context.now_ms() - self._heard_ms
            if silent_ms >= limits.silence_ms:
                raise _left(f"broker {self.leader_id} was silent for {silent_ms} ms")
            if silent_ms >= limits.probe_ms and not self._is_probed:
                self._is_probe_due = self._is_probed = True
                self._news.set()

    def _wake_at(self, at_ms: int) -> None:
        """Look again then; the earliest such time counts."""
        if self._wakes_at_ms is not None and self._wakes_at_ms <= at_ms:
            return
        self._wakes_at_ms = at_ms
        self._start(self._wake_later(at_ms), name="copies again")

    async def _wake_later(self, at_ms: int) -> None:
        await self._context.clock.sleep(max(1, at_ms - self._context.now_ms()))
        if self._wakes_at_ms == at_ms:
            self._wakes_at_ms = None
            self._news.set()

    # -- what becomes of it ------------------------------------------------------------------------

    def _perform(self, effects: list[FollowerEffect]) -> None:
        for effect in effects:
            match effect:
                case AppendCopies():
                    self._append(effect)
                case CommitTo():
                    replica = self._context.replica(effect.key)
                    if replica is not None:
                        replica.directory.owner.commit_to(effect)
                case TruncateTail():
                    self._start(self._cut(effect), name="cut")
                case RestartLog():
                    self._start(self._restart(effect), name="restart of a log")
                case TrimHead():
                    self._start(self._trim(effect), name="trim")
                case StopHeadless():
                    self._stop_headless(effect)
                case MoveTo():
                    self._on_move(self, effect)
                case _:
                    assert_never(effect)

    def _append(self, effect: AppendCopies) -> None:
        context, key = self._context, effect.key
        replica = context.replica(key)
        assert replica is not None, f"{key}: a session takes in what is held"
        try:
            done = replica.directory.owner.append_copy(
                replica.log, effect.batches, effect.headers, behind=effect.behind
            )
        except TidelogError as error:
            self.session.on_appended(key, effect.token, error, context.now_ms())
            return
        context.begin(key)
        done.add_done_callback(partial(self._appended, key, effect.token))

    def _appended(
        self, key: PartitionKey, token: tuple[int, int], done: asyncio.Future[Offset]
    ) -> None:
        error = None
        if not done.cancelled():
            failure = done.exception()
            assert failure is None or isinstance(failure, TidelogError), f"a copy failed: {failure}"
            error = failure
        self._context.end(key)
        self.session.on_appended(key, token, error, self._context.now_ms())
        self._news.set()

    async def _cut(self, effect: TruncateTail) -> None:
        followed = self.session.partitions.get(effect.key)
        error = await self._change(effect)
        replica = self._context.replica(effect.key)
        is_lacking = error is not None and error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        if is_lacking and replica is not None and followed is not None:
            # The leader lacks what is committed here: nobody has decided that it may go.
            lost = leader_lacks(
                f"{replica.topic_name}:{effect.key.partition}",
                self.leader_id,
                self._context.broker_id,
                parted_at=effect.offset,
                high_watermark=replica.log.high_watermark,
            )
            epoch = followed.followed.leader_epoch
            replica.directory.owner.fail(effect.key, lost, kept_apart_at=epoch)

    async def _restart(self, effect: RestartLog) -> None:
        await self._change(effect)

    def _stop_headless(self, effect: StopHeadless) -> None:
        """As a damaged one it is taken out, set aside, and copied anew (`repair`)."""
        replica = self._context.replica(effect.key)
        if replica is None:
            return
        lacking = TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried=f"follow broker {self.leader_id} in {effect.key}",
            happened=f"its log begins at offset {effect.log_start_offset}, its leader's at "
            f"{effect.leader_start_offset}, and no leader is known to have trimmed what lies "
            "between: it is missing here",
            hint="It is copied anew from its leader; its files are kept beside.",
        )
        replica.directory.owner.fail(effect.key, lacking)

    async def _change(self, order: TruncateTail | RestartLog) -> TidelogError | None:
        """Let the owner change the log, then say so; the error if it did not."""
        context, key = self._context, order.key
        replica = context.replica(key)
        error = None
        if replica is not None:
            context.begin(key)
            try:
                await replica.directory.owner.change(order)
            except TidelogError as failure:
                error = failure
            finally:
                context.end(key)
        self.session.on_changed(key, error, context.now_ms())
        self._news.set()
        return error

    async def _trim(self, effect: TrimHead) -> None:
        replica = self._context.replica(effect.key)
        if replica is not None:
            try:
                await replica.directory.owner.change(effect)
            except TidelogError as error:
                self.trouble = error
        self.session.on_trimmed(effect.key)

    def _start(self, work: Coroutine[object, object, None], *, name: str) -> None:
        """Run beside the stream: what a log was asked for goes on when the stream breaks."""
        if self._scope is None:
            # The node stops: the owner comes to its end without it.
            work.close()
        else:
            self._scope.start(work, name=name)


def leader_lacks(
    name: str,
    leader_id: BrokerId,
    broker_id: BrokerId,
    *,
    parted_at: Offset,
    high_watermark: Offset,
) -> TidelogError:
    """Why this broker's copy keeps away from that leader, and what brings the cluster out of it."""
    return TidelogError(
        ErrorCode.STORAGE_FAILED,
        tried=f"follow broker {leader_id} in {name}",
        happened=f"broker {leader_id}, which leads, lacks committed records that broker "
        f"{broker_id} has: their logs part at offset {parted_at}, below the high watermark "
        f"{high_watermark} of broker {broker_id}",
        hint=f"Stop broker {leader_id}: a broker that has them leads then, and this copy goes on "
        f"by itself. If nobody leads then, `tidelog partition elect-leaders {name} --unclean "
        f"--broker {broker_id} --execute` lets this one. Started after that, broker {leader_id} "
        "is filled up.",
    )


def _left(happened: str) -> TidelogError:
    return TidelogError(ErrorCode.UNAVAILABLE, tried="pull copies from a leader", happened=happened)
