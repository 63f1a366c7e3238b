"""Who writes to one partition, and does to it what operators, leaders and followers do.

One sequence of acts for each partition: appends that overlap, and between them trims, cuts of the
tail, rolls, changes of settings, new leader epochs. Each batch is sent once. Everything that is
answered goes to the partition's model, in the moment in which the answer leaves the node.
"""

import asyncio
import functools
from typing import Final, Protocol

from tidelog.broker.directory.core.messages import Appended
from tidelog.chaos.checkers.log.medium import CHECKPOINT, is_durable
from tidelog.chaos.checkers.log.model import LogModel
from tidelog.chaos.checkers.log.records import Sent
from tidelog.chaos.sim.base.loop import SimulatedLoop
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.log.node import LogNode, NodeGone
from tidelog.chaos.sim.log.plan import PlannedPartition, draw_settings
from tidelog.chaos.sim.log.producers import BatchMaker
from tidelog.chaos.sim.ports.clock import WALL_START_MS, set_done, sleep_ns
from tidelog.chaos.sim.ports.medium import Medium
from tidelog.wire.batch import HEADER_BYTES, read_header
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey

IN_FLIGHT_MAX: Final = 12
REFUSALS: Final = frozenset(
    {
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.RESOURCE_EXHAUSTED,
        ErrorCode.STORAGE_FULL,
        ErrorCode.UNAVAILABLE,
        ErrorCode.BATCH_TOO_LARGE,
    }
)
"""Answers that mean: nothing was stored, and nothing will be."""
_MS: Final = 1_000_000
_PAUSE_NS: Final = 30 * _MS
_SETTLE_NS: Final = 3_000 * _MS


class Stage(Protocol):
    """What clients share."""

    loop: SimulatedLoop
    node: LogNode | None
    """The node that serves; None: there is none at the moment."""

    def report(self, error: TidelogError) -> None:
        """A client was told of trouble."""
        ...

    def note(self, key: PartitionKey, kind: str, detail: str) -> None:
        """An event of the run: what a client was told."""
        ...

    def medium_of(self, planned: PlannedPartition) -> Medium:
        """Where the partition lies."""
        ...

    def tell_time(self) -> None:
        """The models are told what time it may be for the node."""
        ...

    def wall_ms(self) -> int:
        """What the node's machine shows."""
        ...


