"""Performs what the core of a transaction coordinator wants, over a leader of `__transactions`."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.state.answers import Response
from tidelog.broker.transactions.state.messages import (
    Answer,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
    Effect,
    MarkersAnswered,
    ProducerIdsGranted,
    ReloadNeeded,
    RequestProducerIds,
    SendMarkers,
    TransactionsLoaded,
    TransactionTick,
    TransactionTopics,
)
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.transactions.leader import Leader
from tidelog.chaos.sim.transactions.truth import Entry, Truth
from tidelog.chaos.sim.world.process import Process
from tidelog.chaos.sim.world.world import World
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey, ProducerId, TopicId

LOAD_NS: Final = (1_000_000, 60_000_000)
GRANT_NS: Final = (1_000_000, 40_000_000)
TICK_NS: Final = 10_000_000

_FINAL: Final = (ErrorCode.FENCED_PRODUCER_EPOCH, ErrorCode.TRANSACTION_NOT_FOUND)
"""What a producer, or the holder of a token, does not recover from."""

SendOne = Callable[[SendMarkers, PartitionKey], Awaitable[TidelogError | None]]


class Coordinator:
    """Of one partition of `__transactions`, while one broker leads it in one epoch."""

    def __init__(
        self,
        world: World,
        truth: Truth,
        process: Process,
        leader: Leader,
        partition_counts: dict[TopicId, int],
        send_marker: SendOne,
    ) -> None:
        self.leader: Final = leader
        self.core = TransactionCoordinatorCore()
        self._world = world
        self._truth = truth
        self._process = process
        self._partition_counts = partition_counts
        self._send_marker = send_marker
        self._random = world.seeds.purpose("coordinators")
        self._answers: dict[int, asyncio.Future[Response | TidelogError]] = {}
        self._last_request = 0
        self._life = 0
        self._load_soon()

    def _load_soon(self) -> None:
        self._life += 1
        self.core = TransactionCoordinatorCore()
        self._process.start_task(self._live(self._life), "coordinate")

    def _is_of(self, life: int) -> bool:
        return life == self._life and not self.leader.is_over

    async def _live(self, life: int) -> None:
        await sleep_ns(self._world.loop, self._random.between(*LOAD_NS))
        # What lies above the watermark may be of an append whose answer is out: it counts.
        await self._wait_whole()
        if not self._is_of(life):
            return
        for entry in self.leader.entries:
            for record in entry.records:
                self.core.apply(record.key, record.value)
        now_ms, wall_ms = self._times()
        self._perform(
            self.core.step(
                TransactionsLoaded(
                    coordinator_epoch=LeaderEpoch(self.leader.epoch), now_ms=now_ms, wall_ms=wall_ms
                )
            )
        )
        self._perform(
            self.core.step(
                TransactionTopics(
                    partition_counts=self._partition_counts, now_ms=now_ms, wall_ms=wall_ms
                )
            )
        )
        while self._is_of(life):
            now_ms, wall_ms = self._times()
            if self.core.next_deadline_ms() <= now_ms:
                self._perform(self.core.tick(TransactionTick(now_ms=now_ms, wall_ms=wall_ms)))
            await sleep_ns(self._world.loop, TICK_NS)

    async def _wait_whole(self) -> None:
        with contextlib.suppress(TidelogError):
            await self.leader.wait_committed(len(self.leader.entries))

    async def ask(self, request: Any) -> Response:
        """The answer; raises what it refuses with."""
        if self.leader.is_over:
            raise _not_coordinator()
        self._last_request += 1
        now_ms, wall_ms = self._times()
        number = self._last_request
        future = self._answers[number] = self._world.loop.create_future()
        self._perform(
            self.core.step(
                msgspec.structs.replace(request, request_id=number, now_ms=now_ms, wall_ms=wall_ms)
            )
        )
        answer: Response | TidelogError = await asyncio.shield(future)
        if isinstance(answer, TidelogError) and answer.code in _FINAL:
            await self._prove()
        if isinstance(answer, TidelogError):
            raise TidelogError(
                answer.code, tried=answer.tried, happened=answer.happened, hint=answer.hint
            )
        return answer

    async def _prove(self) -> None:
        """That it leads still: one that was replaced and has not heard of it knows nothing of
        identities that are newer, and would fence their holders."""
        if self.leader.is_over:
            raise _not_coordinator()
        try:
            await self.leader.wait_committed(self.leader.append(Entry(offset=-1)))
        except TidelogError:
            raise _not_coordinator() from None

    def end(self) -> None:
        """Another broker leads: nobody knows what of the appends in flight is in the log."""
        self._life += 1
        self._perform(self.core.completed(AppendFailed(error=_not_coordinator())))
        for future in self._answers.values():
            if not future.done():
                future.set_result(_not_coordinator())
        self._answers.clear()

    def _times(self) -> tuple[int, int]:
        clock = self._process.ports.clock
        return clock.monotonic_ns() // 1_000_000, clock.wall_ms()

    def _perform(self, effects: list[Effect]) -> None:
        life = self._life
        for effect in effects:
            match effect:
                case Answer():
                    future = self._answers.pop(effect.request_id, None)
                    if future is not None and not future.done():
                        future.set_result(effect.result)
                case AppendRecords():
                    self._append(effect, life)
                case SendMarkers():
                    for key in effect.keys:
                        self._process.start_task(self._mark(effect, key, life), "mark")
                case RequestProducerIds():
                    self._process.start_task(self._grant(effect.count, life), "grant")
                case ReloadNeeded():
                    if not self.leader.is_over and self._life == life:
                        self._load_soon()

    def _append(self, effect: AppendRecords, life: int) -> None:
        if self.leader.is_over:
            return

        def tell(error: TidelogError | None) -> None:
            if life != self._life:
                return
            if error is None:
                self._perform(self.core.completed(AppendCommitted(token=effect.token)))
            else:
                self._perform(self.core.completed(AppendFailed(error=_not_coordinator())))

        end = self.leader.append(Entry(offset=-1, records=effect.records))
        self.leader.when_committed(end, tell)

    async def _mark(self, send: SendMarkers, key: PartitionKey, life: int) -> None:
        error = await self._send_marker(send, key)
        if self._is_of(life):
            now_ms, wall_ms = self._times()
            self._perform(
                self.core.step(
                    MarkersAnswered(
                        send_id=send.send_id,
                        results=((key, error),),
                        now_ms=now_ms,
                        wall_ms=wall_ms,
                    )
                )
            )

    async def _grant(self, count: int, life: int) -> None:
        await sleep_ns(self._world.loop, self._random.between(*GRANT_NS))
        first = self._truth.grant(count)
        if self._is_of(life):
            now_ms, wall_ms = self._times()
            self._perform(
                self.core.step(
                    ProducerIdsGranted(
                        first=ProducerId(first), count=count, now_ms=now_ms, wall_ms=wall_ms
                    )
                )
            )


def _not_coordinator() -> TidelogError:
    return TidelogError(
        ErrorCode.NOT_COORDINATOR,
        tried="ask a transaction's coordinator",
        happened="another broker leads its partition",
    )