class PartitionClient:
    """Of one partition."""

    def __init__(
        self, stage: Stage, planned: PlannedPartition, model: LogModel, random: SeededRandom
    ) -> None:
        self.stage = stage
        self.planned = planned
        self.key = planned.key
        self.model = model
        self.random = random
        self.maker = BatchMaker(
            planned.key.partition, random, is_keyed=planned.settings.is_compacted
        )
        self.settings = planned.settings
        self.trims = self.truncations = self.compactions_seen = 0
        self._pending: dict[Sent, None] = {}
        self._settled: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await sleep_ns(self.stage.loop, self.random.below(_PAUSE_NS))
            if self.stage.node is None:
                continue
            draw = self.random.unit()
            if draw < 0.80:
                await self._append_some()
            elif draw < 0.85:
                await self._trim()
            elif draw < 0.89:
                await self._truncate()
            elif draw < 0.95:
                self._roll()
            elif draw < 0.98:
                self._configure()
            else:
                self._lead()

    # -- appends -------------------------------------------------------------------------------

    async def _append_some(self) -> None:
        for _ in range(self.random.between(1, 6)):
            if len(self._pending) < IN_FLIGHT_MAX:
                self.append()
            if self.random.chance(0.3):
                await sleep_ns(self.stage.loop, self.random.below(2 * _MS))

    def append(self, *, is_flush_awaited: bool | None = None) -> Sent | None:
        """Hand one batch over; None: there is no node."""
        node, stage = self.stage.node, self.stage
        if node is None:
            return None
        if is_flush_awaited is None:
            is_flush_awaited = self.random.chance(0.85)
        now_ms = WALL_START_MS + stage.loop.now_ns // _MS
        stage.tell_time()
        records, batch = self.maker.make(now_ms)
        sent = self.model.send(records, batch, is_flush_awaited=is_flush_awaited)
        log = node.log_of(self.key)
        if log.failure is not None:
            stage.report(log.failure)
            self.model.refuse(sent, "the partition has stopped")
            return sent
        try:
            answer = node.directory_of(self.key).owner.submit(
                log,
                batch,
                read_header(batch),
                is_flush_awaited=is_flush_awaited,
                append_time_ms=stage.wall_ms(),
            )
        except TidelogError as error:
            self._on_refused(sent, error)
            return sent
        self._pending[sent] = None
        answer.add_done_callback(
            functools.partial(self._on_answer, sent), context=stage.loop.world_context
        )
        return sent

    def _on_answer(self, sent: Sent, answer: "asyncio.Future[Appended]") -> None:
        error = answer.exception()
        if sent not in self._pending:
            return
        del self._pending[sent]
        if error is None:
            self._note("acknowledged", f"{sent.number} at {answer.result().base_offset}")
            self.model.acknowledge(sent, answer.result().base_offset)
            if sent.is_flush_awaited:
                self._check_durable(sent)
        else:
            assert isinstance(error, TidelogError), f"the owner answered with {error!r}"
            self._on_refused(sent, error)
        self._wake()

    def _on_refused(self, sent: Sent, error: TidelogError) -> None:
        self._note("refused", f"{sent.number}: {error.code.name}")
        if error.code in REFUSALS:
            self.model.refuse(sent, str(error))
        else:
            self.model.lose_track(sent)
        self.maker.begin_again()
        self.stage.report(error)

    def _check_durable(self, sent: Sent) -> None:
        medium = self.stage.medium_of(self.planned)
        if not is_durable(medium, self.key, sent.batch[HEADER_BYTES:]):
            self.model.violate("not_flushed", f"{sent.number} was acknowledged, at once")
        if CHECKPOINT in medium.root.durable:
            self.model.violate("stale_checkpoint", "a checkpoint outlives what it tells of")

    def abandon(self) -> None:
        """The node is dead: nobody knows what became of what was on its way."""
        for sent in self._pending:
            self.model.lose_track(sent)
        if self._pending:
            self.maker.begin_again()
        self._pending.clear()
        self._wake()

    def _wake(self) -> None:
        if self._settled is not None and not self._pending:
            set_done(self._settled)

    async def settle(self) -> bool:
        """Wait until every append is answered, or the node is gone; whether it was in time."""
        if not self._pending:
            return True
        loop = self.stage.loop
        settled = self._settled = loop.create_future()
        timer = loop.call_at_ns(loop.now_ns + _SETTLE_NS, set_done, settled)
        await settled
        timer.cancel()
        self._settled = None
        return not self._pending

    # -- what operators, leaders and followers do ----------------------------------------------

    async def _trim(self) -> None:
        node = self.stage.node
        if node is None:
            return
        self.stage.tell_time()
        bounds = node.bounds_of(self.key)
        offset = self.random.between(bounds.log_start, bounds.high_watermark)
        if self.random.chance(0.5):
            offset = bounds.log_start + (offset - bounds.log_start) // 4
        self.model.trim(offset)
        try:
            log_start = await node.call(lambda: node.trim(self.key, offset), "trim")
        except TidelogError as error:
            self.stage.report(error)
        except NodeGone:
            return
        else:
            self.trims += 1
            self._note("trimmed", f"{offset}: begins at {log_start}")
            self.model.trimmed(offset, log_start)

    async def _truncate(self) -> None:
        """Behind everything that is on its way: a follower appends and cuts one after another."""
        if not await self.settle():
            return
        node = self.stage.node
        if node is None:
            return
        bounds = node.bounds_of(self.key)
        offset = self.random.between(bounds.log_start, bounds.log_end)
        if self.random.chance(0.7):
            offset = bounds.log_end - (bounds.log_end - offset) // 6
        self.model.truncate(offset)
        try:
            found = await node.call(lambda: node.truncate(self.key, offset), "truncate")
        except TidelogError as error:
            self._end_truncation(None)
            self.stage.report(error)
        except NodeGone:
            self._end_truncation(None)
        else:
            log_start, log_end = found
            self.truncations += 1
            self._note("truncated", f"{offset}: ends at {log_end}")
            self._end_truncation(log_end, log_start)
            self.maker.begin_again()

    def _end_truncation(self, log_end: int | None, log_start: int = 0) -> None:
        """Unless a start has ended it already."""
        if self.model.truncating_to is not None:
            self.model.truncated(log_end, log_start)

    def _roll(self) -> None:
        node = self.stage.node
        if node is not None and node.directory_of(self.key).is_open:
            node.directory_of(self.key).owner.roll(self.key)

    def _configure(self) -> None:
        node = self.stage.node
        self.settings = draw_settings(self.random, self.settings)
        note_settings(self.model, self)
        if node is not None:
            node.configure(self.key, self.settings)

    def _lead(self) -> None:
        node = self.stage.node
        if node is None or self.model.truncating_to is not None:
            return
        wanted = node.wanted[self.key]
        wanted.leader_epoch = LeaderEpoch(wanted.leader_epoch + 1)
        node.log_of(self.key).lead(wanted.leader_epoch)

    def _note(self, kind: str, detail: str) -> None:
        self.stage.note(self.key, f"client:{kind}", detail)


def note_settings(model: LogModel, client: PartitionClient) -> None:
    """What may happen from now on to what is stored."""
    settings = client.settings
    if settings.retention_ms >= 0:
        model.retention_ms = min(model.retention_ms, settings.retention_ms)
    if settings.retention_bytes >= 0:
        model.retention_bytes = min(model.retention_bytes, settings.retention_bytes)
    model.delete_retention_ms = min(model.delete_retention_ms, settings.delete_retention_ms)
